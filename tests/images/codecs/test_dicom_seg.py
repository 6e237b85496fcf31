"""Label maps of DICOM slices as DICOM SEG, read back by highdicom and judged by dciodvfy."""

from __future__ import annotations

import io
import logging
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import highdicom
import numpy as np
import pydicom
import pytest
from pydicom.dataset import Dataset
from pydicom.uid import EnhancedCTImageStorage, EnhancedMRImageStorage

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import (
    LabelCode,
    Limits,
    MedicalImage,
    dicom_report,
    dicom_segmentation,
    encode_image,
    one_slice,
    read_image,
)
from caps_med.images.codecs import dicom_seg
from caps_med.images.codecs.dicom_frames import NO_PATIENT_ID
from caps_med.images.codecs.dicom_volumes import NO_COMMON_ORIGIN, NO_ORIGIN
from caps_med.images.dicom_origin import FRAMES, SINGLE, SegType
from caps_med.images.placing import placed_on
from tests.images.codecs.validator import check_valid
from tests.images.dicom_files import (
    IDENTITY,
    SERIES,
    dataset,
    encoded,
    enhanced,
    series_file,
    slice_file,
)
from tests.zips import zip_of

HEIGHTS = (2.5, 0.0, 7.5, 5.0)
NAMES = {0: "background", 2: "grey matter", 5: "axon"}


def series(folder: Path, **changed: Any) -> Path:  # noqa: ANN401 - what elements hold
    """Four slices whose files are not in their order."""
    folder.mkdir(exist_ok=True)
    for number, z in enumerate(HEIGHTS, start=1):
        (folder / f"{number}.dcm").write_bytes(series_file(number, z, **changed))
    return folder


def frames(kind: str = EnhancedCTImageStorage, **changed: Any) -> bytes:  # noqa: ANN401 - as above
    """One file of four frames that are not in their order."""
    pixels = np.zeros((4, 5, 7), np.uint16)
    told = {"SOPClassUID": kind, **IDENTITY, **changed}
    return encoded(enhanced(pixels, (-10.0, 20.0), HEIGHTS, **told))


def labelled(image: MedicalImage) -> MedicalImage:
    """Label 2 in the two middle slices, label 5 in the third alone."""
    ids = np.zeros(image.array.shape, np.uint8)
    ids[0, 1:4, 0:2, 1:3] = 2
    ids[0, 5, 4, 2] = 5
    return replace(image.with_array(ids, kind="labels"), names=NAMES)


def empty(image: MedicalImage) -> MedicalImage:
    return image.with_array(np.zeros(image.array.shape, np.uint8), kind="labels")


def read_back(content: bytes) -> Any:  # noqa: ANN401 - highdicom has no types
    return highdicom.seg.segread(io.BytesIO(content))


@pytest.mark.parametrize("source", ["series", "frames"])
def test_each_label_lies_on_the_slice_it_was_drawn_on(tmp_path: Path, source: str) -> None:
    image = read_image(series(tmp_path) if source == "series" else frames())
    labels = labelled(image)
    assert labels.format == "dicom"
    found = read_back(encode_image(labels, "dicom"))
    assert [found.get_segment_description(k).segment_label for k in (1, 2)] == [
        "grey matter",
        "axon",
    ]
    for frame in found.PerFrameFunctionalGroupsSequence:
        position = np.array(frame.PlanePositionSequence[0].ImagePositionPatient, float)
        at = np.linalg.inv(image.affine) @ [*(position * (-1, -1, 1)), 1]
        np.testing.assert_allclose(at[:2], 0, atol=1e-6)
        (reference,) = frame.DerivationImageSequence[0].SourceImageSequence
        z = HEIGHTS.index(float(position[2]))
        if source == "series":
            assert reference.ReferencedSOPInstanceUID == f"{SERIES}.{z + 1}"
        else:
            assert reference.ReferencedFrameNumber == z + 1
    volume = found.get_volume(combine_segments=True)
    wanted = np.select([labels.array[0] == 2, labels.array[0] == 5], [1, 2])
    np.testing.assert_array_equal(np.sort(volume.array.ravel())[-7:], np.sort(wanted.ravel())[-7:])
    for index in np.argwhere(wanted):
        place = image.affine @ [*index, 1]
        z, y, x = volume.map_reference_to_indices(place[None, :3] * (-1, -1, 1), round_output=True)[
            0
        ]
        assert volume.array[z, y, x] == wanted[tuple(index)]


