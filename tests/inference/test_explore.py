"""Between two seeds, atoms that move, one point of a layer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from caps_med.bundles import (
    ModelCard,
    ModelRepository,
    NetworkSpec,
    WeightsProvenance,
    write_bundle,
)
from caps_med.errors import InvalidParameter, LayerNotFound, WrongTask
from caps_med.images import MedicalImage, to_uint8
from caps_med.inference import load_model
from caps_med.inference.features import Features
from caps_med.inference.passes import cancelled_unless
from caps_med.inference.point import InputRecorder
from caps_med.inference.provenance import AnswerProvenance
from caps_med.inference.strip import ATOMS, strip
from caps_med.inference.synthesizer import interpolate_noise
from caps_med.layers import ConvCapsule, DeconvCapsule
from caps_med.networks import SegCaps, build_network, one_hot
from caps_med.routing import couplings


@pytest.fixture
def labels() -> MedicalImage:
    ids = np.zeros((1, 21, 30), np.uint8)
    ids[0, 4:12, 6:20] = 2
    return MedicalImage(ids, format="png", kind="labels")


@pytest.fixture
def image() -> MedicalImage:
    pixels = np.random.default_rng(3).integers(0, 255, (1, 21, 30), dtype=np.uint8)
    return MedicalImage(pixels, format="png")


def test_the_ends_are_the_seeds_images(models: Path, labels: MedicalImage) -> None:
    model = load_model("tiny-synthesis", models)
    images = model.interpolate(labels, 3, 11, 5)
    assert np.array_equal(images[0].array, model.synthesize(labels, 3).array)
    assert np.array_equal(images[-1].array, model.synthesize(labels, 11).array)
    assert [i.provenance.position for i in images] == [0, 0.25, 0.5, 0.75, 1]
    assert not np.array_equal(images[2].array, images[0].array)
    picture = strip(images, "axial")
    assert picture.array.shape == (1, 21, 150)
    assert np.array_equal(picture.array[..., :30], to_uint8(images[0].array))
    for steps in (1, 2.5):
        with pytest.raises(InvalidParameter, match=f"steps={steps}: must be"):
            model.interpolate(labels, 3, 11, steps)  # type: ignore[arg-type]
    for count in (-1, 1.5):
        with pytest.raises(InvalidParameter, match=f"count={count}: must be"):
            model.synthesize_many(labels, 3, count)  # type: ignore[arg-type]


def test_features_are_saved_where_files_can_be(tmp_path: Path) -> None:
    origin = AnswerProvenance("x", 1, "SegCaps", "0" * 64, "")
    found = Features({"conv1": np.ones((1, 2, 4, 4), np.float32)}, origin, (4, 4))
    (tmp_path / "file").write_text("")
    for name, message in {
        "file": "is a file: give the name of a folder",
        "file/below": "cannot write .*below': Not a directory",
        "a" * 300: "cannot write .*aaa': File name too long",
        "a" * 300 + ".npz": "cannot write .*aaa.npz: File name too long",
        "none/f.npz": "there is no folder .*none; create it first",
        "zero\0": "no folder can have such a name",
        "zero\0.npz": "no file can have such a name",
    }.items():
        with pytest.raises(InvalidParameter, match=message):
            found.save(tmp_path / name)
    found.save(tmp_path / "capitals.NPZ")
    assert (tmp_path / "capitals.NPZ").is_file()


def test_no_step_is_a_leap() -> None:
    """Each step changes the image by less than a third of what the whole way does."""
    model = load_model("brain-t1-synthesis")
    label = np.zeros((1, 48, 48), np.uint8)
    for value, edge in ((2, 8), (3, 14), (1, 20)):
        label[0, edge:-edge, edge:-edge] = value
    images = model.interpolate(MedicalImage(label, kind="labels"), 3, 11, 9)
    arrays = [image.array.astype(np.float32) for image in images]
    steps = [float(np.abs(b - a).mean()) for a, b in pairwise(arrays)]
    assert max(steps) < float(np.abs(arrays[-1] - arrays[0]).mean()) / 3


def test_capsules_along_the_way(models: Path, labels: MedicalImage) -> None:
    model = load_model("tiny-synthesis", models)
    found = model.interpolate_features(labels, 3, 11, 5)
    last = model.layers[-1].name
    for at, seed in ((0, 3), (-1, 11)):
        alone = model.features(labels, last, seed=seed).layers[last]
        assert np.array_equal(found[at].layers[last], alone)
    assert [f.provenance.position for f in found] == [0, 0.25, 0.5, 0.75, 1]
    images = model.interpolate(labels, 3, 11, 5)
    picture = strip(images, "axial", found).array
    assert picture.shape == (1, (1 + 1 + ATOMS) * 21, 150)
    assert np.array_equal(picture[:, :21], strip(images, "axial").array)
    lengths = np.rint(np.clip(found[2].lengths(last)[0], 0, 1) * 255)
    assert np.array_equal(picture[0, 21:42, 60:90], lengths)
    rows = picture[0, 42:].reshape(ATOMS, 21, 150).astype(float)
    assert all(np.abs(row - 127.5).max() == 127.5 for row in rows)


def test_a_slice_is_that_of_the_volume_where_slices_are_resampled(tmp_path: Path) -> None:
    """Slices 3 mm apart are three of the network's each; the slice is counted in the volume."""
    torch.manual_seed(0)
    arguments = {"spatial_dims": 3, "atoms": 2}
    card = ModelCard(
        task="synthesis",
        network=NetworkSpec(name="CapsPix2Pix", arguments=arguments),
        labels={0: "background", 1: "organ"},
        spacing_mm=(1.0, 1.0),
        slice_mm=1.0,
        resample_slices=True,
        provenance=WeightsProvenance(command="pytest", data="none"),
    )
    network = build_network("CapsPix2Pix", arguments)
    write_bundle(ModelRepository(tmp_path), "deep", network, card)
    model = load_model("deep", tmp_path)
    ids = np.zeros((1, 16, 16, 6), np.uint8)
    ids[:, 4:12, 4:12, 2:4] = 1
    volume = MedicalImage(ids, np.diag([1, 1, 3.0, 1]), kind="labels", format="nifti")
    layer = model.layers[-1].name
    prepared = model.synthesizer.prepare(volume)
    with torch.inference_mode():
        noise = model.synthesizer.noise(0)
        capsules = model.synthesizer.network.capsules(
            F.pad(one_hot(prepared.slices.movedim(0, 1)[None], 1), (0, 0, 0, 0, 0, 6)), noise
        )[layer]
    for number, of_network in ((0, 0), (4, 12), (None, 9)):
        wanted = capsules[0, :, :, of_network].numpy()
        found = model.features(volume, layer, number).layers[layer]
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        between = model.interpolate_features(volume, 0, 1, 2, number)[0].layers[layer]
        np.testing.assert_allclose(between, wanted, atol=1e-5)
    with pytest.raises(InvalidParameter, match="slice=6: must be from 0 to 5"):
        model.features(volume, layer, 6)


