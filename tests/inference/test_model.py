from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from monai.inferers import sliding_window_inference
from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError

import caps_med
from caps_med.bundles import ModelCard, ModelRepository, write_bundle
from caps_med.errors import (
    InvalidInput,
    InvalidParameter,
    LayerNotFound,
    ModelNotFound,
    NotFinite,
    UnknownLabel,
    WrongTask,
)
from caps_med.images import MedicalImage, SliceStack, encode_image, read_image, with_channels
from caps_med.inference import Model, passes
from caps_med.inference.card_table import card_table
from tests.images.dicom_files import IDENTITY, slice_file


@pytest.fixture(scope="module")
def segmentation(models: Path) -> Model:
    return caps_med.load_model("tiny-segmentation", models)


@pytest.fixture(scope="module")
def synthesis(models: Path) -> Model:
    return caps_med.load_model("tiny-synthesis", models)


def picture(rows: int = 37, columns: int = 45, seed: int = 0) -> MedicalImage:
    pixels = np.random.default_rng(seed).integers(0, 255, (1, rows, columns), dtype=np.uint8)
    return MedicalImage(pixels, format="png")


def label_map(rows: int = 37, columns: int = 45) -> MedicalImage:
    labels = np.zeros((1, rows, columns), np.uint8)
    labels[0, 5:20, 8:30] = 2
    labels[0, 10:15, 12:20] = 7
    return MedicalImage(labels, format="png", kind="labels")


@pytest.mark.parametrize("suffix", ["png", "tif", "npy", "nii.gz"])
def test_format_in_is_format_out(segmentation: Model, tmp_path: Path, suffix: str) -> None:
    source, target = tmp_path / f"in.{suffix}", tmp_path / f"out.{suffix}"
    picture().save(source)
    result = segmentation.segment(source)
    result.save(target)
    again = read_image(target, kind="labels")
    assert again.format == read_image(source).format
    np.testing.assert_array_equal(again.array, result.array)
    assert set(np.unique(again.array)) <= {0, 2, 7}


def test_no_images_have_no_answers(segmentation: Model, synthesis: Model) -> None:
    assert segmentation.segmenter.many([]) == []
    assert synthesis.synthesizer.many([], []) == []


def test_each_answer_of_a_batch_is_of_its_own_patient(segmentation: Model) -> None:
    names = ("Doe^Jane", "Roe^Richard")
    images = [read_image(slice_file(**{**IDENTITY, "PatientName": name})) for name in names]
    for name, found in zip(names, segmentation.segmenter.many(images), strict=True):
        assert found.origin is not None
        assert found.origin.attributes["PatientName"] == name


def test_jpeg_in_gives_png_labels(segmentation: Model, tmp_path: Path) -> None:
    picture().save(tmp_path / "in.jpg")
    assert segmentation.segment(tmp_path / "in.jpg").format == "png"


def test_sizes_that_are_no_multiple_of_eight(segmentation: Model) -> None:
    for rows, columns in ((8, 8), (9, 31), (1, 5), (40, 33)):
        result = segmentation.segment(picture(rows, columns))
        assert result.array.shape == (1, rows, columns)
        assert result.probabilities.array.shape == (3, rows, columns)


def test_neighbours_do_not_matter(segmentation: Model) -> None:
    """Four slices at once equal four slices one by one."""
    rng = np.random.default_rng(3)
    slices = torch.from_numpy(rng.uniform(0, 1, (4, 1, 24, 40)).astype(np.float32))
    together = segmentation.segmenter.lengths(slices)
    alone = torch.cat([segmentation.segmenter.lengths(s[None]) for s in slices])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


