"""Label maps of DICOM slices as DICOM SEG, read back by highdicom and judged by dciodvfy."""

from __future__ import annotations

import io
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import highdicom
import numpy as np
import pydicom
import pytest
from pydicom.dataset import Dataset
from pydicom.uid import EnhancedCTImageStorage

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import Limits, MedicalImage, encode_image, read_image
from tests.images.dicom_files import IDENTITY, SERIES, dataset, encoded, slice_file

HEIGHTS = (2.5, 0.0, 7.5, 5.0)
NAMES = {0: "background", 2: "grey matter", 5: "axon"}


def series(folder: Path, **changed: Any) -> Path:  # noqa: ANN401
    """Four slices whose files are not in their order."""
    folder.mkdir(exist_ok=True)
    for number, z in enumerate(HEIGHTS, start=1):
        more = {**IDENTITY, "SOPInstanceUID": f"{SERIES}.{number}", **changed}
        (folder / f"{number}.dcm").write_bytes(slice_file(z, **more))
    return folder


def frames(**changed: Any) -> bytes:  # noqa: ANN401
    """One file of four frames that are not in their order."""
    made = dataset(np.zeros((4, 5, 7), np.uint16), SOPClassUID=EnhancedCTImageStorage, **IDENTITY)
    shared, measures, orientation = Dataset(), Dataset(), Dataset()
    orientation.ImageOrientationPatient = [1.0, 0, 0, 0, 1, 0]
    measures.PixelSpacing, measures.SliceThickness = [0.5, 0.75], 2.5
    shared.PixelMeasuresSequence, shared.PlaneOrientationSequence = [measures], [orientation]
    groups = []
    for z in HEIGHTS:
        position, group = Dataset(), Dataset()
        position.ImagePositionPatient = [-10.0, 20.0, z]
        group.PlanePositionSequence = [position]
        groups.append(group)
    made.SharedFunctionalGroupsSequence, made.PerFrameFunctionalGroupsSequence = [shared], groups
    for name, value in changed.items():
        setattr(made, name, value)
    return encoded(made)


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


def test_it_returns_to_the_same_patient_and_study(tmp_path: Path) -> None:
    name = {"SpecificCharacterSet": "ISO_IR 144", "PatientName": "Люксембург^Роза"}
    image = read_image(series(tmp_path, **name))
    found = read_back(encode_image(labelled(image), "dicom"))
    for keyword, value in {**IDENTITY, "PatientName": "Люксембург^Роза"}.items():
        assert str(found.get(keyword)) == value, keyword
    assert found.SeriesInstanceUID != SERIES and found.Modality == "SEG"
    codes = [segment.SegmentedPropertyTypeCodeSequence[0] for segment in found.SegmentSequence]
    assert [code.CodeMeaning for code in codes] == ["Gray Matter", "Tissue"]


def test_a_map_without_a_label_is_one_too() -> None:
    image = read_image(slice_file(**IDENTITY))
    assert not read_back(encode_image(empty(image), "dicom")).pixel_array.any()


@pytest.mark.skipif(shutil.which("dciodvfy") is None, reason="dicom3tools are not installed")
@pytest.mark.parametrize("source", ["series", "frames", "bare"])
def test_the_validator_has_nothing_to_say(tmp_path: Path, source: str) -> None:
    bare = dict.fromkeys(("PatientBirthDate", "StudyTime"), "unknown")
    content = frames() if source == "frames" else None
    image = read_image(content or series(tmp_path / "in", **(bare if source == "bare" else {})))
    file = tmp_path / "seg.dcm"
    labelled(image).save(file)
    said = subprocess.run(["dciodvfy", str(file)], capture_output=True, text=True, check=False)
    assert "Error" not in said.stderr, said.stderr


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
    assert image.origin is None
    assert empty(image).format == "nifti"
    with pytest.raises(UnsupportedFormat, match="label maps of DICOM slices alone"):
        encode_image(empty(image), "dicom")


def test_images_and_pictures_stay_what_they_were() -> None:
    image = read_image(slice_file(**IDENTITY))
    assert image.format == "nifti"
    assert empty(image).format == "dicom"
    assert empty(image).with_array(image.array, kind="image").format == "nifti"
    with pytest.raises(UnsupportedFormat, match="label maps of DICOM slices alone"):
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


def test_an_element_that_breaks_the_standard_is_left_out() -> None:
    broken = {"PatientBirthDate": "unknown", "PatientSex": "F" * 40, "StudyID": "x" * 400}
    file = pydicom.dcmread(io.BytesIO(slice_file(**IDENTITY)))
    for keyword, value in broken.items():
        file[keyword]._value = value
    out = io.BytesIO()
    with pydicom.config.disable_value_validation():
        file.save_as(out)
    found = read_back(encode_image(empty(read_image(out.getvalue())), "dicom"))
    assert not any(found.get(keyword) for keyword in broken)


def test_a_zip_holds_a_series_in_whatever_folders(tmp_path: Path) -> None:
    """Beside other files; the archive is bounded like a folder, and its names are not told."""
    folder = series(tmp_path / "Doe^Jane")
    packed = tmp_path / "series.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("DICOMDIR.txt", "index")
        for path in folder.iterdir():
            archive.write(path, f"Doe^Jane/{path.name}")
    found, wanted = read_image(packed), read_image(folder)
    np.testing.assert_array_equal(found.array, wanted.array)
    np.testing.assert_array_equal(found.affine, wanted.affine)
    assert found.origin == wanted.origin
    content = packed.read_bytes()
    with pytest.raises(InputTooLarge, match="max_inflated_bytes"):
        read_image(content, limits=Limits(max_inflated_bytes=3000))
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr("Doe^Jane/x.dcm", slice_file(20)[:-9])
    with pytest.raises(InvalidInput, match="file 6 of the zip: DICOM: an element reaches past"):
        read_image(packed)
    at = content.index(b"Doe^Jane/1.dcm") + 80
    with pytest.raises(InvalidInput, match="zip: the archive is cut or broken"):
        read_image(content[:at] + b"\xff" * 40 + content[at + 40 :])


def test_a_zip_without_a_series(tmp_path: Path) -> None:
    packed = tmp_path / "x.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.txt", "no image")
    with pytest.raises(UnsupportedFormat, match="zip: it holds no DICOM file"):
        read_image(packed)