def _of_two_files(folder: Path) -> MedicalImage:
    """Two files of two frames each, which lie between each other."""
    for name, heights in (("8", HEIGHTS[:2]), ("9", HEIGHTS[2:])):
        made = enhanced(
            np.zeros((2, 5, 7), np.uint16), (-10.0, 20.0), heights,
            **IDENTITY, SOPClassUID=EnhancedMRImageStorage, SOPInstanceUID=f"{SERIES}.{name}",
        )  # fmt: skip
        (folder / f"{name}.dcm").write_bytes(encoded(made))
    return read_image(folder)


def _of_a_part(folder: Path) -> MedicalImage:
    """The second of two stacks in one file."""
    made = enhanced(
        np.zeros((8, 5, 7), np.uint16), (-10.0, 20.0), [z for z in HEIGHTS for _ in range(2)],
        **IDENTITY, SOPClassUID=EnhancedMRImageStorage, SOPInstanceUID=f"{SERIES}.9",
    )  # fmt: skip
    for number, group in enumerate(made.PerFrameFunctionalGroupsSequence):
        content = Dataset()
        content.StackID = str(number % 2 + 1)
        group.FrameContentSequence = [content]
    (folder / "9.dcm").write_bytes(encoded(made))
    return read_image(folder / "9.dcm", index=1)


@pytest.mark.parametrize("kind", ["binary", "labelmap"])
@pytest.mark.parametrize(
    ("read", "frames"),
    [
        (_of_two_files, {2.5: ("8", 1), 0.0: ("8", 2), 7.5: ("9", 1), 5.0: ("9", 2)}),
        (_of_a_part, {2.5: ("9", 2), 0.0: ("9", 4), 7.5: ("9", 6), 5.0: ("9", 8)}),
    ],
)
def test_frames_of_several_files_or_a_part_of_one_are_referred_to(
    read: Callable[[Path], MedicalImage], frames: dict[float, tuple[str, int]], kind: SegType,
    tmp_path: Path,
) -> None:  # fmt: skip
    labels = labelled(read(tmp_path))
    assert labels.format == "dicom"
    seg, report = dicom_segmentation(labels, kind), dicom_report(labels, kind)
    found = read_back(seg)
    used = {f"{SERIES}.{name}" for name, _ in frames.values()}
    for frame in found.PerFrameFunctionalGroupsSequence:
        (position,) = frame.PlanePositionSequence
        (reference,) = frame.DerivationImageSequence[0].SourceImageSequence
        assert reference.ReferencedSOPClassUID == EnhancedMRImageStorage
        name, number = frames[float(position.ImagePositionPatient[2])]
        assert reference.ReferencedSOPInstanceUID == f"{SERIES}.{name}"
        assert reference.ReferencedFrameNumber == number
    listed = (
        found.SourceImageSequence,
        found.ReferencedSeriesSequence[0].ReferencedInstanceSequence,
    )
    for sequence in listed:
        assert {one.ReferencedSOPInstanceUID for one in sequence} == used
        assert {one.ReferencedSOPClassUID for one in sequence} == {EnhancedMRImageStorage}
    assert found.SOPInstanceUID in str(pydicom.dcmread(io.BytesIO(report)))
    back = placed_on(read_image(seg, kind="labels"), labels)
    assert ((back.array > 0) == (labels.array > 0)).all()


