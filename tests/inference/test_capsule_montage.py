from __future__ import annotations

import numpy as np

from caps_med.inference.capsule_montage import CAPTION, GAP, TILE, capsule_montage, colored


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
    assert sheet.shape == (3, GAP + 2 * row, GAP + 3 * (TILE + GAP))
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
    assert sheet.spatial_shape[0] < 500 and sheet.spatial_shape[1] < 500
