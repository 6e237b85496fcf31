"""Axon phantoms: seeded, labelled to the pixel, of many looks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage
from typer.testing import CliRunner

from caps_med.errors import InvalidParameter
from training.cli.data import data
from training.data import open_dataset
from training.labelmaps.phantoms import AxonGeometry, axon_phantom, axon_phantoms


def test_the_same_numbers_give_the_same_phantom() -> None:
    first, again = axon_phantom(3, 5, 1, 64), axon_phantom(3, 5, 1, 64)
    np.testing.assert_array_equal(first.image, again.image)
    np.testing.assert_array_equal(first.label, again.label)
    assert not np.array_equal(first.label, axon_phantom(3, 6, 1, 64).label)
    assert not np.array_equal(first.label, axon_phantom(4, 5, 1, 64).label)


def test_repeats_share_the_label_map_and_look_different() -> None:
    repeats = [axon_phantom(0, 1, repeat) for repeat in range(6)]
    for repeat in repeats[1:]:
        np.testing.assert_array_equal(repeat.label, repeats[0].label)
    inside = repeats[0].label > 0
    brightness = [float(repeat.image[inside].mean()) for repeat in repeats]
    noise = [float((x.image - ndimage.gaussian_filter(x.image, (0, 1, 1))).std()) for x in repeats]
    assert np.std(brightness) > 0.02
    assert np.std(noise) > 0.005


def test_axons_are_brighter_than_what_surrounds_them() -> None:
    contrasts = []
    for _, phantom in axon_phantoms(20, seed=1):
        inside = phantom.label[0] > 0
        around = ndimage.binary_dilation(inside, iterations=5) & ~ndimage.binary_dilation(inside)
        contrasts.append(phantom.image[0][inside].mean() - phantom.image[0][around].mean())
    assert min(contrasts) > 0.05


def test_axons_are_thin_and_cross_every_image() -> None:
    geometry = AxonGeometry()
    for _, phantom in axon_phantoms(20, seed=2):
        share = phantom.label.mean()
        assert 0.01 < share < 0.4
        depth = ndimage.distance_transform_edt(np.pad(phantom.label[0], 1))
        thickest = geometry.radius[1] * geometry.bouton_radius[1] * np.exp(4 * geometry.taper)
        assert depth.max() < 2.5 * thickest


def test_sizes_and_ranges() -> None:
    phantom = axon_phantom(0, 0, size=200)
    assert phantom.image.shape == phantom.label.shape == (1, 200, 200)
    assert phantom.image.dtype == np.float32
    assert phantom.image.min() >= 0 and phantom.image.max() <= 1
    with pytest.raises(InvalidParameter, match="size=16: must be at least 32"):
        axon_phantom(0, 0, size=16)


def test_the_command_writes_a_folder_to_train_on(tmp_path: Path) -> None:
    out = tmp_path / "phantoms"
    command = ["phantoms", "--kind", "axons", "--count", "3", "--repeats", "2"]
    result = CliRunner().invoke(data, [*command, "--size", "64", "--out", str(out)])
    assert result.exit_code == 0, result.output
    report = open_dataset(out)
    assert report.trainable
    assert report.card is not None
    assert report.card.cases == 6
    assert report.card.sizes.median == (64, 64)
    assert [share.label for share in report.card.classes] == [0, 1]
    again = CliRunner().invoke(data, [*command, "--out", str(out)])
    assert again.exit_code != 0
