from __future__ import annotations

import numpy as np
import pytest

from caps_med.errors import UnknownLabel
from caps_med.images import MedicalImage, label_palette, match_labels
from caps_med.images.labels import as_labels


def labels(*ids: int) -> MedicalImage:
    return MedicalImage(np.array([[ids]], np.uint16), kind="labels")


def test_known_ids_pass_unchanged() -> None:
    image = labels(0, 2, 5)
    assert match_labels(image, [0, 2, 5, 7]) is image


def test_half_floats_are_ids_too() -> None:
    labels = as_labels(MedicalImage(np.array([[[0, 2, 300]]], np.float16)))
    assert labels.array.tolist() == [[[0, 2, 300]]]


def test_unknown_ids_are_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownLabel, match="holds the ids 3, 9; the model knows 0, 1, 2: renumber"):
        match_labels(labels(0, 3, 9, 1), range(3))


def test_many_unknown_ids_are_cut_short() -> None:
    with pytest.raises(UnknownLabel, match="1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 5 more; the model"):
        match_labels(labels(*range(16)), [0])


def test_an_image_in_place_of_its_label_map_is_told() -> None:
    """Renumbering it would not help."""
    image = np.random.default_rng(0).integers(0, 256, (1, 32, 32), np.uint8)
    with pytest.raises(UnknownLabel, match="vary like those of a photograph: give the label map"):
        match_labels(MedicalImage(image, kind="labels"), range(3))
    regions = np.arange(32, dtype=np.uint8).repeat(32 * 8).reshape(1, 32, -1)
    with pytest.raises(UnknownLabel, match="renumber the map"):
        match_labels(MedicalImage(regions, kind="labels"), range(3))


def test_255_is_1_for_a_binary_model_alone() -> None:
    assert match_labels(labels(0, 255), [0, 1], binary=True).array.tolist() == [[[0, 1]]]
    assert match_labels(labels(0, 1), [0, 1], binary=True).array.tolist() == [[[0, 1]]]
    assert match_labels(labels(255), [0, 1], binary=True).array.tolist() == [[[1]]]
    assert match_labels(labels(0, 65535), [0, 1], binary=True).array.tolist() == [[[0, 1]]]
    with pytest.raises(UnknownLabel, match="holds the ids 255, 65535"):
        match_labels(labels(0, 255, 65535), [0, 1], binary=True)
    with pytest.raises(UnknownLabel, match="holds the ids 255"):
        match_labels(labels(0, 255), [0, 1])
    with pytest.raises(UnknownLabel, match="holds the ids 255"):
        match_labels(labels(0, 1, 255), [0, 1], binary=True)


def test_aliases_are_read_as_the_known_ids() -> None:
    found = match_labels(labels(0, 41, 2, 1035), [0, 2, 3], aliases={41: 2, 1035: 3, 42: 3})
    assert found.array.tolist() == [[[0, 2, 2, 3]]]
    with pytest.raises(UnknownLabel, match="holds the ids 43"):
        match_labels(labels(0, 41, 43), [0, 2, 3], aliases={41: 2})


def test_the_palette_has_a_black_background_and_sixteen_colours() -> None:
    palette = label_palette()
    assert palette.shape == (256, 3) and palette[0].tolist() == [0, 0, 0]
    assert len({tuple(colour) for colour in palette[:17]}) == 17
    np.testing.assert_array_equal(palette[1], palette[17])


def test_a_model_brings_its_first_colours() -> None:
    palette = label_palette(np.array([[1, 1, 1], [2, 2, 2]], np.uint8))
    assert palette[:2].tolist() == [[1, 1, 1], [2, 2, 2]]
    np.testing.assert_array_equal(palette[2:], label_palette()[2:])


def named(ids: list[int], names: dict[int, str]) -> MedicalImage:
    array = np.array([[ids]], np.uint8)
    return MedicalImage(array, kind="labels", names=names)


def test_labels_with_names_are_matched_by_them() -> None:
    """Segment 1 of one program is segment 3 of another."""
    known = {0: "background", 1: "cerebrospinal fluid", 2: "grey matter", 3: "white matter"}
    found = match_labels(named([0, 1, 2], {1: "White_Matter", 2: "gray matter"}), known)
    assert found.array.ravel().tolist() == [0, 3, 2]
    assert found.names == {3: "white matter", 2: "grey matter"} and found.warnings == ()
    same = named([0, 2], {2: "Grey matter"})
    assert match_labels(same, known) is same


def test_names_that_a_model_does_not_know() -> None:
    known = {0: "background", 1: "liver"}
    with pytest.raises(UnknownLabel, match="holds spleen; the model knows background, liver: ren"):
        match_labels(named([0, 1, 2], {1: "spleen", 2: "Liver"}), known)
    found = match_labels(named([0, 1], {1: "Segment_1"}), known)
    assert found.array.ravel().tolist() == [0, 1]
    assert found.warnings[0].startswith("none of the labels Segment_1 has a name that the model")
    assert match_labels(named([0, 1], {1: "x"}), known.keys()).warnings == ()
