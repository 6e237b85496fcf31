"""Awkward folders as labs have them: accents, strangers, instances, grey saved in colour."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import nibabel
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from skimage.measure import label as connected_components

from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage, read_image
from tests.training.data.pairs import draw_pairs, nnunet, npy_stacks, two_folders, write
from training.data import Dataset, load_source, open_dataset
from training.data.classified import open_classified
from training.data.instances import as_classes, touching_borders
from training.data.interpretation import Interpretation
from training.data.layouts.naming import written_suffix
from training.data.opening import open_any

PAIRS = draw_pairs(6)
Ids = NDArray[np.uint16]
#: Bytes in a pipe of a test.
_IN_PIPE = 9000


def codes(dataset: Dataset) -> list[tuple[str, str]]:
    return [(found.code, found.file) for found in dataset.findings]


def nuclei(count: int, seed: int, size: int = 96) -> Ids:
    """`count` objects with the ids 1, 2, ..., some of which touch."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((size, size), np.uint16)
    places = rng.permutation((size // 12) * (size // 8))[:count]
    for number, place in enumerate(places, start=1):
        row, column = 12 * (place // (size // 8)), 8 * (place % (size // 8))
        ids[row : row + 8, column : column + 8] = number
    return ids


def save_cases(root: Path, labels: Sequence[NDArray[np.integer]]) -> Path:
    rng = np.random.default_rng(0)
    for number, ids in enumerate(labels):
        noise = rng.integers(0, 99, ids.shape, np.uint8)
        write(noise + np.uint8(100) * (ids > 0), root / "images" / f"{number}.png")
        write(ids, root / "labels" / f"{number}.tif", "labels")
    return root


@pytest.fixture
def instances(tmp_path: Path) -> Path:
    """Six label maps of 9 to 44 nuclei."""
    return save_cases(tmp_path, [nuclei(9 + 7 * i, i) for i in range(6)])


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")])
@pytest.mark.parametrize("layout", ["two folders", "nnU-Net", "list", "one folder"])
def test_composed_and_decomposed_names_pair(
    layout: str, forms: tuple[str, str], tmp_path: Path
) -> None:
    for number, (image, mask) in enumerate(PAIRS.values()):
        one, other = (unicodedata.normalize(form, f"Müller-ä{number}") for form in forms)  # type: ignore[arg-type]
        assert one != other
        folders = {"nnU-Net": ("imagesTr", "labelsTr"), "one folder": ("", "")}
        images, labels = (tmp_path / each for each in folders.get(layout, ("images", "labels")))
        write(image, images / f"{one}{'_0000' if layout == 'nnU-Net' else ''}.png")
        write(mask, labels / f"{other}{'_seg' if layout == 'one folder' else ''}.png", "labels")
    data = tmp_path
    if layout == "list":  # says all names in one form
        names = [unicodedata.normalize(forms[0], f"Müller-ä{n}") for n in range(len(PAIRS))]  # type: ignore[arg-type]
        entries = [{"image": f"images/{n}.png", "label": f"labels/{n}.png"} for n in names]
        data = tmp_path / "list.json"
        data.write_text(json.dumps(entries))
    dataset = open_dataset(data)
    assert codes(dataset) == [] and len(dataset.cases) == 6
    for case, (image, mask) in zip(dataset.cases, PAIRS.values(), strict=True):
        found, label = dataset.read(case)
        np.testing.assert_array_equal(found.array[0], image)
        np.testing.assert_array_equal(label.array[0], mask)
        assert unicodedata.is_normalized("NFC", case.name)


def test_the_suffix_of_a_decomposed_name(tmp_path: Path) -> None:
    path = tmp_path / unicodedata.normalize("NFD", "Müller.nii.gz")
    assert written_suffix(path) == ".nii.gz"


def test_names_that_are_not_utf_8_can_be_written_into_tables(tmp_path: Path) -> None:
    """As of files from an old archive; `evaluate` ended once all cases were scored."""
    odd = tmp_path / os.fsdecode(b"d\xe9")
    for number, kind in enumerate(("images", "labels", "other")):
        (odd / kind).mkdir(parents=True)
        for name in (b"n\xe9", b"m"):
            file = odd / kind / os.fsdecode(name + b".png")
            Image.fromarray(np.full((9, 9), number, np.uint8)).save(file)
    dataset = open_dataset(odd)
    assert [case.name for case in dataset.cases] == ["m", "n\\udce9"]
    assert dataset.name == "d\\udce9"
    for kind in ("images", "labels"):
        (odd / kind).rename(odd / os.fsdecode(kind[0].encode() + b"\xe9"))
    classified = open_classified(odd)
    assert classified.classes == ("i\\udce9", "l\\udce9", "other")
    assert classified.name == "d\\udce9"
    assert {one.name for one in classified.images} >= {"other/n\\udce9.png", "i\\udce9/m.png"}


def test_pipes_are_not_opened(tmp_path: Path) -> None:
    """Opening one waits until somebody writes into it; these are filled, so that no test does."""
    two_folders("images", "labels")(tmp_path, PAIRS)
    (tmp_path / "images/series").mkdir()
    listed = ("images/x", "images/z.png", "images/series/1", "a.npz", "1.mat", "a_data_train.npy")
    filled = [_filled_pipe(tmp_path / name) for name in listed]
    dataset = open_any(tmp_path)
    assert [str(one) for one in dataset.findings] == [
        "error: unpaired: images/z.png is a pipe or a device"
    ]
    assert {len(os.read(pipe, 9999)) for pipe in filled} == {_IN_PIPE}
    for pipe in filled:
        os.close(pipe)


def _filled_pipe(path: Path) -> int:
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR)
    os.write(pipe, (b"\0" * 128 + b"DICM").ljust(_IN_PIPE))
    return pipe


def test_stacks_with_decomposed_names_pair(tmp_path: Path) -> None:
    npy_stacks(tmp_path, PAIRS)
    for kind, form in (("data", "NFC"), ("mask", "NFD")):
        name = unicodedata.normalize(form, f"Fälle_{kind}_train.npy")  # type: ignore[arg-type]
        (tmp_path / f"axons_{kind}_train.npy").rename(tmp_path / name)
    assert codes(open_dataset(tmp_path)) == []


def test_one_name_in_two_forms_is_reported(tmp_path: Path) -> None:
    two_folders("images", "labels")(tmp_path, PAIRS)
    for form in ("NFC", "NFD"):
        name = unicodedata.normalize(form, "Müller")
        write(PAIRS["axon-00"][0], tmp_path / "images" / f"{name}.png")
    assert [code for code, _ in codes(open_dataset(tmp_path))] == ["unpaired", "unpaired"]


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_a_list_written_elsewhere_names_the_same_files(suffix: str, tmp_path: Path) -> None:
    """With backslashes, as on Windows, and with the accents of another system."""
    there = unicodedata.normalize("NFD", "Müller")
    two_folders("scans", "truth")(tmp_path, {there: PAIRS["axon-00"], "b\\c": PAIRS["axon-01"]})
    here = unicodedata.normalize("NFC", there)
    names = [(f"scans\\{here}.png", f"truth\\{here}.png"), ("scans/b\\c.png", "truth/b\\c.png")]
    maps, classes = tmp_path / f"maps.{suffix}", tmp_path / f"classes.{suffix}"
    if suffix == "csv":
        maps.write_text("\n".join(["image,label", *(",".join(pair) for pair in names)]))
        classes.write_text(
            "\n".join(["image,class", *(f"{image},{image[6]}" for image, _ in names)])
        )
    else:
        maps.write_text(json.dumps([{"image": image, "label": label} for image, label in names]))
        classes.write_text(json.dumps([{"image": i, "class": i[6]} for i, _ in names]))
    assert codes(open_dataset(maps)) == []
    assert [case.name for case in open_dataset(maps).cases] == ["Müller", "b\\c"]
    found = open_classified(classes)
    assert [image.image.path.stem for image in found.images] == [there, "b\\c"]
    assert not found.unusable


def test_strangers_are_listed_and_no_errors(tmp_path: Path) -> None:
    nnunet(tmp_path, PAIRS)
    strangers = ("imagesTr/Thumbs.db", "labelsTr/.DS_Store", "imagesTr/._axon-00.nii.gz",
                 "notes.docx", "imagesTr/run.sh", "labelsTr/desktop.ini",
                 "imagesTr/noise")  # fmt: skip
    for name in strangers:
        (tmp_path / name).write_bytes(b"no image")
    dataset = open_dataset(tmp_path)
    assert codes(dataset) == []
    assert {path.relative_to(tmp_path).as_posix() for path in dataset.strangers} == set(strangers)
    (tmp_path / "imagesTr" / "scan.mgz").write_bytes(b"an image of a format that is not read")
    assert codes(open_dataset(tmp_path)) == [("unpaired", "imagesTr/scan.mgz")]


def test_voxels_beside_a_header_belong_to_its_image(tmp_path: Path) -> None:
    save_cases(tmp_path, [nuclei(12, i) for i in range(4)])
    for picture in tmp_path.glob("*/*.tif"):
        array = read_image(picture).array
        picture.with_suffix(".raw").write_bytes(array.astype("<u2").tobytes())
        picture.with_suffix(".mhd").write_text(
            f"NDims = 2\nDimSize = {array.shape[-1]} {array.shape[-2]}\nElementType = MET_USHORT\n"
            f"ElementDataFile = {picture.stem}.raw\n"
        )
        picture.unlink()
    dataset = open_dataset(tmp_path)
    assert len(dataset.cases) == 4 and list(dataset.strangers) == []
    before = dataset.fingerprint()
    (tmp_path / "labels" / "0.raw").touch()
    assert dataset.fingerprint() != before


def test_pairs_of_nifti_files_are_images(tmp_path: Path) -> None:
    save_cases(tmp_path, [nuclei(12, i) for i in range(4)])
    for picture in tmp_path.glob("*/*"):
        pair = nibabel.Nifti1Pair(read_image(picture).array.T, np.eye(4))
        nibabel.save(pair, picture.with_suffix(".img"))
        picture.unlink()
    dataset = open_dataset(tmp_path)
    assert len(dataset.cases) == 4 and list(dataset.strangers) == []
    assert "unpaired" not in [code for code, _ in codes(dataset)]
    assert written_suffix(tmp_path / "labels" / "0.hdr") == ".nii.gz"
    (tmp_path / "labels" / "0.hdr").unlink()
    alone = [f"{folder}/0.{end}" for folder, end in (("images", "hdr"), ("labels", "img"))]
    assert [file for code, file in codes(open_dataset(tmp_path)) if code == "unpaired"] == alone


def test_a_map_of_ids_among_masks_is_named(tmp_path: Path) -> None:
    maps: list[NDArray[np.integer]] = [(nuclei(12, i) > 0) * np.uint8(255) for i in range(7)]
    maps[3] = nuclei(12, 3)
    save_cases(tmp_path, maps)
    (found,) = open_dataset(tmp_path).findings
    assert (found.severity, found.code, found.file) == ("error", "mixed_labels", "labels/3.tif")
    assert found.what == "has 12 ids up to 12, one for each object, while 6 masks hold 0 and 255"
    assert "--binary" in found.fix
    binary = open_dataset(tmp_path, interpretation=Interpretation("binary"))
    assert binary.findings == ()
    assert binary.card is not None and [share.label for share in binary.card.classes] == [0, 1]


def test_instances_are_no_classes(instances: Path) -> None:
    dataset = open_dataset(instances)
    (found,) = dataset.findings
    assert (found.severity, found.code) == ("error", "instances") and not dataset.trainable
    assert found.what == (
        "every object has its own id, 9 to 44 in a label map: 44 classes would be learned"
    )
    for option in ("--binary", "--instances borders", "--instances classes"):
        assert option in found.fix
    trusted = open_dataset(instances, interpretation=Interpretation("classes"))
    assert trusted.trainable


def same_organs(i: int) -> Ids:
    """Twelve organs, each one object, of which some cases lack the last two."""
    ids = nuclei(12, 7)
    return np.where(ids > 12 - 2 * (i % 2), 0, ids).astype(np.uint16)


def tissues(i: int) -> Ids:
    """Ten classes of many pieces, fewer in some cases."""
    return np.random.default_rng(i).integers(0, 5 + i, (96, 96)).astype(np.uint16)


@pytest.mark.parametrize("draw", [same_organs, tissues])
def test_classes_are_no_instances(draw: object, tmp_path: Path) -> None:
    save_cases(tmp_path, [draw(i) for i in range(6)])  # type: ignore[operator]
    assert "instances" not in dict(codes(open_dataset(tmp_path)))


def test_named_classes_are_no_instances(instances: Path) -> None:
    named = Interpretation.parse(None, ["1=liver,2=spleen"])
    assert "instances" not in dict(codes(open_dataset(instances, interpretation=named)))


def test_instances_as_foreground(instances: Path, store: Path) -> None:
    chosen = Interpretation.parse("binary", ["1=nucleus"])
    dataset = open_dataset(instances, interpretation=chosen)
    assert dataset.findings == ()
    for case in dataset.cases:
        label = dataset.read_label(case)
        ids = read_image(case.label.path, kind="labels")
        np.testing.assert_array_equal(label.array, ids.array > 0)
    source = load_source(dataset, store)
    assert source.binary and dict(source.labels) == {0: "background", 1: "nucleus"}


def test_instances_with_borders_between_them(instances: Path, store: Path) -> None:
    dataset = open_dataset(instances, interpretation=Interpretation.parse("borders", ["1=nucleus"]))
    assert dataset.findings == ()
    for case in dataset.cases:
        ids = read_image(case.label.path, kind="labels").array[0]
        classes = dataset.read(case)[1].array[0]
        np.testing.assert_array_equal(classes > 0, ids > 0)
        # without the borders, connected components are the objects again
        assert connected_components(classes == 1).max() == len(np.unique(ids)) - 1
    source = load_source(dataset, store)
    assert dict(source.labels) == {0: "background", 1: "nucleus", 2: "border"}
    assert load_source(dataset, store).labels == source.labels
    foreground = open_dataset(instances, interpretation=Interpretation("binary"))
    assert load_source(foreground, store).binary  # prepared again, not reused


def test_borders_lie_where_objects_touch() -> None:
    ids = np.zeros((5, 8), np.uint8)
    ids[1:4, 1:4], ids[1:4, 4:6] = 1, 2
    touching = np.zeros_like(ids, dtype=bool)
    touching[1:4, 3:5] = True
    np.testing.assert_array_equal(touching_borders(ids), touching)
    for dtype in (np.uint8, np.uint16, np.int64, np.uint64):
        alone = np.pad(ids[:, :4], 1).astype(dtype)  # one object
        assert not touching_borders(alone).any()
    volume = np.stack([ids, ids * 0, ids])
    np.testing.assert_array_equal(touching_borders(volume)[0], touching)
    label = MedicalImage(ids[None], kind="labels")
    assert as_classes(label, "classes") is label and as_classes(label, None) is label


def test_labels_and_channels_may_be_named(tmp_path: Path, store: Path) -> None:
    nnunet(tmp_path, PAIRS)
    named = Interpretation.parse(labels=["1=dendrite"], channels="two-photon")
    dataset = open_dataset(tmp_path, interpretation=named)
    source = load_source(dataset, store)
    assert source.labels[1] == "dendrite" and source.channel_names == ("two-photon",)
    absent = Interpretation.parse(labels=["1=dendrite", "9=spine"])
    (found,) = open_dataset(tmp_path, interpretation=absent).findings
    assert (found.code, found.severity) == ("absent_label", "warning")
    assert found.what == "9 (spine): in no label map"
    assert found.fix == "correct the id if it is mistyped; the label maps contain 1"
    wrong = Interpretation.parse(channels="a,b")
    (found,) = open_dataset(tmp_path, interpretation=wrong).findings
    assert (found.code, found.severity) == ("channel_names", "error")
    assert found.what == "2 names of channels (a, b), but the images have 1 channel"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"instances": "borderz"}, "instances=borderz: must be one of classes, binary, borders"),
        ({"labels": ["nucleus"]}, "labels=nucleus: give an id and its name, such as 1=nucleus"),
        ({"labels": ["1="]}, "labels=1=: give an id"),
        ({"labels": ["99999=x"]}, "labels=99999=x: give an id"),
        ({"labels": ["1=a,1=b"]}, "labels: 1 is called a and b"),
        ({"labels": ["1=a", "2=a"]}, "labels: 1 and 2 are both called a; give them different"),
        (
            {"labels": ["1=noxa\u202e"]},
            r"labels: 1 is called 'noxa\\u202e': use a name without line breaks and invis",
        ),
        ({"labels": ["1=background"]}, "labels: 0 and 1 are both called background"),
        ({"channels": "a,,b"}, "channels=a,,b: a name is empty"),
    ],
)
def test_impossible_interpretations(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        Interpretation.parse(**options)  # type: ignore[arg-type]


def test_two_labels_of_one_name_are_refused(tmp_path: Path) -> None:
    """Volumes and scores are told by name: one would stand for both."""
    nnunet(tmp_path, PAIRS)
    file = tmp_path / "dataset.json"
    described = json.loads(file.read_text())
    (name,) = {name for name in described["labels"] if name != "background"}
    with pytest.raises(InvalidParameter, match=f"labels: 1 and 2 are both called {name}; give"):
        open_dataset(tmp_path, interpretation=Interpretation.parse(labels=[f"2={name}"]))


def test_names_in_the_data_that_cannot_be_read_as_they_are_are_refused(tmp_path: Path) -> None:
    nnunet(tmp_path, PAIRS)
    file = tmp_path / "dataset.json"
    file.write_text(file.read_text().replace('"background"', '"noxa\u202e": 3, "background"'))
    with pytest.raises(InvalidParameter, match="invisible characters"):
        open_dataset(tmp_path)


def test_a_registered_data_set_is_not_interpreted() -> None:
    with pytest.raises(InvalidParameter, match="mni152 has labels and channels of its own"):
        open_dataset("mni152", interpretation=Interpretation("binary"))


@pytest.mark.parametrize("axis", [0, -1, None])
@pytest.mark.parametrize("label_axis", [0, -1, None, "png"])
def test_arrays_of_a_single_slice_are_not_turned(
    tmp_path: Path, axis: int | None, label_axis: int | str | None
) -> None:
    """A square picture would keep its size, and lie beside a label map that was not turned."""
    pixels = np.arange(144, dtype=np.uint8).reshape(12, 12)
    mask = np.asarray(pixels > 80, np.uint8)
    for number in range(2):
        image = pixels + np.uint8(number)
        write_array(image, tmp_path / "images" / f"{number}.npy", axis)
        if isinstance(label_axis, str):
            write(mask, tmp_path / "labels" / f"{number}.png", "labels")
        else:
            write_array(mask, tmp_path / "labels" / f"{number}.npy", label_axis)
    dataset = open_dataset(tmp_path)
    for flat in (True, False):
        read, label = dataset.read(dataset.cases[0], flat=flat)
        np.testing.assert_array_equal(read.array.squeeze(), pixels)
        np.testing.assert_array_equal(label.array.squeeze(), mask)
        assert read.spatial_shape == label.spatial_shape


def write_array(picture: NDArray[np.generic], path: Path, axis: int | None) -> None:
    """``[H, W]``, ``[1, H, W]`` or ``[H, W, 1]``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, picture if axis is None else np.expand_dims(picture, axis))


def test_an_array_of_the_voxels_of_a_slice_with_a_geometry_lies_in_it(tmp_path: Path) -> None:
    voxels = np.arange(144, dtype=np.uint8).reshape(12, 12, 1)
    for kind, values in (("images", voxels), ("labels", np.asarray(voxels > 80, np.uint8))):
        (tmp_path / kind).mkdir()
        for number in range(2):
            path = tmp_path / kind / f"{number}.nii.gz"
            if kind == "images":
                nibabel.save(nibabel.Nifti1Image(values, np.diag([-1, 1, 3, 1])), path)
            else:
                np.save(path.with_name(f"{number}.npy"), values)
    dataset = open_dataset(tmp_path)
    image, label = dataset.read(dataset.cases[0])
    np.testing.assert_array_equal(label.array, image.array > 80)


def in_colour(root: Path, names: Sequence[str]) -> None:
    for name in names:
        path = root / "images" / f"{name}.png"
        Image.open(path).convert("RGB").save(path)


def test_grey_saved_in_colour_is_grey(tmp_path: Path, store: Path) -> None:
    grey, colour, some = (tmp_path / name for name in ("grey", "colour", "some"))
    for root in (grey, colour, some):
        two_folders("images", "labels")(root, PAIRS)
    in_colour(colour, list(PAIRS))
    in_colour(some, list(PAIRS)[:2])
    expected = load_source(open_dataset(grey), store / "grey")
    for root in (colour, some):
        for checked in (False, True):
            dataset = open_dataset(root)
            if checked:
                assert dataset.findings == () and dataset.card == open_dataset(grey).card
            source = load_source(dataset, store / f"{root.name}-{checked}")
            assert source.image_channels == 1
            for one, other in zip(source.samples, expected.samples, strict=True):
                np.testing.assert_array_equal(one["image"], other["image"])


def test_grey_among_real_colours_is_said(tmp_path: Path, store: Path) -> None:
    two_folders("images", "labels")(tmp_path, PAIRS)
    names = list(PAIRS)
    in_colour(tmp_path, names)
    rng = np.random.default_rng(0)
    for name in names[2:]:
        pixels = rng.integers(0, 255, (20, 28, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{name}.png")
    dataset = open_dataset(tmp_path)
    (found,) = dataset.findings
    assert (found.severity, found.code) == ("warning", "grey_in_colour")
    assert found.what == "grey, but saved in colour (this and 1 more), while 4 are in colour"
    assert load_source(dataset, store).image_channels == 3
    write(PAIRS[names[0]][0], tmp_path / "images" / f"{names[0]}.png")  # grey indeed
    assert ("mixed_channels", f"images/{names[0]}.png") in codes(open_dataset(tmp_path))
