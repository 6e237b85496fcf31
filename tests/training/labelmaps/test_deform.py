"""New label maps: like the originals, equal to none, the same whatever is drawn beside them."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from monai.networks.layers import GaussianFilter
from PIL import Image
from scipy import ndimage
from typer.testing import CliRunner

from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import read_image
from tests.images.dicom_files import IDENTITY, dataset, encoded, placed
from tests.training.axons import write_axons
from training.cli.data import data
from training.data import open_dataset
from training.data.mni152 import load_mni152
from training.evaluation.dice import mean_dice
from training.labelmaps.deform import (
    GENTLE,
    SIMILAR,
    ImplausibleShapes,
    LabelMapSampler,
    _Elastic3D,
    _signed_distance,
    blend,
    deform,
    join,
)
from training.labelmaps.generator import LabelMaker, NewLabel, write_labels
from training.labelmaps.originals import read_originals
from training.labelmaps.phantoms import axon_phantom, axon_phantoms
from training.labelmaps.shapes import Labels, Shapes
from training.labelmaps.symmetry import Mirroring, plausible_mirrorings


@pytest.fixture(scope="module")
def axons() -> Mapping[str, Labels]:
    return {name: phantom.label[0] for name, phantom in axon_phantoms(8, seed=5, size=96)}


@pytest.fixture(scope="module")
def tissue() -> Mapping[str, Labels]:
    """Every sixth slice of the template's middle, half as large."""
    samples = load_mni152().samples[50:110:6]
    return {
        f"slice{k}": np.asarray(sample["label"][0, ::2, ::2], np.uint8)
        for k, sample in enumerate(samples)
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_axons(tmp_path_factory.mktemp("phantoms"), 6, seed=5)


@pytest.mark.parametrize("kind", ["axons", "tissue"])
def test_new_maps_are_like_the_originals_and_none_of_them(
    kind: str, request: pytest.FixtureRequest
) -> None:
    originals: Mapping[str, Labels] = request.getfixturevalue(kind)
    maker = LabelMapSampler(originals, seed=1)
    shapes = Shapes.of(list(originals.values()))
    hows = set()
    drawn = [maker.draw(number) for number in range(10)]
    for label, origin in drawn:
        assert label.shape == next(iter(originals.values())).shape
        assert set(np.unique(label)) <= set(shapes.ids)
        assert shapes.outside(label) == []
        nearest = max(mean_dice(label, one, shapes.foreground) for one in originals.values())
        assert nearest <= SIMILAR
        assert origin.nearest_dice is not None
        assert nearest <= origin.nearest_dice + 1e-4
        assert set(origin.originals) <= set(originals)
        hows.add(origin.how)
    assert len(hows) >= 2, "one way of drawing fails always"
    for (one, _), (other, _) in itertools.pairwise(drawn):
        assert mean_dice(one, other, shapes.foreground) < SIMILAR


def test_a_map_follows_from_seed_and_number_alone(axons: Mapping[str, Labels]) -> None:
    first, again = (LabelMapSampler(axons, seed=3).draw(4) for _ in range(2))
    np.testing.assert_array_equal(first[0], again[0])
    assert first[1] == again[1]
    assert not np.array_equal(first[0], LabelMapSampler(axons, seed=4).draw(4)[0])


def test_bending_keeps_ids_and_the_width_of_thin_structures() -> None:
    lines = np.zeros((96, 96), np.uint8)
    lines[:, 30:33], lines[:, 60:63] = 2, 7
    for seed in range(5):
        label = deform(lines, (0, 2, 7), np.random.default_rng(seed))
        assert set(np.unique(label)) == {0, 2, 7}
        assert 0.6 < (label == 2).sum() / (lines == 2).sum() < 1.7
        assert ndimage.label(label == 2, np.ones((3, 3)))[1] == 1, "torn"


def test_joined_parts_are_whole() -> None:
    one, other = np.zeros((2, 32, 32), np.uint8)
    one[4:8, 2:30], other[24:28, 2:30] = 1, 1
    across = np.indices((32, 32))[0] - 15.5
    label = join(one, other, across)
    np.testing.assert_array_equal(label, one | other)
    assert join(one, one, across) is None
    assert join(one, other, -across) is not None
    assert not join(one, other, -across).any()  # type: ignore[union-attr]


def test_blended_maps_turn_into_each_other() -> None:
    y, x = np.mgrid[:64, :64] - 31.5
    small, large = ((np.hypot(y, x) < r).astype(np.uint8) * 3 for r in (10, 22))
    label = blend(small, large, x, 2.0, (0, 3))
    assert set(np.unique(label)) == {0, 3}
    np.testing.assert_array_equal(label[:, :16], small[:, :16])
    np.testing.assert_array_equal(label[:, 48:], large[:, 48:])


def test_what_may_be_mirrored_is_learned(
    axons: Mapping[str, Labels], tissue: Mapping[str, Labels]
) -> None:
    assert len(plausible_mirrorings(list(axons.values()))) == 8
    heads = plausible_mirrorings(list(tissue.values()))
    assert Mirroring((1,)) in heads, "left and right"
    assert Mirroring((0,)) not in heads, "front and back"
    assert plausible_mirrorings(list(axons.values())[:3]) == [Mirroring()]
    assert plausible_mirrorings(list(axons.values()), "none") == [Mirroring()]


def test_volumes_are_bent_and_recombined_too() -> None:
    rng = np.random.default_rng(2)
    grid = np.indices((24, 20, 12)).astype(float)
    balls = {}
    for k in range(5):
        middle = np.array([12, 10, 6]) + rng.uniform(-2, 2, 3)
        distance = np.linalg.norm(grid - middle.reshape(3, 1, 1, 1), axis=0)
        balls[f"ball{k}"] = ((distance < 5).astype(np.uint8) + (distance < 3)).astype(np.uint8)
    maker = LabelMapSampler(balls)
    for number in range(2):
        label, _ = maker.draw(number)
        assert label.shape == (24, 20, 12)
        assert maker.shapes.outside(label) == []


@pytest.mark.parametrize("thick", [0, 1, 2])
def test_volumes_are_deformed_in_space_not_in_voxels(thick: int) -> None:
    """A layer along thick slices is tilted by the rotation that was asked for, in millimetres."""
    layer = np.zeros((48, 48, 20), np.uint8)
    layer[:, :, 7:13] = 1
    spacing = [1.0, 1.0, 1.0]
    spacing[thick] = 5.0
    for seed in range(4):
        bent = deform(np.moveaxis(layer, 2, thick), (0, 1), np.random.default_rng(seed), GENTLE,
                      spacing)  # fmt: skip
        place = np.argwhere(np.moveaxis(bent, thick, 2)) * (1.0, 1.0, 5.0)
        flat, height = np.c_[place[:, :2], np.ones(len(place))], place[:, 2]
        slope = np.linalg.lstsq(flat, height)[0][:2]
        # two rotations, each of at most 0.1, and what the elastic deformation adds
        assert np.arctan(np.hypot(*slope)) < 2**0.5 * GENTLE.rotation + 0.03
        assert 0.7 < bent.sum() / layer.sum() < 1.4


def test_the_size_of_voxels_follows_their_order(tmp_path: Path) -> None:
    """Thick slices along the first axis, or along the last: the same volume in two orders."""
    rng, grid = np.random.default_rng(3), np.indices((24, 24, 10)).astype(float)
    for k in range(5):
        middle = np.array([12, 12, 5]) + rng.uniform(-1, 1, 3)
        label = np.linalg.norm((grid.T - middle) * (1, 1, 3), axis=-1).T < 7
        volume = nibabel.Nifti1Image(label.astype(np.uint8), np.diag([1.0, 1.0, 3.0, 1.0]))
        if k % 2:
            volume = volume.as_reoriented(np.array([[1, 1], [2, -1], [0, 1]]))
        nibabel.save(volume, tmp_path / f"v{k}.nii.gz")
    maker = LabelMaker.like(read_originals(open_dataset(tmp_path, images=False)))
    assert maker.sampler is not None
    assert [tuple(each) for each in maker.sampler.spacings] == [(1.0, 1.0, 3.0)] * 5


def test_shapes_that_cannot_be_met_are_named() -> None:
    rng = np.random.default_rng(0)
    noise = {str(k): (rng.uniform(size=(32, 32)) < 0.5).astype(np.uint8) for k in range(3)}
    with pytest.raises(ImplausibleShapes, match=r"new label map 0: .*label 1: .*times, allowed"):
        LabelMapSampler(noise, tolerance=0.0).draw(0)


def test_after_an_error_nothing_is_left_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("training.labelmaps.generator.write_image", full)
    with pytest.raises(OSError, match="No space left"):
        write_labels(LabelMaker(5, None, None, size=64), 2, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_spline_model_draws_no_phantom_of_the_same_seed(folder: Path) -> None:
    alone = LabelMaker(5, None, None, size=64)
    phantoms = [axon_phantom(5, case, size=64).label for case in range(4)]
    for number in range(4):
        drawn = alone.draw(number).label.array
        assert drawn.shape == (1, 64, 64)
        assert all(mean_dice(drawn, label, (1,)) < SIMILAR for label in phantoms)
    like = LabelMaker.like(read_originals(open_dataset(folder, images=False)), axons=True).draw(0)
    assert like.origin.how == "spline model"
    assert like.label.array.shape == (1, 64, 64)


def test_ids_above_255_that_only_some_of_the_maps_have() -> None:
    """A map without them is read as bytes."""
    originals: dict[str, Labels] = {}
    for k in range(4):
        label = np.zeros((48, 48), np.uint16 if k % 2 else np.uint8)
        label[12 + k : 28 + k, 14 : 30 + k] = 7
        if k % 2:
            label[28 + k : 36 + k, 14 : 30 + k] = 300
        originals[str(k)] = label
    sampler = LabelMapSampler(originals, tolerance=2)
    drawn = [sampler.draw(number)[0] for number in range(4)]
    assert {int(i) for label in drawn for i in np.unique(label)} == {0, 7, 300}


def test_ctrl_c_does_not_wait_for_the_label_map_that_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a large volume takes minutes."""
    drawn = list[int]()

    def draw(self: LabelMaker, number: int) -> NewLabel:
        signal.raise_signal(signal.SIGINT)
        for _ in range(10):  # Python looks for signals here
            pass
        drawn.append(number)
        raise AssertionError

    monkeypatch.setattr(LabelMaker, "draw", draw)
    with pytest.raises(KeyboardInterrupt):
        write_labels(LabelMaker(0, None, None, size=48), 3, tmp_path / "out")
    assert not drawn
    assert not (tmp_path / "out").exists()


def test_ctrl_c_does_not_wait_for_label_maps_that_threads_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, drawing = threading.Event(), threading.Barrier(2)
    begun, waited, threads = list[int](), list[int](), list[threading.Thread]()

    def draw(self: LabelMaker, number: int) -> NewLabel:
        begun.append(number)
        threads.append(threading.current_thread())
        if drawing.wait(30) == 0:
            os.kill(os.getpid(), signal.SIGINT)
        if not over.wait(30):
            waited.append(number)
        raise AssertionError

    monkeypatch.setattr(LabelMaker, "draw", draw)
    with pytest.raises(KeyboardInterrupt):
        write_labels(LabelMaker(0, None, None, size=48), 5, tmp_path / "out", workers=2)
    over.set()
    for thread in threads:
        thread.join(30)
    assert sorted(begun) == [0, 1] and not waited
    assert not (tmp_path / "out").exists()


def test_the_spline_model_draws_any_id(tmp_path: Path) -> None:
    for name, phantom in axon_phantoms(3, seed=5, size=64):
        ids = phantom.label[0].astype(np.uint16) * 300
        Image.fromarray(ids).save(tmp_path / f"{name}.png")
    originals = read_originals(open_dataset(tmp_path, images=False))
    drawn = LabelMaker.like(originals, tolerance=2, axons=True).draw(0).label.array
    assert set(np.unique(drawn)) == {0, 300}


def run(*arguments: str | Path | float) -> tuple[int, BaseException | None]:
    answer = CliRunner().invoke(data, ["labels", *map(str, arguments)])
    return answer.exit_code, answer.exception


def test_the_command_writes_labels_origins_and_a_sheet(folder: Path, tmp_path: Path) -> None:
    for out, count, workers in (("a", 4, 1), ("b", 2, 2)):
        code, error = run("--like", folder, "--count", count, "--out", tmp_path / out,
                          "--seed", 9, "--workers", workers)  # fmt: skip
        assert code == 0, error
    for name in ("new-00000.png", "new-00001.png"):
        first, second = (tmp_path / out / "labels" / name for out in "ab")
        assert first.read_bytes() == second.read_bytes()
    with Image.open(tmp_path / "a" / "labels" / "new-00003.png") as picture:
        assert picture.mode == "P"
        assert picture.size == (64, 64)
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert [m["file"] for m in manifest["label_maps"]][3] == "labels/new-00003.png"
    assert manifest["label_maps"][0]["originals"][0].startswith("axons-")
    assert read_image(tmp_path / "a" / "sheet.png").array.shape[0] == 3
    code, error = run("--like", tmp_path / "a", "--count", 1, "--out", tmp_path / "c",
                      "--tolerance", 2)  # fmt: skip
    assert code == 0, error  # of label maps alone too
    code, error = run("--kind", "axons", "--size", 48, "--count", 2, "--out", tmp_path / "d")
    assert code == 0, error
    assert len(list((tmp_path / "d" / "labels").iterdir())) == 2


def test_formats_values_and_geometry_are_those_of_the_originals(
    discs: Path, tmp_path: Path
) -> None:
    code, error = run("--like", discs, "--count", 2, "--out", tmp_path / "masks")
    assert code == 0, error
    mask = read_image(tmp_path / "masks" / "labels" / "new-00000.png", kind="labels")
    assert set(np.unique(mask.array)) == {0, 255}
    (tmp_path / "16 bits").mkdir()
    for file in (discs / "labels").iterdir():
        wide = np.asarray(Image.open(file)).astype(np.uint16) * 257
        Image.fromarray(wide).save(tmp_path / "16 bits" / file.name)
    code, error = run("--like", tmp_path / "16 bits", "--count", 1, "--out", tmp_path / "wide")
    assert code == 0, error
    mask = read_image(tmp_path / "wide" / "labels" / "new-00000.png", kind="labels")
    assert set(np.unique(mask.array)) == {0, 65535}
    affine = np.array([[0, -2.0, 0, 5], [1.5, 0, 0, 6], [0, 0, 3.0, 7], [0, 0, 0, 1]])
    (tmp_path / "volumes").mkdir()
    grid = np.indices((20, 18, 10))
    for k in range(3):
        middle = np.array([9 + k, 9, 5]).reshape(3, 1, 1, 1)
        ball = (np.linalg.norm(grid - middle, axis=0) < 4).astype(np.uint8) * 4
        nibabel.save(nibabel.Nifti1Image(ball, affine), tmp_path / "volumes" / f"v{k}.nii.gz")
    code, error = run("--like", tmp_path / "volumes", "--count", 1, "--out", tmp_path / "new",
                      "--tolerance", 1)  # fmt: skip
    assert code == 0, error
    written = nibabel.load(tmp_path / "new" / "labels" / "new-00000.nii.gz")
    np.testing.assert_array_equal(written.affine, affine)
    assert set(np.unique(written.dataobj)) == {0, 4}


def test_an_organ_keeps_its_side_however_voxels_are_stored(tmp_path: Path) -> None:
    """Every second volume runs from right to left, the others from left to right, or all do."""
    rng, grid = np.random.default_rng(1), np.indices((24, 20, 16)).astype(float)
    for k in range(6):
        middle = np.array([7, 11, 8]) + rng.uniform(-1, 1, 3)
        radii = rng.uniform(3.5, 4.5) * rng.uniform(0.8, 1.2, 3)
        label = ((((grid.T - middle) / radii) ** 2).sum(-1).T < 1).astype(np.uint8)
        volume = nibabel.Nifti1Image(label, np.eye(4))
        turned = volume.as_reoriented(np.array([[0, -1], [2, 1], [1, -1]]))
        for folder, stored in (("same", volume), ("mixed", turned if k % 2 else volume)):
            (tmp_path / folder).mkdir(exist_ok=True)
            nibabel.save(stored, tmp_path / folder / f"v{k}.nii.gz")
    found: dict[str, list[Labels]] = {}
    for folder in ("same", "mixed"):
        out = tmp_path / f"new-{folder}"
        code, error = run("--like", tmp_path / folder, "--count", 4, "--out", out)
        assert code == 0, error
        files = [nibabel.load(file) for file in sorted((out / "labels").iterdir())]
        found[folder] = [np.asarray(nibabel.as_closest_canonical(one).dataobj) for one in files]
    assert {nibabel.aff2axcodes(one.affine) for one in files} == {tuple("RAS"), tuple("LIA")}
    for one, other in zip(found["same"], found["mixed"], strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_new_map_is_of_no_patient(tmp_path: Path) -> None:
    """The originals are DICOM and name one."""
    for name, phantom in axon_phantoms(6, seed=5, size=64):
        content = encoded(dataset(phantom.label[0].astype(np.uint8), **IDENTITY, **placed(0.0)))
        (tmp_path / f"{name}.dcm").write_bytes(content)
    out = tmp_path.with_name("new")
    code, error = run("--like", tmp_path, "--out", out, "--count", 2)
    assert code == 0, error
    files = sorted((out / "labels").iterdir())
    assert [file.name for file in files] == ["new-00000.nii.gz", "new-00001.nii.gz"]
    assert read_image(files[0], kind="labels").array.any()


def test_a_folder_without_labels_is_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "images").mkdir(parents=True)
    Image.fromarray(np.zeros((32, 32), np.uint8)).save(data / "images" / "a.png")
    code, error = run("--like", data, "--count", 1, "--out", tmp_path / "out")
    assert code == 1
    assert isinstance(error, InvalidInput)
    assert "holds no label maps" in str(error)
    (data / "labels").mkdir()
    Image.fromarray(np.zeros((32, 32), np.uint8)).save(data / "labels" / "a.png")
    _, error = run("--like", data, "--count", 1, "--out", tmp_path / "out")
    assert "every label map is empty" in str(error)
    noise = np.random.default_rng(0).integers(0, 200, (32, 32), dtype=np.uint8)
    Image.fromarray(noise).save(data / "labels" / "a.png")
    _, error = run("--like", data, "--count", 1, "--out", tmp_path / "out")
    assert "a.png has 199 distinct values that vary like those of a photograph" in str(error)
    _, error = run("--count", 1, "--out", tmp_path / "out")
    assert isinstance(error, InvalidParameter)


def test_the_spline_model_knows_one_class(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "labels").mkdir(parents=True)
    two = np.zeros((48, 48), np.uint8)
    two[10:30, 10:20], two[10:30, 20:30] = 1, 2
    Image.fromarray(two).save(data / "labels" / "a.png")
    _, error = run("--like", data, "--count", 1, "--kind", "axons", "--out", tmp_path / "out")
    assert "pictures of one class" in str(error)


@pytest.mark.parametrize("voxel", [(1.0, 1.0, 1.0), (1.0, 2.0, 3.5)])
def test_noise_is_blurred_as_by_monai(voxel: tuple[float, ...]) -> None:
    noise = np.random.default_rng(0).uniform(-1, 1, (3, 12, 20, 9)).astype(np.float32)
    elastic = _Elastic3D(voxel, sigma_range=(5, 5), magnitude_range=(1, 1))
    elastic.sigma = 5.0
    expected = GaussianFilter(3, [5 / size for size in voxel], 3.0)(torch.from_numpy(noise)[None])
    np.testing.assert_allclose(elastic._blurred(noise), expected[0], atol=1e-7)


@pytest.mark.parametrize("spacing", [None, (1.0, 2.0, 3.5)])
def test_signed_distances_are_those_of_the_whole_map(spacing: tuple[float, ...] | None) -> None:
    random = np.random.default_rng(0)
    for threshold in (0.45, 0.5, 0.53, 0.55):
        mask = ndimage.gaussian_filter(random.random((14, 19, 11)), 2) > threshold
        mask[:, :5] = False  # an object that does not fill its map
        if not mask.any():
            continue
        inside, outside = (
            ndimage.distance_transform_edt(part, sampling=spacing) for part in (mask, ~mask)
        )
        assert np.array_equal(_signed_distance(mask, spacing), inside - outside)
