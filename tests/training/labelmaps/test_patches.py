from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from caps_med.images import MedicalImage, encode_image, read_image
from training.cli.data import register
from training.data import open_dataset
from training.labelmaps.patches import patches_of, write_patches

app = typer.Typer()
register(app)


def cells() -> np.ndarray:
    """Two squares that touch, one alone, and one at the edge, of 48 x 64 pixels."""
    ids = np.zeros((48, 64), np.uint8)
    ids[10:16, 10:16], ids[10:16, 16:22] = 1, 2
    ids[30:36, 40:46] = 3
    ids[20:26, 0:4] = 4
    return ids


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Three images, brightest at the objects, with names that people give."""
    for number, name in enumerate(("a b", "-c", "zellen ü")):
        ids = np.roll(cells(), number, 0)
        image = (100 * (ids > 0) + 10 * number).astype(np.uint8)
        for folder, array, kind in (("images", image, "image"), ("labels", ids, "labels")):
            (tmp_path / "data" / folder).mkdir(parents=True, exist_ok=True)
            file = MedicalImage(array[None], format="png", kind=kind)  # type: ignore[arg-type]
            (tmp_path / "data" / folder / f"{name}.png").write_bytes(encode_image(file, "png"))
    return tmp_path / "data"


def test_an_object_is_alone_or_touches_and_background_has_none_in_the_middle() -> None:
    found = list(patches_of(cells(), 16, np.random.default_rng(0)))
    corners = [(p.rows.start, p.columns.start, p.name) for p in found if p.name != "background"]
    assert corners == [(4, 4, "touching"), (4, 10, "touching"), (24, 34, "alone")]
    empty = [cells()[p.rows, p.columns] for p in found if p.name == "background"]
    assert len(empty) == 3 and all(one.shape == (16, 16) for one in empty)
    assert not any(one[4:12, 4:12].any() for one in empty)


def test_every_place_that_is_free_is_found() -> None:
    ids = np.zeros((20, 20), np.uint8)
    ids[:4, :4], ids[16:, 16:] = 1, 2
    drawn = [
        (p.rows.start, p.columns.start)
        for seed in range(60)
        for p in patches_of(np.pad(ids, 6), 8, np.random.default_rng(seed))
        if p.name == "background"
    ]
    rows, columns = np.array(drawn).T
    assert rows.min() < 3 and rows.max() > 21 and columns.min() < 3 and columns.max() > 21


def test_the_patches_are_data_to_train_on(pictures: Path, tmp_path: Path) -> None:
    options = ["--data", pictures, "--out", tmp_path / "out", "--size", 16]
    said = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["data", "patches", *map(str, options)])
    assert said.exit_code == 0, said.output
    assert "3 alone, 6 touching, 9 background: 18 patches" in said.output
    listed = json.loads((tmp_path / "out" / "list.json").read_text())
    assert {entry["patient"] for entry in listed["images"]} == {"a b", "-c", "zellen ü"}
    first = read_image(tmp_path / "out" / listed["images"][0]["image"])
    assert first.array.shape == (1, 16, 16) and first.array[0, 8, 8] == first.array.max()
    check = CliRunner().invoke(app, ["data", "check", str(tmp_path / "out"), "--json"])
    card = json.loads(check.output)["card"]
    assert [one["name"] for one in card["classes"]] == ["alone", "touching", "background"]
    again = CliRunner().invoke(app, ["data", "patches", *map(str, options)])
    assert "is not empty" in str(again.exception)


def test_too_large_patches_write_nothing(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"at most one class \(none\).*choose a smaller size"):
        write_patches(open_dataset(pictures), tmp_path / "out", 64, 0)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("there", [True, False])
def test_what_could_not_be_written_whole_is_not_left(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """A part of the patches would be in the way of the next attempt, or be trained on."""
    out, written = tmp_path / "out", list[Path]()
    if there:
        out.mkdir()

    def full(patch: MedicalImage, path: Path) -> None:
        if len(written) == 5:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        written.append(path)
        path.write_bytes(encode_image(patch, "tiff"))

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr("training.labelmaps.patches.write_image", full)
        write_patches(open_dataset(pictures), out, 16, 0)
    assert len(written) == 5 and out.exists() == there and not any(out.glob("*"))
    write_patches(open_dataset(pictures), out, 16, 0)
    assert len(list(out.rglob("*.tif"))) == 18
