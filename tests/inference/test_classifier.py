"""Classification models: image in, probabilities, poses and reconstruction out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import caps_med
from caps_med import preprocessing
from caps_med.bundles import ModelRepository
from caps_med.bundles.export import export_model
from caps_med.bundles.metadata import ClassificationSpec
from caps_med.cli.commands import app
from caps_med.errors import CapsMedError, InvalidInput, InvalidParameter, WrongTask
from caps_med.images import MedicalImage, Normalization, encode_image, read_image
from caps_med.inference.classifier import calibrated
from caps_med.inference.features import FeatureExplorer
from caps_med.networks import ClassificationNetwork, MatrixCapsules, build_network
from caps_med.preprocessing import PicturePreprocessing
from tests.classifiers import CLASSES, NETWORKS, write_classifiers


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classifiers(tmp_path_factory.mktemp("classifiers"))


def picture(rows: int = 20, columns: int = 28, channels: int = 1, seed: int = 0) -> MedicalImage:
    pixels = np.random.default_rng(seed).integers(0, 255, (channels, rows, columns), np.uint8)
    return MedicalImage(pixels, format="png")


@pytest.mark.parametrize("name", NETWORKS)
class TestEachNetwork:
    def test_probabilities_lengths_and_poses_of_each_class(
        self, repository: Path, name: str
    ) -> None:
        model = caps_med.load_model(name, repository)
        found = model.classify(picture())
        assert list(found.probabilities) == list(CLASSES.values())
        assert sum(found.probabilities.values()) == pytest.approx(1)
        assert found.label == max(found.probabilities, key=lambda k: found.probabilities[k])
        assert found.present == (found.label,)
        scores = model.network(torch.from_numpy(picture().array).float()[None] / 255)
        assert list(found.lengths.values()) == pytest.approx(scores[0].tolist())
        assert found.poses.shape == (3, 0 if name == "tiny-cnn" else 16)
        assert found.provenance.model == name

    def test_the_reconstruction_is_that_of_the_answer(self, repository: Path, name: str) -> None:
        model = caps_med.load_model(name, repository)
        found = model.classify(picture())
        if name in ("tiny-cnn", "tiny-capsnet"):
            assert found.reconstruction is None
            fix = "it has no capsules" if name == "tiny-cnn" else "train it with --set recon"
            with pytest.raises(InvalidParameter, match=f"cannot reconstruct images: {fix}"):
                model.manipulator(picture())
            return
        assert found.reconstruction is not None
        moved = model.manipulator(picture())(None, 2, [0.0, 0.25])
        np.testing.assert_allclose(moved.original, found.reconstruction.array, atol=1e-6)
        np.testing.assert_array_equal(moved.reconstructions[0], moved.original)
        assert moved.changes[1] > 0

    def test_a_batch_equals_single_calls(self, repository: Path, name: str) -> None:
        model = caps_med.load_model(name, repository)
        images = [picture(seed=1), picture(31, 17, seed=2), picture(40, 40, 3, seed=3)]
        assert model.classifier.many([]) == []
        for one, image in zip(model.classifier.many(images), images, strict=True):
            alone = model.classify(image)
            assert alone.probabilities == one.probabilities
            np.testing.assert_array_equal(alone.poses, one.poses)
            if alone.reconstruction is not None and one.reconstruction is not None:
                drawn = alone.reconstruction.array
                np.testing.assert_array_equal(drawn, one.reconstruction.array)

    def test_capsules_are_explored(self, repository: Path, name: str) -> None:
        model = caps_med.load_model(name, repository)
        if name == "tiny-cnn":
            with pytest.raises(InvalidParameter, match="has no capsules to show"):
                model.features(picture())
            return
        found = model.features(picture())
        assert list(found.layers) == [layer.name for layer in model.layers]
        last = found.layers["classcaps"]
        np.testing.assert_allclose(last[..., 0, 0], model.classify(picture()).poses, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["tiny-efficient", pytest.param("tiny-matrix", marks=pytest.mark.slow)]
)
def test_it_is_exported_to_onnx(
    repository: Path, tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    bundle = ModelRepository(repository).find(name)
    path = export_model(bundle, "onnx", tmp_path / "model.onnx")
    assert capfd.readouterr() == ("", "")
    batch = np.random.default_rng(0).random((3, 1, 20, 28), np.float32)
    (found,) = onnxruntime.InferenceSession(path).run(None, {"image": batch})
    expected = bundle.load_network()(torch.from_numpy(batch)).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_couplings_of_a_primary_capsule_add_up_to_one_over_the_classes(repository: Path) -> None:
    model = caps_med.load_model("tiny-capsnet", repository)
    found = model.point(picture(), "primarycaps", 8, 8)
    assert found.next_layer == "classcaps" and found.couplings is not None
    assert found.couplings.shape == (2, 3)
    np.testing.assert_allclose(found.couplings.sum(1), 1, atol=1e-5)
    other = model.point(picture(), "primarycaps", 8, 18)
    assert other.couplings is not None and not np.allclose(found.couplings, other.couplings)


def test_a_point_of_a_layer_without_padding_is_the_nearest(repository: Path) -> None:
    """Two kernels of 9, the second with stride 2, leave out 8 pixels before the first position."""
    model = caps_med.load_model("tiny-capsnet", repository)
    found = model.features(picture())
    (rows, columns), capsules = found.size, found.layers["primarycaps"]
    for row, column in ((0, 0), (8, 8), (9, 11), (rows - 1, columns - 1), (rows // 2, 14)):
        r, c = (
            min(max(0, (pixel - 8) // 2), count - 1)
            for pixel, count in zip((row, column), capsules.shape[2:], strict=True)
        )
        pose = model.point(picture(), "primarycaps", row, column).pose
        np.testing.assert_array_equal(pose, capsules[:, :, r, c])
    with pytest.raises(InvalidParameter, match=f"must be 0 to {rows - 1} and 0 to {columns - 1}"):
        model.point(picture(), "primarycaps", rows, 0)


def test_all_positions_of_pixels_that_the_stem_repeats(repository: Path) -> None:
    """Behind the stem, 8 x 8 pixels are 24 x 24, of which a kernel of 9 makes 16 x 16 positions."""
    network = build_network("CapsNet", {"image_size": (8, 8), "width": 4, "primary_types": 2})
    assert isinstance(network, ClassificationNetwork)
    origin = caps_med.load_model("tiny-capsnet", repository).provenance
    explorer, image = FeatureExplorer(network.eval(), origin), torch.rand(1, 1, 8, 8)
    found = explorer(image, network.capsules).layers
    assert [maps.shape[2:] for maps in found.values()] == [(16, 16), (4, 4), (1, 1)]
    for name, pixel, wanted in (("conv1", 4, 9), ("primarycaps", 4, 2), ("classcaps", 7, 0)):
        info = next(info for info in network.layers if info.name == name)
        assert network.nearest_position(info, pixel, found[name].shape[2]) == wanted


def test_a_slice_is_a_whole_number(repository: Path) -> None:
    volume = MedicalImage(np.ones((1, 6, 6, 6), np.float32))
    with pytest.raises(InvalidParameter, match=r"slice=1\.5: must be a whole number"):
        caps_med.load_model("tiny-capsnet", repository).classify(volume, slice=1.5)  # type: ignore[arg-type]


def test_several_classes_may_be_present_or_none(repository: Path) -> None:
    found = caps_med.load_model("tiny-findings", repository).classify(picture())
    assert not found.exclusive
    assert found.probabilities == pytest.approx(found.lengths)
    assert found.present == tuple(n for n, p in found.probabilities.items() if p >= 0.5)


def test_grey_and_colour_are_converted(repository: Path) -> None:
    grey, colours = (caps_med.load_model(f"tiny-{n}", repository) for n in ("efficient", "colours"))
    assert grey.classify(picture(channels=3)).warnings
    as_colour = MedicalImage(np.repeat(picture().array, 3, 0), format="png")
    assert colours.classify(picture()).lengths == colours.classify(as_colour).lengths
    with pytest.raises(InvalidInput, match=r"2 channel\(s\), but 1 are needed"):
        grey.classify(picture(channels=2))


def test_one_slice_of_a_volume_is_classified(repository: Path) -> None:
    model = caps_med.load_model("tiny-efficient", repository)
    volume = MedicalImage(np.random.default_rng(0).integers(0, 255, (1, 28, 20, 5), np.uint8))
    middle, first = model.classify(volume), model.classify(volume, slice=0)
    assert middle.lengths == model.classify(volume, slice=2).lengths != first.lengths
    with pytest.raises(InvalidParameter, match="slice=5: must be from 0 to 4"):
        model.classify(volume, slice=5)


def test_models_of_other_tasks_do_not_classify(models: Path, repository: Path) -> None:
    with pytest.raises(WrongTask, match="segmentation model: choose a model for classification"):
        caps_med.load_model("tiny-segmentation", models).classify(picture())
    with pytest.raises(WrongTask, match="classification model: choose a model for segmentation"):
        caps_med.load_model("tiny-cnn", repository).segment(picture())


class TestPreprocessing:
    """Any size and shape, one code for training and serving."""

    def test_a_picture_of_the_right_size_stays_as_it_is(self) -> None:
        pictures = PicturePreprocessing(size=(20, 28), normalization=Normalization(window=(0, 255)))
        np.testing.assert_array_equal(pictures(picture()), picture().array)

    @pytest.mark.parametrize("fit", ["pad", "crop", "stretch"])
    def test_every_shape_becomes_the_size(self, fit: str) -> None:
        pictures = PicturePreprocessing.model_validate({"size": (20, 28), "fit": fit})
        for size in ((1, 1), (1, 300), (300, 1), (19, 29), (500, 333)):
            found = pictures(picture(*size))
            assert found.shape == (1, 20, 28) and found.dtype == np.uint8

    def test_proportions_are_kept_but_by_stretching(self) -> None:
        white = MedicalImage(np.full((1, 10, 10), 255, np.uint8))
        shares = {}
        for fit in ("pad", "crop", "stretch"):
            pictures = PicturePreprocessing.model_validate(
                {"size": (20, 40), "fit": fit, "normalization": {"window": (0, 255)}}
            )
            found = pictures(white)
            shares[fit] = (found == 255).mean()
            if fit == "pad":
                assert (found[0, :, 10:30] == 255).all() and not found[0, :, :10].any()
        assert shares == {"pad": 0.5, "crop": 1.0, "stretch": 1.0}

    def test_a_crop_shows_the_middle(self) -> None:
        ramp = MedicalImage(np.tile(np.arange(60, dtype=np.uint8), (1, 20, 1)))
        pictures = PicturePreprocessing(
            size=(20, 20), fit="crop", normalization=Normalization(window=(0, 255))
        )
        np.testing.assert_array_equal(pictures(ramp)[0, 0], np.arange(20, 40))

    def test_a_crop_of_a_line_enlarges_little_more_than_it_shows(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The line as a whole would take 1.7 GB: a file of a few bytes could end a service."""
        sizes: list[tuple[int, int]] = []
        enlarge = preprocessing.resize

        def noting(maps: Tensor, size: tuple[int, int]) -> Tensor:
            sizes.append(size)
            return enlarge(maps, size)

        monkeypatch.setattr(preprocessing, "resize", noting)
        line = np.zeros((1, 1, 65536), np.uint8)
        line[..., 32767:32769] = 255
        pictures = PicturePreprocessing(
            size=(80, 80), fit="crop", normalization=Normalization(window=(0, 255))
        )
        found = pictures(MedicalImage(line))[0]
        assert (found == 255).all()
        assert [rows for rows, _ in sizes] == [80] and sizes[0][1] <= 17 * 80

    def test_sixteen_bits_are_brought_to_the_same_scale(self) -> None:
        pictures = PicturePreprocessing(size=(20, 28), normalization=Normalization())
        eight = picture()
        sixteen = MedicalImage(eight.array.astype(np.uint16) * 200 + 1000)
        difference = pictures(eight).astype(int) - pictures(sixteen)
        assert abs(difference).max() <= 1

    @pytest.mark.parametrize("format", ["png", "tiff"])
    @pytest.mark.parametrize("channels", [1, 3])
    def test_a_picture_that_was_saved_with_16_bits_is_the_same(
        self, format: str, channels: int
    ) -> None:
        """PNG and TIFF say which value is white; a window over 8 bits means black to white."""
        pictures = PicturePreprocessing.model_validate(
            {"size": (20, 28), "channels": channels, "normalization": {"window": (0, 255)}}
        )
        eight = picture(channels=channels)
        sixteen = replace(eight, array=eight.array.astype(np.uint16) * 257)
        read = [read_image(encode_image(image, format)) for image in (eight, sixteen)]
        assert [image.white for image in read] == [None, 65535]
        np.testing.assert_array_equal(pictures(read[1]), pictures(read[0]))
        np.testing.assert_array_equal(pictures(read[0]), eight.array)

    def test_other_windows_and_formats_keep_their_numbers(self) -> None:
        window = {"size": (2, 2), "normalization": {"window": (0, 1000)}}
        deep = MedicalImage(np.array([[[0, 250], [500, 1000]]], np.uint16), format="png")
        png = read_image(encode_image(deep, "png"))
        wanted = [[[0, 64], [128, 255]]]
        assert PicturePreprocessing.model_validate(window)(png).tolist() == wanted
        eight_bits = {"size": (2, 2), "normalization": {"window": (0, 255)}}
        nrrd = read_image(encode_image(deep, "npy"))
        assert nrrd.white is None
        pictures = PicturePreprocessing.model_validate(eight_bits)
        assert pictures(nrrd).tolist() == [[[0, 250], [255, 255]]]

    @pytest.mark.parametrize("foreground_only", [False, True])
    def test_channels_have_a_scale_each_where_the_card_says_so(self, foreground_only: bool) -> None:
        normalization = {
            "lower": 0, "upper": 100, "per_channel": True, "foreground_only": foreground_only
        }  # fmt: skip
        pictures = PicturePreprocessing.model_validate(
            {"size": (20, 28), "channels": 3, "normalization": normalization}
        )
        colours = picture(channels=3)
        scales = np.array([1, 10, 100], np.uint16)[:, None, None]
        scaled = replace(colours, array=colours.array * scales)
        difference = pictures(colours).astype(int) - pictures(scaled)
        assert abs(difference).max() <= 1