def test_the_way_is_a_great_circle() -> None:
    start, end = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 4.0]])
    middle = interpolate_noise(start, end, 0.5)
    assert torch.allclose(middle, torch.full((1, 2), 3 / 2**0.5))
    assert torch.equal(interpolate_noise(start, end, 1.0), end)
    assert torch.allclose(interpolate_noise(start, 3 * start, 0.5), 2 * start)


def test_a_moved_atom_changes_the_reconstruction(models: Path, image: MedicalImage) -> None:
    model = load_model("tiny-segmentation", models)
    move = model.manipulator(image)
    slices = model.segmenter.prepare(image).slices
    seen = int(model.segmenter.lengths(slices).argmax(1).flatten().mode().values)
    found = move(seen, 1, [-0.25, 0.0, 0.25])
    assert found.reconstructions.shape == (3, 1, 21, 30)
    assert found.changes[1] == 0
    assert min(found.changes[0], found.changes[2]) > 1e-5
    sheet = move.sheet(seen).array
    assert sheet.shape[0] == 3 and sheet.shape[1] > 4 * 21 * 4 and sheet.shape[2] > 7 * 30 * 4


def test_a_sheet_shows_the_reconstructions_enlarged_and_their_differences(
    models: Path, image: MedicalImage
) -> None:
    """Without a shift nothing differs: white; the pictures are those of the call."""
    model = load_model("tiny-segmentation", models)
    move, deltas = model.manipulator(image), [-0.25, 0.0, 0.25]
    slices = model.segmenter.prepare(image).slices
    seen = int(model.segmenter.lengths(slices).argmax(1).flatten().mode().values)
    sheet = move.sheet(seen, deltas).array
    wanted = np.rint(move(seen, 0, deltas).reconstructions[2, 0].clip(0, 1) * 255)
    factor = 5  # 21 x 30 pixels become 105 x 150, which are at least 96
    last = sheet[:, 44 : 44 + 105 : factor, -4 - 150 : -4 : factor]
    np.testing.assert_array_equal(last, wanted.astype(np.uint8)[None].repeat(3, 0))
    changes = move.sheet(seen, deltas, differences=True).array
    middle = changes[:, 44 + 50, -4 - 150 - 4 - 75]
    assert middle.tolist() == [247, 247, 247]


def test_a_capsule_is_named_by_its_label_or_its_id(models: Path, image: MedicalImage) -> None:
    move = load_model("tiny-segmentation", models).manipulator(image)
    assert [move.chosen(text) for text in ("background", "nucleus", "Membrane")] == [0, 1, 2]
    assert [move.chosen(text) for text in ("0", "2", "7")] == [0, 1, 2]
    with pytest.raises(InvalidParameter, match=r"'1' is not one .*: 0 background, 2 nucleus, 7"):
        move.chosen("1")
    move.labels = {1: "axon", 2: "1"}
    with pytest.raises(InvalidParameter, match="'1' is the name or id of several"):
        move.chosen("1")