@pytest.mark.parametrize(("per_slice", "warned"), [(0.05, False), (0.6, True)])
def test_slices_under_a_tilted_gantry(tmp_path: Path, per_slice: float, warned: bool) -> None:
    """Three steps of 0.6 mm are more than half a pixel of 0.5 mm."""
    for n in range(4):
        place = [-10.0, 20.0 + n * per_slice, 2.5 * n]
        (tmp_path / f"{n}.dcm").write_bytes(series_file(n + 1, 0.0, ImagePositionPatient=place))
    image = read_image(tmp_path)
    told = "DICOM: the slices are shifted against each other by up to 1.8 mm"
    assert any(told in note for note in image.warnings) == warned
    found = read_back(encode_image(labelled(image), "dicom"))
    for frame in found.PerFrameFunctionalGroupsSequence:
        (place,) = frame.PlanePositionSequence
        x, y, z = map(float, place.ImagePositionPatient)
        assert (x, y) == pytest.approx((-10.0, 20.0 + z / 2.5 * per_slice))
    try:
        found.get_volume(combine_segments=True)
    except RuntimeError:
        assert warned
    else:
        assert not warned


@pytest.mark.parametrize("kind", ["binary", "labelmap"])
def test_the_only_slice_keeps_its_thickness(kind: SegType) -> None:
    image = read_image(series_file(1, 0.0))
    labels = image.with_array(np.ones(image.array.shape, np.uint8), kind="labels")
    again = read_image(dicom_segmentation(labels, kind), kind="labels")
    assert image.spacing == again.spacing == (0.75, 0.5, 2.5)


def test_it_returns_to_the_same_patient_and_study(tmp_path: Path) -> None:
    name = {"SpecificCharacterSet": "ISO_IR 144", "PatientName": "Люксембург^Роза"}
    image = read_image(series(tmp_path, **name))
    found = read_back(encode_image(labelled(image), "dicom"))
    for keyword, value in {**IDENTITY, "PatientName": "Люксембург^Роза"}.items():
        assert str(found.get(keyword)) == value, keyword
    assert found.SeriesInstanceUID != SERIES and found.Modality == "SEG"
    codes = [segment.SegmentedPropertyTypeCodeSequence[0] for segment in found.SegmentSequence]
    assert [code.CodeMeaning for code in codes] == ["Gray Matter", "Tissue"]


@pytest.mark.parametrize(
    "changed",
    [
        {"PatientBirthDate": "19500100"}, {"StudyDate": "20200101-20210101"},
        {"StudyTime": "10-11"}, {"PatientSex": "X"}, {"PatientID": ["A", "B"]},
        {"PatientName": ["A^B", "C^D"]}, {"PatientIdentityRemoved": "MAYBE"},
        {"DeidentificationMethod": ["x", "y" * 65]},
        {"StudyID": "a\nb"}, {"ReferringPhysicianName": "x" * 90},
    ],
)  # fmt: skip
def test_a_value_that_breaks_the_standard_is_left_out(changed: dict[str, Any]) -> None:
    with pydicom.config.disable_value_validation():
        image = read_image(slice_file(**{**IDENTITY, **changed}))
    (keyword,) = changed
    found = read_back(encode_image(empty(image), "dicom"))
    assert not found.get(keyword)
    assert found.StudyInstanceUID == IDENTITY["StudyInstanceUID"]


@pytest.mark.parametrize("identifier", ["x" * 65, ["A", "B"], "a\nb"])
def test_a_patient_id_that_is_left_out_is_told(tmp_path: Path, identifier: str | list[str]) -> None:
    with pydicom.config.disable_value_validation():
        folder = series(tmp_path, PatientID=identifier)
        image = read_image(folder)
        (folder / "again.dcm").write_bytes(series_file(1, HEIGHTS[0], PatientID=identifier))
        twice = read_image(folder)
    assert image.origin is not None and image.origin.attributes["PatientID"] == ""
    assert image.warnings == (NO_PATIENT_ID,)
    assert NO_PATIENT_ID in twice.warnings and "equal copies" in "".join(twice.warnings)


def test_nothing_is_told_of_a_patient_id_that_no_seg_lacks() -> None:
    assert read_image(slice_file(**{**IDENTITY, "PatientID": ""})).warnings == ()
    with pydicom.config.disable_value_validation():
        other = {"PatientID": "x" * 65, "FrameOfReferenceUID": ""}
        assert read_image(slice_file(**{**IDENTITY, **other})).warnings == (NO_ORIGIN,)


