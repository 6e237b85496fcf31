from __future__ import annotations

import numpy as np

from caps_med.inference.capsule_montage import CAPTION, GAP, TILE, capsule_montage
from caps_med.inference.colorbars import BAR_HEIGHT, INK, ColorBar, colored


def test_longer_is_brighter_everywhere() -> None:
    levels = colored(np.linspace(0, 1, 256, dtype=np.float32)[None])[0].astype(float)
    luminance = levels @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(luminance) >= -1).all()
    assert luminance[0] < 10
    assert luminance[-1] > 230


def test_a_row_a_layer_and_a_tile_a_type() -> None:
    layers = {
        "one": np.zeros((1, 16, 16), np.float32),
        "three": np.ones((3, 8, 8), np.float32) * np.array([0, 0.5, 1], np.float32)[:, None, None],
    }
    sheet = capsule_montage(layers).array
    row = TILE + CAPTION + GAP
    assert sheet.shape[1] == GAP + 2 * row + BAR_HEIGHT
    centre = GAP + row + CAPTION + TILE // 2
    tiles = [sheet[:, centre, GAP + j * (TILE + GAP) + TILE // 2] for j in range(3)]
    expected = colored(np.array([[0, 0.5, 1]], np.float32))[0]
    np.testing.assert_array_equal(tiles, expected)


def test_a_fine_grid_has_no_moire() -> None:
    """Alternating columns of 0 and 1, two a pixel of the tile, are one even tone."""
    grid = np.tile(np.array([0, 1], np.float32), (2 * TILE, TILE))
    sheet = capsule_montage({"grid": grid[None]}).array
    tile = sheet[:, GAP + CAPTION : GAP + CAPTION + TILE, GAP : GAP + TILE]
    assert (tile == tile[:, :1, :1]).all()


def test_a_long_picture_makes_no_endless_tiles() -> None:
    """One column of 4096 pixels took the width of a tile, and half a million rows."""
    sheet = capsule_montage({"long": np.ones((2, 4096, 1), np.float32)})
    assert sheet.spatial_shape[0] < 540 and sheet.spatial_shape[1] < 640


def test_classes_are_named_below_their_tiles() -> None:
    layers = {"seg_caps": np.zeros((2, 16, 16), np.float32)}
    plain, named = (capsule_montage(layers, names).array for names in ((), ("grey", "white")))
    bottom = GAP + CAPTION + TILE
    assert np.array_equal(plain[:, :bottom], named[:, :bottom])
    for tile in range(2):
        left = GAP + tile * (TILE + GAP)
        label = named[:, bottom + 1 : bottom + CAPTION, left : left + TILE]
        assert (label.max(axis=(1, 2)) > np.array(INK) - 60).all()


def test_a_bar_runs_through_all_colours() -> None:
    rising = ColorBar.rising("0", "1", "length").colors
    np.testing.assert_array_equal(rising[0, [0, -1]], colored(np.array([[0.0, 1.0]]))[0])
    signed = ColorBar.by_sign(0.5, "difference")
    assert (signed.low, signed.high) == ("-0.5", "0.5")
    assert signed.colors[0, 0, 2] > signed.colors[0, 0, 0]  # blue below zero
    assert signed.colors[0, -1, 0] > signed.colors[0, -1, 2]
