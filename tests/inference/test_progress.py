"""What callers learn of an answer's progress: from 0 to all of its slices or windows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import caps_med
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage
from caps_med.inference import Model, SyntheticImage, passes
from caps_med.inference.progress import part_of, reporting_to
from tests.inference.test_passes import label_volume, volume, written

Reports = list[tuple[int, int]]


def reports_of(work: Callable[[Callable[[int, int], None]], object]) -> Reports:
    """What `work` reports, after a check that it goes from 0 to all of one total."""
    reports: Reports = []
    work(lambda done, total: reports.append((done, total)))
    counts = [done for done, _ in reports]
    [total] = {total for _, total in reports}
    assert counts[0] == 0 and counts[-1] == total
    assert all(before <= after for before, after in pairwise(counts))
    return reports


@pytest.fixture
def segmentation(models: Path) -> Model:
    return caps_med.load_model("tiny-segmentation", models)


@pytest.fixture
def synthesis(models: Path) -> Model:
    return caps_med.load_model("tiny-synthesis", models)


def test_a_volume_is_counted_in_slices(
    segmentation: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = volume()
    assert reports_of(lambda p: segmentation.segment(image, progress=p)) == [(0, 13), (13, 13)]
    unwatched = segmentation.segment(image)
    monkeypatch.setattr(passes, "PASS_POSITIONS", 24 * 24 * 4)
    found: list[MedicalImage] = []
    reports = reports_of(lambda p: found.append(segmentation.segment(image, progress=p)))
    assert [done for done, _ in reports] == [0, 4, 8, 12, 13]
    np.testing.assert_array_equal(found[0].array, unwatched.array)


@pytest.mark.parametrize(("spatial_dims", "windows"), [(2, 13 * 4), (3, 4)])
def test_what_goes_in_windows_is_counted_in_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spatial_dims: int, windows: int
) -> None:
    model = written(tmp_path, "segmentation", spatial_dims=spatial_dims)
    monkeypatch.setattr(passes, "PASS_POSITIONS", 8**spatial_dims)
    monkeypatch.setattr(passes, "WINDOW", {spatial_dims: 16})
    reports = reports_of(lambda p: model.segment(volume(), progress=p))
    assert reports == [(done, windows) for done in range(windows + 1)]


def test_a_whole_volume_is_one_step(tmp_path: Path) -> None:
    model = written(tmp_path, "segmentation", spatial_dims=3)
    assert reports_of(lambda p: model.segment(volume(), progress=p)) == [(0, 1), (1, 1)]


def test_several_images_are_one_count(synthesis: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = label_volume((18, 20, 3))
    monkeypatch.setattr(passes, "PASS_POSITIONS", 18 * 20)
    assert reports_of(lambda p: synthesis.synthesize(labels, progress=p))[-1] == (3, 3)
    several = reports_of(lambda p: synthesis.synthesize_many(labels, count=2, progress=p))
    assert [done for done, _ in several] == [0, 1, 2, 3, 3, 4, 5, 6]
    between = reports_of(lambda p: synthesis.interpolate(labels, steps=4, progress=p))
    assert between[-1] == (12, 12)


@pytest.mark.parametrize("spatial_dims", [2, 3])
def test_an_interpolation_of_one_slice(tmp_path: Path, spatial_dims: int) -> None:
    """It is that of the whole volume; a 2-D network computes no other."""
    model, labels = written(tmp_path, "synthesis", spatial_dims=spatial_dims), label_volume()
    whole = model.interpolate(labels, 3, 5, 2)
    found: list[SyntheticImage] = []
    reports = reports_of(
        lambda p: found.extend(model.interpolate(labels, 3, 5, 2, slice=4, progress=p))
    )
    assert reports[-1] == (2, 2)
    for one, image in zip(found, whole, strict=True):
        np.testing.assert_array_equal(one.array, image.array[..., 4:5])
        assert one.provenance == image.provenance
    with pytest.raises(InvalidParameter, match="slice=13: must be from 0 to 12"):
        model.interpolate(labels, slice=13)


def test_capsules_are_counted_by_slice(segmentation: Model, synthesis: Model) -> None:
    assert reports_of(lambda p: segmentation.features(volume(), progress=p)) == [(0, 1), (1, 1)]
    labels = label_volume()
    reports = reports_of(lambda p: synthesis.interpolate_features(labels, steps=3, progress=p))
    assert reports[-1] == (3, 3)


def test_a_batch_is_counted_as_a_whole(segmentation: Model, synthesis: Model) -> None:
    def work(progress: Callable[[int, int], None]) -> None:
        with reporting_to(progress):
            segmentation.segmenter.many([volume(), volume()])

    assert reports_of(work)[-1] == (26, 26)


def test_the_callback_can_end_the_work(segmentation: Model) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt(f"after {done} of {total}")

    with pytest.raises(KeyboardInterrupt, match="after 0 of 13"):
        segmentation.segment(volume(), progress=stop)
    assert segmentation.segment(volume()).array.shape == (1, 18, 20, 13)


def test_a_context_ends_where_it_ends(segmentation: Model) -> None:
    reports: Reports = []
    report = reporting_to(lambda done, total: reports.append((done, total)))
    with report, reporting_to(None), part_of(2, 1):
        segmentation.segment(volume())
    assert reports == [(13, 26), (26, 26)]
    segmentation.segment(volume())
    assert len(reports) == 2