@pytest.mark.parametrize(
    ("capsule", "atom", "deltas", "message"),
    [
        (3, 0, [0.1], "capsule=3: must be from 0 to 2"),
        (0, 4, [0.1], "atom=4: must be from 0 to 3"),
        (0, 0, [], "0 deltas"),
        (0, 0, [float("nan")], "deltas="),
        (0, 0, [1.5], "deltas="),
    ],
)
def test_what_cannot_be_moved(
    models: Path, image: MedicalImage, capsule: int, atom: int, deltas: list[float], message: str
) -> None:
    move = load_model("tiny-segmentation", models).manipulator(image)
    with pytest.raises(InvalidParameter, match=message):
        move(capsule, atom, deltas)


def test_a_generator_reconstructs_nothing(models: Path, image: MedicalImage) -> None:
    with pytest.raises(WrongTask, match="synthesis"):
        load_model("tiny-synthesis", models).manipulator(image)


@pytest.mark.parametrize("task", ["segmentation", "synthesis"])
def test_a_point_is_that_of_the_whole_layer(
    models: Path, image: MedicalImage, labels: MedicalImage, task: str
) -> None:
    """Every layer, in the corner and inside: poses, and couplings as the whole maps give them."""
    model = load_model(f"tiny-{task}", models)
    source = labels if task == "synthesis" else image
    whole = model.features(source)
    for above, layer in zip([*model.layers[1:], None], model.layers, strict=True):
        for row, column in ((0, 0), (13, 22), (20, 29)):
            point = model.point(source, layer.name, row, column)
            at = (row // layer.stride, column // layer.stride)
            assert np.array_equal(point.pose, whole.layers[layer.name][:, :, at[0], at[1]])
            if above is None:
                assert point.couplings is None
                continue
            assert point.next_layer == above.name
            assert point.couplings is not None
            assert point.couplings.shape == (layer.types, above.types)
            if task == "segmentation":
                assert np.allclose(point.couplings.sum(1), 1, atol=1e-5)


def test_couplings_of_a_crop_are_those_of_the_whole_map(models: Path, image: MedicalImage) -> None:
    model = load_model("tiny-segmentation", models)
    layer = model.network.get_submodule("conv_cap_2_2")
    assert isinstance(layer, ConvCapsule)
    below = torch.from_numpy(model.features(image, "conv_cap_2_1").layers["conv_cap_2_1"])
    padded = F.pad(below, [0, 1, 0, 1])[None]  # the network sees 24 x 32 pixels of 21 x 30
    with torch.inference_mode():
        whole = couplings(layer.votes(padded), layer.bias, layer.routing)
    point = model.point(image, "conv_cap_2_1", 9, 14)
    assert point.couplings is not None
    assert np.allclose(point.couplings, whole[0, :, :, 2, 3], atol=1e-5)


def test_couplings_of_normalized_votes_are_those_of_the_whole_map() -> None:
    """Their scale is that of all positions, of which a crop has some."""
    network = SegCaps(2, 1, 3, atoms=4, normalize=True).eval()
    picture = torch.rand(1, 1, 48, 64)
    picture[..., :32] *= 0.1
    for layer, above in pairwise(network.layers):
        module = network.get_submodule(above.name)
        assert isinstance(module, ConvCapsule | DeconvCapsule)
        given: list[torch.Tensor] = []
        module.register_forward_pre_hook(lambda _, inputs, into=given: into.append(inputs[0]))
        with torch.inference_mode(), InputRecorder(network, layer.name) as recorder:
            found = network.capsules(picture)
            whole = couplings(module.votes(given[0]), module.bias, module.routing)
        arrays = {name: capsules[0].numpy() for name, capsules in found.items()}
        provenance = AnswerProvenance("segcaps", 1, "0" * 64, "none")
        point = recorder.point(Features(arrays, provenance, (48, 64)), 12, 50, None)
        assert point.couplings is not None
        wanted = whole[0, : layer.types, :, 12 // above.stride, 50 // above.stride]
        np.testing.assert_allclose(point.couplings, wanted, atol=1e-5)


def test_a_point_outside(models: Path, image: MedicalImage) -> None:
    model = load_model("tiny-segmentation", models)
    with pytest.raises(InvalidParameter, match="row=-1"):
        model.point(image, "seg_caps", -1, 0)
    deep = max(model.layers, key=lambda info: info.stride)
    for row, column in ((21, 0), (0, 30)):  # the network sees 24 x 32 pixels of 21 x 30
        with pytest.raises(InvalidParameter, match=f"row={row}.*0 to 20 and 0 to 29 in this slice"):
            model.point(image, deep.name, row, column)
    with pytest.raises(LayerNotFound, match="no layer"):
        model.point(image, "nowhere", 0, 0)


def test_what_others_ask_meanwhile_is_not_in_the_answer(models: Path, image: MedicalImage) -> None:
    """A job gives way between its steps; another thread then runs the same network."""
    model = load_model("tiny-segmentation", models)
    layer = model.layers[2].name
    theirs = image.with_array(255 - image.array)
    alone, other = (model.point(one, layer, 8, 8).couplings for one in (image, theirs))

    def give_way() -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(model.features, theirs).result()

    with cancelled_unless(lambda: True, give_way):
        found = model.point(image, layer, 8, 8).couplings
    assert alone is not None and other is not None and (alone != other).any()
    np.testing.assert_array_equal(found, alone)
