"""Peak memory of segmenting a CT: ``python -m benchmarks.ct_memory``.

Writes a synthetic CT (int16, .nii.gz, an ellipse with lungs and spine in air, noise of a scanner)
and a SegCaps with random weights and a window, segments it by the command ``caps-med segment`` in a
process of its own, and prints the largest resident memory and the processor time of that process.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from argparse import Namespace
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.options import benchmark_parser
from benchmarks.processes import COMMAND
from caps_med.bundles import ModelCard, ModelRepository, NetworkSpec, WeightsProvenance
from caps_med.bundles.writer import write_bundle
from caps_med.networks import build_network

#: Pixels and distance of slices in mm.
SPACING = (0.7, 0.7, 1.0)
#: Hounsfield units of air, soft tissue, lung and bone; noise on tissue.
AIR, TISSUE, LUNG, BONE, NOISE = -1000, 40, -850, 700, 20
#: The window of the model.
WINDOW = (-160.0, 240.0)


def synthetic_ct(edge: int, slices: int, body_slices: int | None = None) -> NDArray[np.int16]:
    """A CT ``[edge, edge, slices]`` in Hounsfield units; always the same.

    Args:
        body_slices: in so many from the first on is a body, in the others air; None for all.
    """
    rng = np.random.default_rng(0)
    x, y = np.mgrid[-1 : 1 : edge * 1j, -1 : 1 : edge * 1j]
    body = (x / 0.8) ** 2 + (y / 0.6) ** 2 < 1
    lungs = ((np.abs(x) - 0.35) / 0.25) ** 2 + (y / 0.4) ** 2 < 1
    plane = np.select([x**2 + (y + 0.4) ** 2 < 0.01, lungs, body], [BONE, LUNG, TISSUE], AIR)
    volume = np.full((edge, edge, slices), AIR, np.int16)
    for z in range(slices if body_slices is None else body_slices):
        volume[..., z] = plane + body * rng.integers(-NOISE, NOISE, plane.shape, endpoint=True)
    return volume


def write_model(models: Path, classes: int, atoms: int, neighbours: int) -> None:
    """A SegCaps ``ct`` of slices."""
    channels = 1 if classes == 2 else classes
    arguments = {"in_channels": 2 * neighbours + 1, "out_channels": channels, "atoms": atoms}
    card = ModelCard.model_validate(
        {
            "task": "segmentation",
            "network": NetworkSpec(name="SegCaps", arguments=arguments),
            "labels": {k: f"class {k}" for k in range(classes)},
            "normalization": {"window": WINDOW},
            "spacing_mm": SPACING[:2],
            "neighbours": neighbours,
            "provenance": WeightsProvenance(command="benchmark", data="none", seed=0),
        }
    )
    torch.manual_seed(0)
    network = build_network("SegCaps", card.network.arguments)
    write_bundle(ModelRepository(models), "ct", network, card)


def segmented(work: Path) -> tuple[float, float]:
    """Peak of the resident memory in MB, and processor seconds, of the command."""
    asked = ["segment", str(work / "ct.nii.gz"), "--model", "ct", "--models", str(work)]
    command = [COMMAND, *asked, "--out", str(work / "labels.nii.gz")]
    subprocess.run(command, check=True, capture_output=True, env=os.environ)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Segment one, and print a line."""
    options = _options()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        voxels = synthetic_ct(options.edge, options.slices, options.body_slices)
        nib.Nifti1Image(voxels, np.diag([*SPACING, 1])).to_filename(work / "ct.nii.gz")
        write_model(work, options.classes, options.atoms, options.neighbours)
        peak, seconds = segmented(work)
        found = nib.Nifti1Image.from_filename(work / "labels.nii.gz").get_fdata(dtype=np.float32)
        assert found.shape == voxels.shape  # noqa: S101 - the command wrote all of them
    print(f"{'x'.join(map(str, voxels.shape))}, {options.classes} classes, {options.atoms} atoms, "
          f"{options.neighbours} neighbours: peak {peak:.0f} MB, {seconds:.0f} s")  # fmt: skip


def _options() -> Namespace:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--edge", type=int, default=512)
    parser.add_argument("--slices", type=int, default=400)
    parser.add_argument("--body-slices", type=int, help="the others are air, and take no time")
    parser.add_argument("--classes", type=int, default=2)
    parser.add_argument("--atoms", type=int, default=16, help="the published width is 16")
    parser.add_argument("--neighbours", type=int, default=0, help="slices on each side")
    return parser.parse_args()


if __name__ == "__main__":
    main()
