"""What the data say about a generator's noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from caps_med.images import Normalization
from training.data import Sample, Source
from training.tasks.synthesis.noise import band_correlations, has_fibres, noise_lengths
from training.tasks.synthesis.recipe import SynthesisRecipe


def source(
    samples: Sequence[Sample],
    slice_mm: float | None = 1.0,
    group: str = "a",
    places: Sequence[tuple[str, int]] | None = None,
) -> Source:
    return Source(
        name="made",
        samples=samples,
        groups=[group] * len(samples),
        held_out=frozenset({"held out"}),
        labels={0: "background", 1: "inside"},
        plane="axial",
        spacing_mm=None if slice_mm is None else (1.0, 1.0),
        slice_mm=slice_mm,
        normalization=Normalization(),
        description="made",
        places=[("a", z) for z in range(len(samples))] if places is None else places,
    )


def slices(volume: NDArray[np.float64]) -> list[Sample]:
    label = np.zeros(volume.shape, np.uint8)
    label[:, 8:24] = 1
    image = (0.5 + 0.1 * volume + 0.2 * label).astype(np.float32)
    return [{"image": i[None], "label": k[None]} for i, k in zip(image, label, strict=True)]


def noise(*sigma: float) -> NDArray[np.float64]:
    drawn = gaussian_filter(np.random.default_rng(0).standard_normal((48, 32, 40)), sigma)
    return np.asarray(drawn / drawn.std())


def test_lengths_follow_the_correlation_between_slices() -> None:
    white = noise_lengths(source(slices(noise(0, 0, 0))), fibres=False)
    deep = noise_lengths(source(slices(noise(4, 0, 0))), fibres=True)
    assert white is not None and deep is not None
    assert max(white[:2]) < 1 < 4 < min(deep)
    assert len(white) == 3 and len(deep) == 4 and deep[3] == deep[2]
    far = noise_lengths(source(slices(noise(4, 0, 0)), slice_mm=3.0), fibres=False)
    np.testing.assert_allclose(far or (), np.multiply(3, deep[:3]), rtol=0.2)


def test_lengths_of_voxels_of_micrometres_are_as_those_of_millimetres() -> None:
    """Rounded to thousandths of a millimetre they were 0, which no model card takes."""
    in_mm = source(slices(noise(1, 0, 0)))
    small = replace(in_mm, spacing_mm=(0.0002, 0.0002), slice_mm=0.0002)
    lengths = noise_lengths(small, fibres=True)
    assert lengths is not None and min(lengths) > 0
    wanted = np.multiply(0.0002, noise_lengths(in_mm, fibres=True) or ())
    np.testing.assert_allclose(lengths, wanted, rtol=1e-3)


def test_classes_explain_their_own_mean() -> None:
    """Labels that are the same in every slice are no noise that is."""
    found = band_correlations(source(slices(noise(0, 0, 0))))
    assert found is not None
    assert found[0].tolist() == [*range(1, 9)]
    assert np.abs(found[1]).max() < 0.2


def test_pictures_and_single_slices_have_no_depth() -> None:
    made = slices(noise(1, 1, 1))
    assert noise_lengths(source(made, slice_mm=None), fibres=False) is None
    assert noise_lengths(source(made[:1]), fibres=False) is None


def test_volumes_of_one_slice_are_not_each_other_s_neighbours() -> None:
    """Of one patient or of several, and of different sizes."""
    made = slices(noise(1, 1, 1))
    made[1::2] = [{k: v[..., :30] for k, v in sample.items()} for sample in made[1::2]]
    alone = [(f"volume {number}", 7) for number in range(len(made))]
    assert noise_lengths(source(made, places=alone), fibres=False) is None


def test_slices_are_as_far_apart_as_their_numbers() -> None:
    """Of volumes of which every third slice is labelled."""
    third = slices(noise(4, 0, 0))[::3]
    near = noise_lengths(source(third), fibres=False)
    apart = noise_lengths(source(third, places=[("a", 3 * z) for z in range(16)]), fibres=False)
    assert near is not None and apart is not None
    np.testing.assert_allclose(apart, np.multiply(3, near), rtol=0.2)


def test_slices_without_content_say_nothing() -> None:
    made = slices(noise(0, 0, 0))
    made[1] = {**made[1], "image": np.full_like(made[1]["image"], 0.5)}
    made[1]["label"][:] = 0
    assert noise_lengths(source(made[:2]), fibres=False) is None


def test_held_out_slices_are_not_looked_at() -> None:
    assert noise_lengths(source(slices(noise(1, 1, 1)), group="held out"), fibres=False) is None


def test_fibres_are_for_pictures_of_thin_structures() -> None:
    thin, wide = np.zeros((2, 1, 64, 64), np.uint8)
    thin[:, 20:24], wide[:, 10:50, 10:50] = 1, 1
    image = np.zeros((1, 64, 64), np.float32)
    assert has_fibres(source([{"image": image, "label": thin}], None))
    assert not has_fibres(source([{"image": image, "label": wide}], None))
    assert not has_fibres(source([{"image": image, "label": thin}]))
    assert not has_fibres(source([{"image": image, "label": 0 * thin}], None))


def test_the_recipe_asks_the_data_unless_it_is_told() -> None:
    wide = source(slices(noise(1, 1, 1)))
    recipe = SynthesisRecipe(data="made", seed=0)
    assert recipe.completed(wide).fibres is False
    assert recipe.model_copy(update={"fibres": True}).completed(wide).fibres is True
    assert recipe.completed(wide).network_spec(wide).arguments["fibres"] is False