def test_passes_do_not_matter(segmentation: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = np.random.default_rng(4).uniform(0, 1, (1, 16, 24, 7)).astype(np.float32)
    image = MedicalImage(volume, format="nifti")
    whole = segmentation.segment(image)
    monkeypatch.setattr(passes, "PASS_POSITIONS", 16 * 24 * 2)
    parts = segmentation.segment(image)
    np.testing.assert_array_equal(whole.array, parts.array)


def test_large_pictures_go_in_windows(segmentation: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    image = picture(96, 120, seed=5)
    whole = segmentation.segment(image)
    monkeypatch.setattr(passes, "PASS_POSITIONS", 64 * 64)
    monkeypatch.setattr(passes, "WINDOW", {2: 64})
    windows = segmentation.segment(image)
    assert windows.array.shape == whole.array.shape
    assert (windows.array == whole.array).mean() > 0.9


def test_volumes_count_millimetres(segmentation: Model) -> None:
    affine = np.diag([1.0, 1.0, 3.0, 1.0])
    array = np.random.default_rng(1).uniform(0, 1, (1, 16, 16, 4)).astype(np.float32)
    result = segmentation.segment(MedicalImage(array, affine, format="nifti"))
    assert result.volume_unit == "mm3"
    assert result.volumes["nucleus"] == pytest.approx(3 * (result.array == 2).sum())
    assert segmentation.segment(picture()).volume_unit == "pixels"


def test_provenance(segmentation: Model) -> None:
    found = segmentation.segment(picture()).provenance.as_dict()
    assert found["model"] == "tiny-segmentation"
    assert found["version"] == 1
    assert found["weights_sha256"] == segmentation.metadata.weights.sha256
    assert found["caps_med_version"] == caps_med.__version__
    assert "seed" not in found


def test_all_zero_image_has_no_nan(segmentation: Model) -> None:
    result = segmentation.segment(MedicalImage(np.zeros((1, 16, 16), np.uint8), format="png"))
    assert np.isfinite(result.probabilities.array).all()


@pytest.mark.parametrize(
    ("value", "message", "repair"),
    [
        (np.nan, "NaN or infinity", lambda a: np.nan_to_num(a, posinf=0, neginf=0)),
        (np.inf, "NaN or infinity", lambda a: np.nan_to_num(a, posinf=0, neginf=0)),
        (-np.inf, "NaN or infinity", lambda a: np.nan_to_num(a, posinf=0, neginf=0)),
        (1e39, r"numbers beyond float32, 1 to 1e\+39: divide", lambda a: a / 10),
        (-1e39, r"numbers beyond float32, -1e\+39 to 1: divide", lambda a: a / 10),
    ],
)
def test_an_image_of_the_caller_is_checked_like_a_file(
    segmentation: Model,
    value: float,
    message: str,
    repair: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> None:
    """And what the message advises is a repair."""
    array = np.ones((1, 16, 16))
    array[0, 3, 4] = value
    with pytest.raises(NotFinite, match=message):
        segmentation.segment(MedicalImage(array, format="npy"))
    segmentation.segment(MedicalImage(repair(array), format="npy"))


def test_a_label_map_of_the_caller_keeps_what_it_knows(synthesis: Model) -> None:
    named = label_map()
    assert synthesis.read(named, "labels") is named
    ids = synthesis.read(MedicalImage(named.array.astype(np.float64)), "labels")
    assert ids.kind == "labels" and np.array_equal(ids.array, named.array)


def test_colour_is_taken_as_grey(segmentation: Model) -> None:
    rng = np.random.default_rng(3)
    grey = rng.integers(0, 256, (1, 16, 16)).astype(np.uint8)
    wanted = segmentation.segment(MedicalImage(grey, format="png"))
    saved_in_colour = MedicalImage(np.repeat(grey, 3, 0), format="png")
    found = segmentation.segment(saved_in_colour)
    np.testing.assert_array_equal(found.array, wanted.array)
    assert found.warnings == ()
    colour = MedicalImage(rng.integers(0, 256, (3, 16, 16)).astype(np.uint8), format="png")
    assert "in colour" in segmentation.segment(colour).warnings[0]
    np.testing.assert_array_equal(
        segmentation.features(colour).layers["seg_caps"],
        segmentation.features(with_channels(colour, 1)).layers["seg_caps"],
    )
    with pytest.raises(InvalidInput, match=r"takes 1 channel; got 2: give one of them"):
        segmentation.segment(MedicalImage(np.zeros((2, 16, 16), np.uint8)))
    with pytest.raises(
        InvalidInput, match=r"got 9: give .*; a volume .* given as \(array, affine\)"
    ):
        segmentation.segment(torch.zeros(9, 16, 16))


def test_same_seed_same_bytes(synthesis: Model) -> None:
    first, again, other = (synthesis.synthesize(label_map(), seed) for seed in (7, 7, 8))
    assert encode_image(first, "png") == encode_image(again, "png")
    assert encode_image(first, "png") != encode_image(other, "png")
    assert first.provenance.as_dict()["seed"] == 7
    assert first.array.shape == (1, 37, 45)


@pytest.mark.parametrize("format", ["png", "tiff", "npy"])
def test_answers_are_float_and_pictures_are_written_in_8_bits(
    synthesis: Model, format: str, tmp_path: Path
) -> None:
    labels = label_map().with_array(label_map().array, format=format)
    answer = synthesis.synthesize(labels, 7)
    assert answer.array.dtype == np.float32
    assert answer.array.min() >= 0 and 0 < answer.array.max() <= 1
    levels = np.rint(answer.array * 255).astype(np.uint8)
    for name in ("a.png", "a.tif", "a.npy"):
        answer.save(tmp_path / name)
        written = read_image(tmp_path / name).array
        in_8_bits = format != "npy" or name == "a.png"
        np.testing.assert_array_equal(written, levels if in_8_bits else answer.array)


def test_a_volume_has_one_noise_vector(synthesis: Model) -> None:
    flat = label_map(16, 24)
    volume = MedicalImage(
        np.repeat(flat.array[..., None], 3, axis=3), format="nifti", kind="labels"
    )
    result = synthesis.synthesize(volume, seed=1)
    assert result.array.shape == (1, 16, 24, 3)
    np.testing.assert_allclose(result.array[..., 0], result.array[..., 2], atol=1e-6)


def test_synthesis_does_not_depend_on_the_passes(
    synthesis: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    ids = rng.choice([0, 2, 7], (1, 16, 24, 5)).astype(np.uint8)
    volume = MedicalImage(ids, format="nifti", kind="labels")
    whole = synthesis.synthesize(volume, seed=1)
    monkeypatch.setattr("caps_med.inference.passes.PASS_POSITIONS", 16 * 24)
    parts = synthesis.synthesize(volume, seed=1)
    np.testing.assert_allclose(whole.array, parts.array, atol=1e-5)


def test_all_zero_label_map_has_no_nan(synthesis: Model) -> None:
    empty = MedicalImage(np.zeros((1, 16, 16), np.uint8), format="npy", kind="labels")
    assert np.isfinite(synthesis.synthesize(empty).array).all()


def test_unknown_label_is_named(synthesis: Model, tmp_path: Path) -> None:
    Image.fromarray(np.full((16, 16), 3, np.uint8)).save(tmp_path / "labels.png")
    with pytest.raises(UnknownLabel, match=r"ids 3; the model knows 0, 2, 7"):
        synthesis.synthesize(tmp_path / "labels.png")


def test_aliases_of_a_label_give_the_same_image(synthesis: Model, tmp_path: Path) -> None:
    card = synthesis.bundle.card.model_copy(update={"aliases": {41: 2}})
    network = synthesis.bundle.load_network()
    model = Model(write_bundle(ModelRepository(tmp_path), "right-too", network, card))
    ids = label_map().array
    other = label_map().with_array(np.where(ids == 2, 41, ids))
    np.testing.assert_array_equal(
        model.synthesize(other, seed=3).array, synthesis.synthesize(label_map(), seed=3).array
    )


def test_aliases_are_further_ids_of_labels(synthesis: Model) -> None:
    for aliases in ({41: 5}, {2: 7}):
        card = synthesis.bundle.card.model_dump() | {"aliases": aliases}
        with pytest.raises(
            ValidationError, match="must map ids that are not labels to ids that are"
        ):
            ModelCard.model_validate(card)


def test_bad_seed_is_refused(synthesis: Model) -> None:
    with pytest.raises(InvalidParameter, match="seed=-1: must be a whole number from 0"):
        synthesis.synthesize(label_map(), seed=-1)
    with pytest.raises(InvalidParameter, match=r"seed=1\.5: must be a whole number"):
        synthesis.synthesize(label_map(), seed=1.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="seed=None: must be a whole number"):
        synthesis.synthesize(label_map(), seed=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="to_seed='2': must be"):
        synthesis.interpolate(label_map(), to_seed="2")  # type: ignore[arg-type]


def test_a_seed_of_numpy_is_a_number_in_json(synthesis: Model) -> None:
    seed: Any = np.int64(7)
    between = synthesis.interpolate(label_map(), seed, to_seed=seed + 1, steps=2)[0]
    made = synthesis.synthesize(label_map(), seed)
    for source in (
        made.provenance, between.provenance, synthesis.features(label_map(), seed=seed).provenance,
    ):  # fmt: skip
        assert json.loads(json.dumps(source.as_dict()))["seed"] == 7


def test_features_are_the_networks_capsules(segmentation: Model, tmp_path: Path) -> None:
    image = picture(24, 40)
    features = segmentation.features(image)
    scaled = segmentation.bundle.card.normalization.apply(image.array)
    with torch.inference_mode():
        wanted = segmentation.segmenter.network.capsules(torch.from_numpy(scaled[None]))
    assert list(features.layers) == [info.name for info in segmentation.layers]
    for name, capsules in wanted.items():
        np.testing.assert_allclose(features.layers[name], capsules[0].numpy(), atol=1e-6)
    features.save(tmp_path / "f.npz")
    with np.load(tmp_path / "f.npz") as stored:
        assert sorted(stored) == sorted(features.arrays())
        np.testing.assert_array_equal(
            stored["lengths/seg_caps"], np.linalg.norm(stored["seg_caps"], axis=1)
        )
    features.save(tmp_path / "folder")
    assert {p.name for p in (tmp_path / "folder").iterdir()} == {
        "features.npz",
        "capsules.png",
        "statistics.json",
    }
    assert features.contact_sheet().array.shape[0] == 3


def test_features_are_written_whole_or_not_at_all(
    segmentation: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(file: IO[bytes], **_: object) -> None:
        file.write(b"PK")
        raise OSError(errno.ENOSPC, "No space left on device")

    features = segmentation.features(picture(24, 40), layer="seg_caps")
    monkeypatch.setattr(np, "savez_compressed", half)
    with pytest.raises(OSError, match="No space left"):
        features.save(tmp_path / "f.npz")
    assert not [*tmp_path.iterdir()]


def test_features_of_one_layer_and_slice(segmentation: Model) -> None:
    volume = MedicalImage(
        np.random.default_rng(0).uniform(0, 1, (1, 20, 28, 6)).astype(np.float32), format="nifti"
    )
    middle = segmentation.features(volume, layer="seg_caps")
    third = segmentation.features(volume, layer="seg_caps", slice=3)
    first = segmentation.features(volume, layer="seg_caps", slice=0)
    assert list(middle.layers) == ["seg_caps"]
    assert middle.layers["seg_caps"].shape == (3, 4, 28, 20)
    np.testing.assert_array_equal(middle.layers["seg_caps"], third.layers["seg_caps"])
    assert not np.array_equal(first.layers["seg_caps"], third.layers["seg_caps"])
    result = SliceStack.from_image(segmentation.segment(volume).probabilities).array
    np.testing.assert_allclose(third.lengths("seg_caps"), result[3], atol=1e-5)


def test_features_of_synthesis(synthesis: Model) -> None:
    one, two = (synthesis.features(label_map(), seed=s).layers["convcaps10"] for s in (1, 2))
    assert one.shape == (1, 4, 37, 45)
    assert not np.array_equal(one, two)


def test_unknown_layer_and_slice_are_refused(segmentation: Model) -> None:
    with pytest.raises(LayerNotFound, match=r"no layer 'x': must be one of conv1, primarycaps"):
        segmentation.features(picture(), layer="x")
    with pytest.raises(InvalidParameter, match="slice=1: must be from 0 to 0"):
        segmentation.features(picture(), slice=1)


def test_each_model_does_its_own_task(segmentation: Model, synthesis: Model) -> None:
    with pytest.raises(WrongTask, match="tiny-synthesis is a synthesis model"):
        synthesis.segment(picture())
    volume_of_numbers = np.full((4, 4, 2), 0.5), np.eye(4)  # no label map either
    for source in (label_map(), volume_of_numbers):
        with pytest.raises(WrongTask, match="tiny-segmentation is a segmentation model"):
            segmentation.synthesize(source)
        with pytest.raises(WrongTask, match="tiny-segmentation is a segmentation model"):
            segmentation.interpolate(source)


def test_unknown_model_is_named(models: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no model 'nope': available are .*tiny-segmentation"):
        caps_med.load_model("nope", models)


def test_an_image_in_memory_is_segmented_like_its_file(segmentation: Model, tmp_path: Path) -> None:
    voxels = np.random.default_rng(0).integers(0, 255, (40, 36, 3)).astype(np.int16)
    affine = np.diag([-1.0, 1.0, 2.0, 1.0])
    volume = nib.Nifti1Image(voxels, affine)
    nib.save(volume, tmp_path / "a.nii.gz")
    expected = np.asarray(segmentation.segment(tmp_path / "a.nii.gz"))
    meta = MetaTensor(voxels[None].astype(np.float32), affine=torch.tensor(affine))
    for source in (volume, (voxels, affine), meta):
        answer = segmentation.segment(source)
        assert np.array_equal(np.asarray(answer), expected)
        np.testing.assert_allclose(answer.to_nibabel().affine, affine)
    assert len(repr(answer)) < 100 and "Segmentation" in repr(answer)


def test_a_network_takes_a_meta_tensor(segmentation: Model) -> None:
    image = torch.rand(1, 1, 32, 40)
    with torch.no_grad():
        expected = segmentation.network(image)
        found = segmentation.network(MetaTensor(image))
        windows = sliding_window_inference(MetaTensor(image), (16, 16), 2, segmentation.network)
    assert torch.equal(torch.as_tensor(found), expected)
    assert windows.shape == expected.shape


def test_the_package_shows_its_api() -> None:
    assert dir(caps_med) == [
        "CapsMedError",
        "MedicalImage", "__version__", "load_model", "read_channels", "read_image",
    ]  # fmt: skip
    assert caps_med.read_image is read_image and caps_med.MedicalImage is MedicalImage


def test_a_notebook_shows_models_and_features(segmentation: Model) -> None:
    assert repr(segmentation) == "<Model tiny-segmentation@1: segmentation, SegCaps>"
    table = segmentation._repr_html_()
    assert "SegCaps, " in table and " parameters" in table and "&#9632;" in table
    features = segmentation.features(picture(), layer="conv1")
    assert repr(features).startswith("<Features: conv1 1 x ")
    assert features._repr_png_().startswith(b"\x89PNG")


def test_names_in_a_models_table_are_escaped(segmentation: Model) -> None:
    card = segmentation.bundle.card.model_copy(update={"labels": {0: "none", 1: "<b>a</b>"}})
    table = card_table("a@1", card, segmentation.network)
    assert "&lt;b&gt;a&lt;/b&gt;" in table and "<b>a" not in table
