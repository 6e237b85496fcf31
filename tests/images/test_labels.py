from __future__ import annotations

import numpy as np
import pytest

from caps_med.errors import UnknownLabel
from caps_med.images import MedicalImage, label_palette, match_labels


def labels(*ids: int) -> MedicalImage:
    return MedicalImage(np.array([[ids]], np.uint16), kind="labels")


def test_known_ids_pass_unchanged() -> None:
    image = labels(0, 2, 5)
    assert match_labels(image, [0, 2, 5, 7]) is image


def test_unknown_ids_are_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownLabel, match="holds the ids 3, 9; the model knows 0, 1, 2: renumber"):
        match_labels(labels(0, 3, 9, 1), range(3))


def test_many_unknown_ids_are_cut_short() -> None:
    with pytest.raises(UnknownLabel, match="1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 5 more; the model"):
        match_labels(labels(*range(16)), [0])


def test_255_is_1_for_a_binary_model_alone() -> None:
    assert match_labels(labels(0, 255), [0, 1], binary=True).array.tolist() == [[[0, 1]]]
    assert match_labels(labels(0, 1), [0, 1], binary=True).array.tolist() == [[[0, 1]]]
    assert match_labels(labels(255), [0, 1], binary=True).array.tolist() == [[[1]]]
    with pytest.raises(UnknownLabel, match="holds the ids 255"):
        match_labels(labels(0, 255), [0, 1])
    with pytest.raises(UnknownLabel, match="holds the ids 255"):
        match_labels(labels(0, 1, 255), [0, 1], binary=True)


def test_the_palette_has_a_black_background_and_sixteen_colours() -> None:
    palette = label_palette()
    assert palette.shape == (256, 3) and palette[0].tolist() == [0, 0, 0]
    assert len({tuple(colour) for colour in palette[:17]}) == 17
    np.testing.assert_array_equal(palette[1], palette[17])


def test_a_model_brings_its_first_colours() -> None:
    palette = label_palette(np.array([[1, 1, 1], [2, 2, 2]], np.uint8))
    assert palette[:2].tolist() == [[1, 1, 1], [2, 2, 2]]
    np.testing.assert_array_equal(palette[2:], label_palette()[2:])
