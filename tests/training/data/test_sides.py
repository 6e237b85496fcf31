from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import nibabel
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage

from caps_med.images.label_codes import LabelCode
from tests.training.data.pairs import draw_pairs, save_volume, two_folders, write
from training.data import Dataset, open_dataset
from training.data.check.sides import SideSurvey, sides_findings
from training.data.interpretation import Interpretation
from training.randomization.data import open_label_maps

Labels = NDArray[np.uint8]
Blob = tuple[int, float, float, float]
RNG = np.random.default_rng


def blobs(*drawn: Blob, size: tuple[int, int, int] = (1, 48, 64)) -> Labels:
    """Ellipsoids of a label, row, column and radius, in slices ``[D, H, W]``."""
    depth, rows, columns = np.indices(size)
    labels = np.zeros(size, np.uint8)
    for label, row, column, radius in drawn:
        across = (depth - size[0] / 2) ** 2 + (rows - row) ** 2 / 2
        labels[across + (columns - column) ** 2 < radius**2] = label
    return labels


def pairs(maps: Iterator[Labels] | list[Labels], **labels: int) -> tuple[tuple[int, int], ...]:
    survey = SideSurvey()
    for one in maps:
        ids = np.unique(one).tolist()
        survey.add(one, None, {i: labels.get(f"id{i}", i) for i in ids})
    return survey.pairs()


def lungs(count: int, depth: int = 1, seed: int = 0) -> Iterator[Labels]:
    """Label 3 on the left, 5 on the right, about level and about as large as each other."""
    rng = RNG(seed)
    for _ in range(count):
        (y, x), (down, r) = rng.uniform(-3, 3, 2), rng.uniform(-2, 2, 2)
        left, right = (3, 24 + y + down, 18 + x, 10 + r / 2), (5, 24 + y, 46 + x, 10)
        yield blobs(left, right, size=(depth, 48, 64))


def one_above_the_other(rng: np.random.Generator) -> list[Blob]:
    x = rng.uniform(20, 40)
    return [(1, 12, x, 7), (2, 34, x + rng.uniform(-2, 2), 7)]


def either_side(rng: np.random.Generator) -> list[Blob]:
    one, other = rng.permutation([18, 46])
    return [(1, 24, one, 8), (2, 24, other, 8)]


def larger_on_the_right(rng: np.random.Generator) -> list[Blob]:
    return [(1, 24, 12 + rng.uniform(-2, 2), 5), (2, 24, 44, 12)]


def one_in_the_other(rng: np.random.Generator) -> list[Blob]:
    return [(1, 24, 32, 10), (2, 24, 33 + rng.uniform(0, 1), 7)]


def anywhere(rng: np.random.Generator) -> list[Blob]:
    return [(i, *rng.uniform(8, 40, 2), rng.uniform(4, 9)) for i in range(1, 7)]


def side_by_side_aslant(rng: np.random.Generator) -> list[Blob]:
    return [(1, 16, 22 + rng.uniform(-2, 2), 8), (2, 32, 40, 8)]


def touching_objects(seed: int) -> Labels:
    """Every object has an id of its own, counted column by column, as MATLAB does."""
    rng = RNG(seed)
    cells = blobs(*((1, *rng.uniform((0, 0, 3), (48, 64, 5))) for _ in range(rng.integers(3, 20))))
    numbered, _ = ndimage.label(cells[0].T)
    return np.asarray(numbered.T[None], np.uint8)


@pytest.mark.parametrize("depth", [1, 12])
@pytest.mark.parametrize("count", [3, 20])
def test_labels_with_a_side_each_are_found(depth: int, count: int) -> None:
    assert pairs(lungs(count, depth)) == ((3, 5),)


@pytest.mark.parametrize(
    "draw",
    [
        one_above_the_other, either_side, larger_on_the_right, one_in_the_other, anywhere,
        side_by_side_aslant,
    ],
)  # fmt: skip
def test_other_labels_are_not(draw: Callable[[np.random.Generator], list[Blob]]) -> None:
    rng = RNG(1)
    assert pairs([blobs(*draw(rng)) for _ in range(12)]) == ()


def test_a_few_label_maps_do_not_tell() -> None:
    assert pairs(lungs(2)) == ()
    with_one_each = [np.where(one == label, one, 0) for one in lungs(6) for label in (3, 5)]
    assert pairs(with_one_each) == ()


def test_the_more_labels_there_are_the_more_label_maps_are_needed() -> None:
    """Two of many lie side by side by chance."""

    def among(count: int) -> list[Labels]:
        others = [(10 + i, 6 * i, 3, 2) for i in range(8)]
        return [np.maximum(one, blobs(*others)) for one in lungs(count)]

    assert pairs(among(4)) == ()
    assert pairs(among(6)) == ((3, 5),)


def test_each_label_has_the_counterpart_that_is_most_like_it() -> None:
    def hemispheres() -> Iterator[Labels]:
        for k in range(4):
            cortex = [(1, 24, 16 + k / 2, 13), (2, 24, 48, 13)]
            yield blobs(*cortex, (3, 24, 16 + k / 2, 10.5), (4, 24, 48, 10.5))

    assert pairs(hemispheres()) == ((1, 2), (3, 4))


