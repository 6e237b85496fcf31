"""The data of each task: a folder to train on, and another to test on."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from training.labelmaps.phantoms import axon_phantoms, write_phantom

#: Edge of the pictures; of larger ones the planned crops, and every step, would be larger too.
EDGE = 64
#: Images or cases that are trained on (a fifth of them held out) and tested.
AXONS = (32, 60)
HIPPOCAMPI = (24, 10)
#: Seeds of the phantoms.
_TRAINED, _TESTED = 1, 2


def axons(_: Path | None, trained: Path, tested: Path) -> None:
    """Axon phantoms."""
    for folder, count, seed in zip((trained, tested), AXONS, (_TRAINED, _TESTED), strict=True):
        for name, phantom in axon_phantoms(count, seed, EDGE):
            write_phantom(folder, name, phantom)


def hippocampus(
    data: Path | None, trained: Path, tested: Path, counts: tuple[int, int] = HIPPOCAMPI
) -> None:
    """The first cases of the Medical Segmentation Decathlon's Task04, and the last."""
    folder = _folder(data, "hippocampus")
    names = sorted(file.name for file in (folder / "labelsTr").glob("*.nii*"))
    if len(names) < sum(counts):  # else some would be trained on and tested
        raise SystemExit(
            f"{folder}: {len(names)} labelled volumes; {counts[0]} to train on and {counts[1]} "
            "others to test on are needed"
        )
    for to, chosen in ((trained, names[: counts[0]]), (tested, names[-counts[1] :])):
        for own, theirs in (("images", "imagesTr"), ("labels", "labelsTr")):
            (to / own).mkdir(parents=True)
            for name in chosen:
                shutil.copy(_image(folder / theirs, name), to / own / name)


def nuclei(data: Path | None, trained: Path, tested: Path) -> None:
    """The left half of stardist's ``img2d.tif`` in tiles, and the right half; foreground alone."""
    origin = _folder(data, "nuclei")
    image = np.asarray(Image.open(origin / "img2d.tif"))
    mask = (np.asarray(Image.open(origin / "mask2d.tif")) > 0).astype(np.uint8)
    half = image.shape[1] // 2
    for kind, array in (("images", image), ("labels", mask)):
        for folder in (trained, tested):
            (folder / kind).mkdir(parents=True)
        Image.fromarray(np.ascontiguousarray(array[:, half:])).save(tested / kind / "half.tif")
        for top, left in itertools.product(range(0, len(array), EDGE), range(0, half, EDGE)):
            tile = np.ascontiguousarray(array[top : top + EDGE, left : left + EDGE])
            Image.fromarray(tile).save(trained / kind / f"tile-{top:03}-{left:03}.tif")


#: Writes the folders to train on and to test on from the folder of ``--data``.
Write = Callable[[Path | None, Path, Path], None]
TASKS: Mapping[str, Write] = {
    "axons": axons,
    "hippocampus": hippocampus,
    "nuclei": nuclei,
}


def written(task: str, data: Path | None, work: Path) -> tuple[Path, Path]:
    """The folders to train on and to test on; written if they are not there yet.

    Raises:
        SystemExit: ``--data`` lacks what the task needs.
    """
    return written_by(TASKS[task], data, work / task)


def written_by(write: Write, data: Path | None, own: Path) -> tuple[Path, Path]:
    """The folders ``trained`` and ``tested`` in `own`, whole even if a former process was killed.

    Raises:
        SystemExit: ``--data`` lacks what the task needs.
    """
    trained, tested, draft = own / "trained", own / "tested", own / ".draft"
    if not tested.exists():  # it comes last
        for left in (draft, trained):
            shutil.rmtree(left, ignore_errors=True)
        write(data, draft / "trained", draft / "tested")
        (draft / "trained").replace(trained)
        (draft / "tested").replace(tested)
    return trained, tested


def _folder(data: Path | None, name: str) -> Path:
    if data is None or not (data / name).is_dir():
        raise SystemExit(f"{name}: --data DIR with a folder DIR/{name} is needed, see --help")
    return data / name


def _image(folder: Path, label: str) -> Path:
    """The image of a label map; nnU-Net's images have their channel's number in the name."""
    stem = label.split(".")[0]
    return next(iter(sorted(folder.glob(f"{stem}*.nii*"))))
