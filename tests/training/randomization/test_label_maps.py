from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from caps_med.errors import InvalidInput, InvalidParameter
from tests.training.randomization.maps import (
    FLUID,
    GREY,
    SCHEME,
    SKULL,
    WHITE,
    ball,
    label_maps,
    write_pictures,
    write_volumes,
)
from training.randomization import LabelMaps, LabelScheme, scheme_of
from training.randomization.data import open_label_maps


def test_the_built_in_scheme_makes_deep_grey_matter_grey() -> None:
    scheme = scheme_of("freesurfer-tissue")
    assert list(scheme.names.values())[1:] == ["cerebrospinal fluid", "grey matter", "white matter"]
    thalamus, ventricle, brain_stem, skull = 10, 4, 16, 515
    assert scheme.classes([0, ventricle, thalamus, brain_stem, skull]).tolist() == [0, 1, 2, 3, 0]
    assert scheme.groups([0, 2, 41, 42]).tolist() == [0, 1, 1, 3]  # left and right look alike


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("labels: [1, 2]", "labels: .*write for example labels: {1: {name: grey matter"),
        ("labels: {1: {name: a, ids: [3]}, 2: {name: b, ids: [3]}}", "labels: id 3 appears twice"),
        ("labels: {1: {name: a, ids: [3]}}\noutside: [3]", "labels and outside: id 3 appears"),
        ("labels: {0: {name: a, ids: [3]}}", "greater than or equal to 1"),
        ("labels: {1: {name: a, ids: []}}", "at least 1 item"),
        ("a: [", "cannot be read as YAML"),
        ("[" * 5000, "cannot be read as YAML: it is nested too deeply"),
        ("a: 2026-13-45", "cannot be read as YAML: month must be in 1..12"),
    ],
)
def test_a_scheme_that_is_none_is_refused_with_an_example(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "labels.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        scheme_of(file)


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"neither a YAML file nor one of .*freesurfer-tissue"):
        scheme_of("freesurfer-tissues")


def test_maps_of_several_sizes_are_kept_voxel_by_voxel() -> None:
    arrays = [ball(0), ball(1, (10, 12, 14))]
    maps = LabelMaps.from_arrays(arrays, [(1, 1, 1), (3, 2, 1)], SCHEME)
    ids = torch.tensor(maps.ids)
    for k, array in enumerate(arrays):
        start, size = int(maps.start[k]), int(maps.shape[k].prod())
        cut = ids[maps.indices[start : start + size].long()].view(*maps.shape[k].tolist()).numpy()
        filled = np.argwhere(array)
        low, high = filled.min(0), filled.max(0) + 1
        expected = array[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
        np.testing.assert_array_equal(cut, expected)
        shares = [(expected == i).mean() for i in maps.ids]
        np.testing.assert_allclose(maps.shares[k], shares, atol=1e-6)


def test_distances_are_from_what_a_mask_always_shows_in_millimetres() -> None:
    line = np.array([[[WHITE, GREY, FLUID, SKULL, SKULL]]])
    maps = LabelMaps.from_arrays([line], [(1, 1, 2.0)], SCHEME)
    assert maps.distance is not None
    assert maps.distance.tolist() == [0, 0, 20, 40, 60]
    without = LabelScheme.of_ids([WHITE, GREY, FLUID, SKULL])
    assert LabelMaps.from_arrays([line], [(1, 1, 2.0)], without).distance is None


def test_a_map_with_nothing_to_segment_is_refused() -> None:
    with pytest.raises(InvalidInput, match="label map 2 contains nothing to segment"):
        LabelMaps.from_arrays([ball(), np.full((2, 3, 4), SKULL)], [(1, 1, 1)] * 2, SCHEME)


def test_a_folder_without_a_scheme_has_a_label_for_every_id(tmp_path: Path) -> None:
    data = open_label_maps(write_pictures(tmp_path / "labels"), ["3=cortex"])
    assert data.scheme.names == {
        0: "background", WHITE: "label 2", GREY: "cortex", FLUID: "label 5", SKULL: "label 9"
    }  # fmt: skip
    assert data.trainable and data.spacing_mm is None


def test_masks_of_0_and_255_are_of_one_label_unless_a_name_says_otherwise(tmp_path: Path) -> None:
    for number in range(2):
        mask = (ball(number)[12] > 0) * np.uint8(255)
        Image.fromarray(mask).save(tmp_path / f"{number}.png")
    assert open_label_maps(tmp_path).ids == [0, 1]
    assert open_label_maps(tmp_path, ["255=head"]).ids == [0, 255]


def test_a_photograph_among_the_label_maps_is_an_error(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    noise = np.random.default_rng(0).integers(0, 200, (40, 50), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "photo.png")
    (found,) = open_label_maps(tmp_path).findings
    assert (found.code, found.file) == ("label_picture", "photo.png")


def test_the_scheme_beside_the_label_maps_is_found_and_no_label_map(tmp_path: Path) -> None:
    folder = write_volumes(tmp_path)
    (folder / "labels.yaml").write_text(f"labels: {{4: {{name: brain, ids: [{WHITE}, {GREY}]}}}}")
    data = open_label_maps(folder)
    assert data.scheme.names == {0: "background", 4: "brain"}
    assert not data.findings and len(data.stacks) == 3
    assert data.spacing_mm == (2.5, 2.0, 2.0)
    with pytest.raises(InvalidParameter, match=r"labels=4=head: .* come from labels\.yaml"):
        open_label_maps(folder, ["4=head"])


def test_files_that_cannot_be_used_are_findings(tmp_path: Path) -> None:
    folder = write_volumes(tmp_path)
    (folder / "broken.nii.gz").write_bytes(b"no gzip")
    data = open_label_maps(folder, ["freesurfer-tissue"])
    assert [(one.severity, one.code) for one in data.findings] == [("error", "unreadable")]
    (folder / "broken.nii.gz").unlink()
    (folder / "other.yaml").write_text("labels: {1: {name: a, ids: [77]}}")
    wrong = open_label_maps(folder, [str(folder / "other.yaml")])
    assert [one.code for one in wrong.findings] == ["all_empty"] and not wrong.trainable


def test_what_holds_no_label_maps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no label maps: give a folder"):
        open_label_maps(tmp_path)
    folder = write_pictures(tmp_path)
    with pytest.raises(InvalidInput, match=re.escape("a.yaml and b.yaml: give one scheme")):
        open_label_maps(folder, ["a.yaml", "b.yaml"])
    with pytest.raises(InvalidParameter, match="give an id and its name, such as 1=nucleus"):
        open_label_maps(folder, ["x=cortex"])


def test_left_and_right_share_a_gaussian() -> None:
    scheme = SCHEME.model_copy(update={"alike": ((GREY, WHITE),)})
    assert label_maps(1, scheme).groups.tolist() == [0, 1, 1, 3, 4]