def test_nothing_is_said_of_a_patient(
    caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    """highdicom warns of names with one part, and logs what it copies."""
    caplog.set_level(logging.DEBUG)
    image = read_image(slice_file(**{**IDENTITY, "PatientName": "Mueller"}))
    found = read_back(encode_image(empty(image), "dicom"))
    assert found.PatientName == "Mueller"
    assert not [w for w in recwarn if "Mueller" in str(w.message)]
    assert SERIES not in caplog.text and "Mueller" not in caplog.text


def test_identifiers_whose_components_begin_with_zeros_are_carried_on(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """The standard has none, some programs do, and others copy them. pydicom warns of each."""
    with pydicom.config.disable_value_validation():
        file = slice_file(**{**IDENTITY, "StudyInstanceUID": "1.2.03", "SOPInstanceUID": "1.2.04"})
    image = read_image(file)
    assert image.warnings == ()
    made = dicom_segmentation(empty(image)), dicom_report(empty(image))
    assert not recwarn.list
    for content in made:
        assert pydicom.dcmread(io.BytesIO(content)).StudyInstanceUID == "1.2.03"


@pytest.mark.parametrize("known", [True, False])
def test_slices_of_two_patients_are_refused(tmp_path: Path, known: bool) -> None:
    """By their identifiers, or by their names where there are no identifiers."""
    given = {"PatientID": "18-5"} if known else {"PatientID": "", "PatientName": "Roe^Richard"}
    folder = series(tmp_path) if known else series(tmp_path, PatientID="")
    (folder / "9.dcm").write_bytes(series_file(9, 10.0, **given))
    with pytest.raises(
        InvalidInput, match=r"contains files of several patients: give the files of one patient$"
    ):
        read_image(folder)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in folder.iterdir():
            archive.write(path, path.name)
    with pytest.raises(InvalidInput, match=r"^the zip contains files of several patients"):
        read_image(buffer.getvalue())


@pytest.mark.parametrize("changed", ["PatientName", "StudyInstanceUID", "FrameOfReferenceUID"])
def test_slices_of_two_studies_are_of_none(tmp_path: Path, changed: str) -> None:
    folder = series(tmp_path)
    (folder / "9.dcm").write_bytes(series_file(9, 10.0, **{changed: "1.2.3"}))
    image = read_image(folder)
    assert image.origin is None
    assert image.warnings == (NO_COMMON_ORIGIN,)


def test_slices_that_say_to_be_one_object_are_of_none(tmp_path: Path) -> None:
    assert read_image(series(tmp_path, SOPInstanceUID="1.2.3")).origin is None


@pytest.mark.parametrize("kind", sorted(SINGLE | FRAMES))
def test_every_kind_of_image_that_is_known_can_be_referred_to(kind: str) -> None:
    uid = getattr(pydicom.uid, kind)
    image = read_image(slice_file(**IDENTITY, SOPClassUID=uid) if kind in SINGLE else frames(uid))
    assert image.format_of("labels") == "dicom"
    assert read_back(encode_image(empty(image), "dicom")).Modality == "SEG"


def test_what_highdicom_refuses_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a reason that is not known here; its own words could name the patient."""
    image = read_image(slice_file(**IDENTITY))

    def refuse(*_: object, **__: object) -> None:
        raise ValueError("Doe^Jane")

    monkeypatch.setattr(dicom_seg, "Segmentation", refuse)
    message = "^a DICOM SEG cannot refer to this series: write nifti instead$"
    with pytest.raises(UnsupportedFormat, match=message):
        encode_image(empty(image), "dicom")


def test_names_of_labels_and_models_are_made_to_fit() -> None:
    image = read_image(slice_file(**IDENTITY))
    names = {
        0: "background",
        1: "",
        2: "a\\b\n",
        3: "x" * 80,
        4: "__class__",
        5: "left",
        300: "liver",
    }
    labels = replace(empty(image), names=names)
    found = read_back(encode_image(labels, "dicom")).SegmentSequence
    assert [one.SegmentLabel for one in found] == [
        "label 1", "a b", "x" * 64, "__class__", "left", "liver",
    ]  # fmt: skip
    meanings = [one.SegmentedPropertyTypeCodeSequence[0].CodeMeaning for one in found]
    assert meanings == ["Tissue"] * 5 + ["Liver"]


def test_an_id_without_a_name_is_a_segment_too() -> None:
    image = read_image(slice_file(**IDENTITY))
    ids = np.zeros(image.array.shape, np.uint16)
    ids[0, 0], ids[0, 1] = 300, 1
    for names in ({0: "background", 3: "x"}, {3: "x"}):
        labels = replace(image.with_array(ids, kind="labels"), names=names)
        found = read_back(encode_image(labels, "dicom"))
        assert [one.SegmentLabel for one in found.SegmentSequence] == ["label 1", "x", "label 300"]
        assert found.pixel_array.sum() == (ids > 0).sum()


def test_a_slice_of_a_series_has_no_origin(tmp_path: Path) -> None:
    labels = labelled(read_image(series(tmp_path)))
    one = one_slice(labels, 1)
    assert (one.origin, one.format) == (None, "nifti")
    with pytest.raises(InvalidInput, match="not the slices that their origin names"):
        replace(labels, array=labels.array[..., :2])


def test_beside_its_series_it_is_passed_over(tmp_path: Path) -> None:
    image = read_image(series(tmp_path))
    labelled(image).save(tmp_path / "seg.dcm")
    np.testing.assert_array_equal(read_image(tmp_path).array, image.array)


def test_as_an_image_it_is_refused() -> None:
    image = read_image(slice_file(**IDENTITY))
    with pytest.raises(UnsupportedFormat, match="labels"):
        read_image(encode_image(empty(image), "dicom"))


def test_a_segment_says_what_it_is_and_who_made_it() -> None:
    image = read_image(slice_file(**IDENTITY))
    names = {0: "background", 1: "left hippocampus", 2: "CSF", 3: "tumor", 4: "axon"}
    own = LabelCode.parse("99AX1,99MINE,Axon,right")
    found = read_back(encode_image(replace(empty(image), names=names, codes={4: own}), "dicom"))
    kinds = [one.SegmentedPropertyTypeCodeSequence[0] for one in found.SegmentSequence]
    sides = [one.get("SegmentedPropertyTypeModifierCodeSequence") for one in kinds]
    assert [one.CodeValue for one in kinds] == ["5366008", "65216001", "108369006", "99AX1"]
    assert [side and side[0].CodeMeaning for side in sides] == ["Left", None, None, "Right"]
    category = found.SegmentSequence[2].SegmentedPropertyCategoryCodeSequence[0]
    assert category.CodeMeaning == "Morphologically Abnormal Structure"
    assert str(found.ContentCreatorName) == "caps_med^"
    assert [one.TrackingID for one in found.SegmentSequence] == list(names.values())[1:]
    assert len({one.TrackingUID for one in found.SegmentSequence}) == 4


def test_the_same_label_map_is_the_same_object(tmp_path: Path) -> None:
    """So that a report, or an archive that gets it twice, knows it."""
    labels = labelled(read_image(series(tmp_path)))
    one, same = (read_back(encode_image(labels, "dicom")) for _ in range(2))
    identifiers, again = ([e.value for e in x.iterall() if e.VR == "UI"] for x in (one, same))
    assert identifiers == again
    array = labels.array.copy()
    array[0, 0, 0, 0] = 2
    other = read_back(encode_image(replace(labels, array=array), "dicom"))
    assert other.SOPInstanceUID != one.SOPInstanceUID
    assert other.SegmentSequence[0].TrackingUID == one.SegmentSequence[0].TrackingUID


def test_a_map_without_a_label_is_one_too() -> None:
    image = read_image(slice_file(**IDENTITY))
    assert not read_back(encode_image(empty(image), "dicom")).pixel_array.any()


@pytest.mark.parametrize("source", ["series", "frames", "bare"])
def test_the_validator_has_nothing_to_say(tmp_path: Path, source: str) -> None:
    bare = dict.fromkeys(("PatientBirthDate", "StudyTime"), "unknown")
    content = frames() if source == "frames" else None
    image = read_image(content or series(tmp_path / "in", **(bare if source == "bare" else {})))
    file = tmp_path / "seg.dcm"
    labelled(image).save(file)
    check_valid(file)


@pytest.mark.parametrize(
    "changed",
    [
        {"FrameOfReferenceUID": None},
        {"StudyInstanceUID": "../../etc"},
        {"SOPClassUID": "1.2.840.10008.1.1"},
    ],
)
def test_without_identifiers_it_is_nifti(changed: dict[str, Any]) -> None:
    image = read_image(slice_file(**{**IDENTITY, **changed}))
    assert image.origin is None and image.warnings == (NO_ORIGIN,)
    assert empty(image).format == "nifti"
    with pytest.raises(UnsupportedFormat, match="only label maps of DICOM slices are written"):
        encode_image(empty(image), "dicom")


def test_images_and_pictures_stay_what_they_were() -> None:
    image = read_image(slice_file(**IDENTITY))
    assert image.format == "nifti"
    assert empty(image).format == "dicom"
    assert empty(image).with_array(image.array, kind="image").format == "nifti"
    with pytest.raises(UnsupportedFormat, match="only label maps of DICOM slices are written"):
        encode_image(image, "dicom")
    flat = read_image(encoded(dataset(np.zeros((5, 7), np.uint8), **IDENTITY)))
    assert empty(flat).format == "png"


def test_no_other_format_and_no_text_names_the_patient(tmp_path: Path) -> None:
    image = read_image(series(tmp_path))
    labels = labelled(image)
    assert labels.origin is not None
    for text in (repr(image), repr(labels), repr(labels.origin), str(labels.origin)):
        assert "Doe" not in text and IDENTITY["PatientID"] not in text and SERIES not in text
    for form in ("nifti", "nrrd", "npy"):
        content = encode_image(labels, form, compress=False)
        assert b"Doe" not in content and SERIES.encode() not in content


def test_a_zip_holds_a_series_in_whatever_folders(tmp_path: Path) -> None:
    """Beside other files; the archive is bounded like a folder, and its names are not told."""
    folder = series(tmp_path / "Doe^Jane")
    members = [("notes.txt", b"index"), ("DICOMDIR", without_picture())]
    members += [(f"Doe^Jane/{path.name}", path.read_bytes()) for path in folder.iterdir()]
    content = zip_of(*members)
    found, wanted = read_image(content), read_image(folder)
    np.testing.assert_array_equal(found.array, wanted.array)
    np.testing.assert_array_equal(found.affine, wanted.affine)
    assert found.origin == wanted.origin
    with pytest.raises(InputTooLarge, match="max_inflated_bytes"):
        read_image(content, limits=Limits(max_inflated_bytes=3000))
    with pytest.raises(InvalidInput, match="file 6 of the zip: DICOM: an element reaches past"):
        read_image(zip_of(*members, ("Doe^Jane/x.dcm", slice_file(20)[:-9])))
    at = content.index(b"Doe^Jane/1.dcm") + 80
    with pytest.raises(InvalidInput, match="zip: the archive is cut or broken"):
        read_image(content[:at] + b"\xff" * 40 + content[at + 40 :])


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_inflates_without_a_bound(method: int) -> None:
    with pytest.raises(UnsupportedFormat, match="zip: only stored and deflated files"):
        read_image(zip_of(("a.dcm", slice_file()), method=method))


def without_picture() -> bytes:
    made = dataset(np.zeros((2, 2), np.uint8), **IDENTITY)
    del made.PixelData
    return encoded(made)


def test_a_zip_without_a_series() -> None:
    with pytest.raises(UnsupportedFormat, match="zip: contains no DICOM picture"):
        read_image(zip_of(("a.txt", b"no image"), ("b.dcm", without_picture())))
