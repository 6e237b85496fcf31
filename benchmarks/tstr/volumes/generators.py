"""Generators that are trained on the slices of a few volumes, and what they synthesize."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.tstr.volumes.data import (
    SCALE,
    SURROUNDINGS,
    Volume,
    named_surroundings,
    padded,
    with_surroundings,
)
from benchmarks.tstr.volumes.warps import warped
from caps_med.bundles import ModelRepository
from caps_med.images import MedicalImage
from caps_med.inference import Model
from training.data import Sample, Source
from training.engine.run_folder import RunFolder
from training.tasks.overrides import build_recipe
from training.tasks.publish import publish
from training.tasks.registry import TASKS

#: Generators without transposed convolutions and padding with zeros.
SMOOTH = {"upsampling": "linear", "padding": "replicate"}
#: Recipe values of each generator; the same number of steps and crops.
RECIPES: Mapping[str, Mapping[str, object]] = {
    "capspix2pix": {"learning_rate": 3e-3, **SMOOTH},
    "pix2pix": {"network": "pix2pix"},
    "spade": {"network": "spade"},
    "capspix2pix-3d": {"learning_rate": 3e-3, "atoms": 8, "discriminator": "patch", "crop": 32,
                       "batch_size": 4, **SMOOTH},
}  # fmt: skip
SAME = {"data": "volumes", "seed": 0, "epochs": 1, "crop": 64, "batch_size": 8}
#: Axes of slices, rows and columns, as `caps_med.images.SliceStack` has axial ones.
AXIAL = np.array([[0, 0, -1, 0], [0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]], np.float64)
_SEEN = 8


def trained(
    name: str, volumes: Sequence[Volume], labels: dict[int, str], steps: int, work: Path
) -> Model:
    """The model of that name in ``work``, trained now on these volumes if it is not there yet.

    Raises:
        SystemExit: it was trained for another number of steps.
    """
    repository = ModelRepository(work / "models")
    if name not in repository.names():
        task, folder = TASKS["synthesis"], RunFolder(work / name)
        source = _source(volumes, labels, dims=3 if name.endswith("3d") else 2)
        values = {**SAME, **RECIPES[name], "steps": steps}
        recipe = build_recipe(task.recipe, [values])
        recipe = recipe.completed(source)
        network, _ = task.train(source, recipe, folder, folder.checkpoint.exists())
        publish(repository, name, [(network, source)], recipe, "python -m benchmarks.tstr --data")
    bundle = repository.find(name)
    if (known := bundle.card.provenance.recipe.get("steps")) != steps:
        raise SystemExit(f"{bundle.path} was trained for {known} steps: name another --work")
    return Model(bundle)


def synthesized(
    model: Model, volumes: Sequence[Volume], count: int, seed: int, edges: Sequence[int]
) -> list[Volume]:
    """`count` volumes from deformed label maps of the given ones, each with its own noise."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for number in range(count):
        rich = with_surroundings(volumes[number % len(volumes)])
        label = torch.from_numpy(padded(rich.label, edges).astype(np.float32))[None, None]
        _, moved = warped(label, label, generator)
        ids = moved[0, 0].numpy().astype(np.uint8)
        picture = MedicalImage(ids[None], affine=AXIAL, kind="labels", format="nifti")
        image = np.asarray(model.synthesize(picture, seed=1000 * (seed + 1) + number).array)[0]
        found.append(Volume(f"synthetic {number}", _scaled(image), plain(ids)))
    return found


def plain(ids: np.ndarray) -> np.ndarray:
    """The ids of the labelled structures alone."""
    return np.maximum(ids.astype(np.int16) - (SURROUNDINGS - 1), 0).astype(np.uint8)


def _scaled(image: np.ndarray) -> np.ndarray:
    """As a volume that was read from a file."""
    return SCALE.apply(np.asarray(image, np.float32)[:, None], 1)[:, 0]


def _source(volumes: Sequence[Volume], labels: dict[int, str], dims: int) -> Source:
    """All slices, or volumes, to learn from; validation, which every training does, sees some."""
    rich = [with_surroundings(v) for v in volumes]
    parts = [(v, zip(v.image, v.label, strict=True) if dims == 2 else [(v.image, v.label)])
             for v in rich]  # fmt: skip
    found = [(v.name, image, label) for v, each in parts for image, label in each]
    samples: list[Sample] = [{"image": i[None], "label": k[None]} for _, i, k in found]
    groups = [name for name, *_ in found]
    first = len(rich[0].image) // 2 if dims == 2 else 0
    seen = samples[first : first + (_SEEN if dims == 2 else 1)]
    return Source(
        name="volumes",
        samples=[*samples, *seen],
        groups=[*groups, *("seen" for _ in seen)],
        held_out=frozenset({"seen"}),
        labels=named_surroundings(labels),
        plane="axial",
        spacing_mm=(1.0, 1.0),
        slice_mm=1.0,
        normalization=SCALE,
        description=f"{len(volumes)} volumes",
        spatial_dims=dims,
        places=[(v.name, z) for v in rich for z in range(len(v.image))] if dims == 2 else (),
    )