class TestCalibration:
    spec = ClassificationSpec(pictures=PicturePreprocessing(), temperature=0.5)

    def test_of_a_softmax_it_is_the_softmax_of_the_logits_over_the_temperature(self) -> None:
        logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).double()
        expected = (logits / 0.5).softmax(1)
        torch.testing.assert_close(calibrated(logits.softmax(1), self.spec), expected)

    def test_lengths_of_zero_give_finite_probabilities(self) -> None:
        found = calibrated(torch.zeros(1, 3), self.spec)
        torch.testing.assert_close(found, torch.full((1, 3), 1 / 3).double())


class TestCommand:
    def run(self, repository: Path, *arguments: str) -> str:
        command = ["classify", "--models", str(repository), *arguments]
        result = CliRunner().invoke(app, command, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    def test_a_table_json_and_a_file(self, repository: Path, tmp_path: Path) -> None:
        picture().save(tmp_path / "a.png")
        given = ("--model", "tiny-efficient", str(tmp_path / "a.png"))
        expected = caps_med.load_model("tiny-efficient", repository).classify(picture())
        table = self.run(repository, *given, "--out", str(tmp_path / "answer.json"))
        assert all(name in table for name in CLASSES.values())
        assert f"tiny-efficient@1: {expected.label}" in table
        numbers = json.loads(self.run(repository, *given, "--json"))
        assert numbers == json.loads((tmp_path / "answer.json").read_text())
        assert numbers["label"] == expected.label
        assert [c["probability"] for c in numbers["classes"]] == sorted(
            expected.probabilities.values(), reverse=True
        )
        with pytest.raises(CapsMedError, match="exists: name another file, or add --overwrite"):
            self.run(repository, *given, "--out", str(tmp_path / "answer.json"))
        with pytest.raises(InvalidParameter, match=r"must be a \.json file"):
            self.run(repository, *given, "--out", str(tmp_path / "answer.png"))


class TestInspection:
    def test_everything_on_the_way_to_the_classes(self, repository: Path) -> None:
        model = caps_med.load_model("tiny-capsnet", repository)
        found = model.inspect(picture())
        np.testing.assert_allclose(found.input, picture().array / 255, atol=1e-6)
        weight = model.network.get_submodule("conv1").get_parameter("weight")
        np.testing.assert_array_equal(found.kernels, weight.detach().numpy())
        np.testing.assert_allclose(found.maps.clip(min=0), found.layers["conv1"][0], atol=1e-6)
        for name, capsules in model.features(picture()).layers.items():
            np.testing.assert_allclose(found.layers[name], capsules, atol=1e-6)
        arrays = found.arrays()
        lengths = np.linalg.norm(found.layers["primarycaps"], axis=1)
        np.testing.assert_allclose(arrays["lengths/primarycaps"], lengths, atol=1e-6)
        types, _, rows, columns = found.layers["primarycaps"].shape
        steps = arrays["couplings/primarycaps"]
        assert steps.shape == (3, types, 3, rows, columns)
        np.testing.assert_allclose(steps[0], 1 / 3, atol=1e-6)  # routing has not begun
        np.testing.assert_allclose(steps.sum(2), 1, atol=1e-5)
        last = model.point(picture(), "primarycaps", 8 + 2, 8 + 4).couplings
        assert last is not None
        np.testing.assert_allclose(steps[-1][..., 1, 2], last, atol=1e-6)

    def test_matrix_capsules_have_activations_and_assignments(self, repository: Path) -> None:
        model = caps_med.load_model("tiny-matrix", repository)
        found = model.inspect(picture())
        scores = list(model.classify(picture()).lengths.values())
        np.testing.assert_allclose(found.lengths["classcaps"].ravel(), scores, atol=1e-6)
        steps = found.couplings["convcaps2"]
        np.testing.assert_allclose(steps[0], 1 / 3, atol=1e-6)
        np.testing.assert_allclose(steps.sum(2), 1, atol=1e-5)
        network = model.network
        assert isinstance(network, MatrixCapsules)
        below = network._computed(network._first(torch.from_numpy(found.input)[None]))["convcaps2"]
        whole = network.classcaps.route(below).assignments[0, :, :, 0]
        types, _, rows, columns = found.layers["convcaps2"].shape
        last = whole.reshape(types, rows, columns, 3).moveaxis(-1, 1).detach().numpy()
        np.testing.assert_allclose(steps[-1], last, atol=1e-6)

    def test_one_step_of_self_attention(self, repository: Path) -> None:
        found = caps_med.load_model("tiny-efficient", repository).inspect(picture())
        assert found.couplings["primarycaps"].shape == (1, 16, 3, 1, 1)
        np.testing.assert_allclose(found.couplings["primarycaps"].sum(2), 1, atol=1e-5)

    def test_a_convolutional_network_has_maps_alone(self, repository: Path) -> None:
        found = caps_med.load_model("tiny-cnn", repository).inspect(picture())
        assert set(found.arrays()) == {"input", "convolution/kernels", "convolution/maps"}
        assert found.maps.shape[0] == len(found.kernels) == 32


@pytest.fixture
def no_warnings() -> Iterator[None]:
    """Warnings are errors, also those that PyTorch gives once."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    torch.set_warn_always(before)


class TestDrawing:
    @pytest.mark.usefixtures("no_warnings")
    def test_a_pose_is_drawn_as_the_answer_is(self, repository: Path) -> None:
        model = caps_med.load_model("tiny-efficient", repository)
        answer = model.classify(picture())
        capsule = list(answer.lengths).index(answer.label)
        own = answer.poses[capsule]
        drawn = model.draw(capsule, [own, [0.0, *own[1:]]])
        assert answer.reconstruction is not None
        np.testing.assert_allclose(drawn.reconstructions[0], answer.reconstruction.array, atol=1e-6)
        moved = model.manipulator(picture())(capsule, 0, [-float(own[0])])
        np.testing.assert_allclose(drawn.reconstructions[1], moved.reconstructions[0], atol=1e-6)
        assert drawn.strip().array.shape == (1, 20, 56)

    @pytest.mark.parametrize(
        ("capsule", "poses", "what"),
        [
            (3, [[0.0] * 16], "capsule=3: must be from 0 to 2"),
            (-1, [[0.0] * 16], "capsule=-1: must be from 0 to 2"),
            (0, [], "0 poses: must be 1 to 256"),
            (0, [[0.0] * 16] * 257, "257 poses: must be 1 to 256"),
            (0, [[0.0] * 15], "a pose of 15 atoms: the capsules have 16"),
            (0, [[float("nan")] * 16], "each atom must be from -1000 to 1000"),
            (0, [[1e30] * 16], "each atom must be from -1000 to 1000"),
        ],
    )
    def test_what_cannot_be_drawn(
        self, repository: Path, capsule: int, poses: list[list[float]], what: str
    ) -> None:
        with pytest.raises(InvalidParameter, match=what):
            caps_med.load_model("tiny-efficient", repository).draw(capsule, poses)

    def test_without_a_decoder(self, repository: Path) -> None:
        with pytest.raises(InvalidParameter, match="cannot reconstruct images: it has no capsules"):
            caps_med.load_model("tiny-cnn", repository).draw(0, [[0.0]])