def test_labels_that_are_joined_have_no_side() -> None:
    assert pairs(lungs(6), id5=3) == ()


def test_one_of_the_sides_may_be_mistaken_now_and_then() -> None:
    maps = list(lungs(40))
    assert pairs([maps[0][..., ::-1], *maps[1:]]) == ((3, 5),)
    assert pairs([one[..., ::-1] if k % 4 == 0 else one for k, one in enumerate(maps)]) == ()


def test_large_label_maps_are_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pairs(lungs(4, 12))
    monkeypatch.setattr("training.data.check.sides._VOXELS", 12 * 48 * 64 // 5)
    assert pairs(lungs(4, 12)) == whole == ((3, 5),)


def test_instances_have_no_sides() -> None:
    assert pairs([touching_objects(seed) for seed in range(20)]) == ()


# On disk


def save(root: Path, axes: str = "LPS", names: str = "") -> Dataset:
    """Volumes of lungs, stored along `axes`."""
    for k, labels in enumerate(lungs(4, 12)):
        shown = nibabel.Nifti1Image(np.transpose(labels, (2, 1, 0)), np.diag([-1.0, -1, 3, 1]))
        ornt = nibabel.orientations.ornt_transform(
            nibabel.orientations.axcodes2ornt(("L", "P", "S")),
            nibabel.orientations.axcodes2ornt(tuple(axes)),
        )
        stored = shown.as_reoriented(ornt)
        array, affine = np.asarray(stored.dataobj), stored.affine
        noise = RNG(k).integers(0, 50, array.shape)
        image = ((array > 0) * 100 + noise).astype(np.int16)
        save_volume(image, affine, root / "images" / f"{k}.nii.gz")
        save_volume(array, affine, root / "labels" / f"{k}.nii.gz")
    return open_dataset(root, interpretation=Interpretation.parse(labels=[names] if names else []))


@pytest.mark.parametrize("axes", ["LPS", "RAS", "SLP", "PIR"])
def test_the_check_reports_labels_with_sides(axes: str, tmp_path: Path) -> None:
    dataset = save(tmp_path, axes)
    (found,) = dataset.findings
    assert (found.severity, found.code) == ("warning", "sides")
    assert "labels 3 and 5 are mirror images of each other" in found.what
    assert "--set augmentation.flip_columns=0.5" in found.fix
    assert dataset.sides == ((3, 5),)
    assert dataset.trainable


def test_volumes_have_no_sides_along_other_axes(tmp_path: Path) -> None:
    """The columns of axial slices run to the left; here they are the rows."""
    for k, labels in enumerate(lungs(4, 12)):
        volume = np.transpose(labels, (1, 2, 0))  # front and back
        image = ((volume > 0) * 100 + RNG(k).integers(0, 50, volume.shape)).astype(np.int16)
        save_volume(image, np.diag([-1.0, -1, 3, 1]), tmp_path / "images" / f"{k}.nii.gz")
        save_volume(volume, np.diag([-1.0, -1, 3, 1]), tmp_path / "labels" / f"{k}.nii.gz")
    assert open_dataset(tmp_path).findings == ()


def test_names_of_labels_are_shown_or_say_it_already(tmp_path: Path) -> None:
    (found,) = save(tmp_path, names="3=lung A,5=lung B").findings
    assert "3 (lung A) and 5 (lung B)" in found.what
    named = save(tmp_path, names="3=right lung,5=left lung")
    assert named.findings == ()
    assert named.sides == ((3, 5),)
    left = LabelCode.parse("39607008,SCT,Lung,left")
    assert list(sides_findings(((3, 5),), {}, [left])) == []


def test_a_finding_lists_some_of_many_pairs() -> None:
    (found,) = sides_findings([(k, 40 + k) for k in range(1, 8)], {}, [], "randomization")
    assert "5 and 45, and 2 further pairs are" in found.what
    assert "--set randomization.flip_columns=0.5" in found.fix


def test_label_maps_alone_are_told_too(tmp_path: Path) -> None:
    save(tmp_path)
    data = open_label_maps(tmp_path / "labels")
    (found,) = data.findings
    assert found.code == "sides" and "--set randomization.flip_columns=0.5" in found.fix
    (tmp_path / "joined.yaml").write_text("labels: {1: {name: lungs, ids: [3, 5]}}")
    joined = open_label_maps(tmp_path / "labels", [str(tmp_path / "joined.yaml")])
    assert joined.sides == ()
    assert joined.findings == ()


@pytest.mark.parametrize("instances", ["binary", "borders", "classes"])
def test_objects_that_have_no_classes_have_no_sides(instances: str, tmp_path: Path) -> None:
    for seed in range(8):
        labels = touching_objects(seed)[0]
        write(labels * 9 + RNG(seed).integers(0, 9, labels.shape).astype(np.uint8),
              tmp_path / "images" / f"{seed}.png")  # fmt: skip
        write(labels, tmp_path / "labels" / f"{seed}.png", "labels")
    dataset = open_dataset(tmp_path, interpretation=Interpretation.parse(instances))
    assert dataset.sides == ()


def test_axons_have_no_sides(tmp_path: Path) -> None:
    dataset = open_dataset(two_folders("images", "labels")(tmp_path, draw_pairs(6)))
    assert dataset.sides == ()
    assert dataset.findings == ()
