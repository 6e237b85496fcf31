"""What archives and viewers get of a label map: judged by dciodvfy, read by highdicom and dcmqi."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import highdicom
import nibabel
import numpy as np
import pydicom
import pytest

from caps_med.errors import InvalidInput, InvalidParameter, UnsupportedFormat
from caps_med.images import (
    LabelCode,
    MedicalImage,
    dicom_preview,
    dicom_report,
    dicom_segmentation,
    placed_on,
    read_image,
)
from tests.images.codecs.test_dicom_seg import frames, labelled, series
from tests.images.codecs.validator import check_valid
from tests.images.dicom_files import IDENTITY, dataset, encoded, slice_file

NAMES = {0: "background", 2: "left hippocampus", 5: "tumor", 9: "CSF"}
Make = Callable[[MedicalImage, MedicalImage], bytes]
MADE: dict[str, Make] = {
    "report": lambda image, labels: dicom_report(labels),
    "preview": dicom_preview,
    "segmentation": lambda image, labels: dicom_segmentation(labels),
}
DCMQI = importlib.util.find_spec("dcmqi")
NO_DCMQI = "dcmqi is not installed: pip install dcmqi"


def images(source: str, folder: Path) -> tuple[MedicalImage, MedicalImage]:
    image = read_image(series(folder / "in") if source == "series" else frames())
    return image, replace(labelled(image), names=NAMES)


def parsed(content: bytes) -> Any:  # noqa: ANN401 - pydicom's elements
    return pydicom.dcmread(io.BytesIO(content))


def dcmqi(program: str, *arguments: object) -> None:
    """Run a program of the distribution dcmqi."""
    assert DCMQI is not None and DCMQI.origin is not None
    path = Path(DCMQI.origin).parent / "bin" / program
    command = [str(path), *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("source", ["series", "frames"])
@pytest.mark.parametrize("what", list(MADE))
def test_the_validator_has_nothing_to_say(tmp_path: Path, source: str, what: str) -> None:
    file = tmp_path / "made.dcm"
    file.write_bytes(MADE[what](*images(source, tmp_path)))
    check_valid(file)


METHODS = ["Per DICOM PS 3.15 AnnexE. Details in 0012,0064", "a" * 64]


@pytest.mark.parametrize("source", ["series", "frames"])
@pytest.mark.parametrize("what", list(MADE))
@pytest.mark.parametrize("told", ["method", "methods", "codes", "no", "nothing"])
def test_de_identified_slices_give_de_identified_objects(
    tmp_path: Path, source: str, what: str, told: str
) -> None:
    code = pydicom.Dataset()
    code.CodeValue, code.CodingSchemeDesignator = "113100", "DCM"
    code.CodeMeaning = "Basic Application Confidentiality Profile"
    expected: dict[str, tuple[dict[str, Any], str | None, Any]] = {
        "method": ({"DeidentificationMethod": METHODS[0]}, "YES", METHODS[0]),
        "methods": ({"DeidentificationMethod": METHODS}, "YES", METHODS),
        "codes": ({"DeidentificationMethodCodeSequence": [code]}, "YES", code.CodeMeaning),
        "no": ({"PatientIdentityRemoved": "NO"}, "NO", None),
        "nothing": ({"PatientIdentityRemoved": None}, None, None),
    }
    changed, removed, method = expected[told]
    changed = {"PatientIdentityRemoved": "YES", **changed}
    given = series(tmp_path / "in", **changed) if source == "series" else frames(**changed)
    image = read_image(given)
    content = MADE[what](image, replace(labelled(image), names=NAMES))
    found = parsed(content)
    assert (found.get("PatientIdentityRemoved"), found.get("DeidentificationMethod")) == (
        removed, method,
    )  # fmt: skip
    assert "IssuerOfPatientID" not in found
    if told == "codes":
        (tmp_path / "made.dcm").write_bytes(content)
        check_valid(tmp_path / "made.dcm")


@pytest.mark.parametrize("kind", ["binary", "labelmap"])
def test_a_report_has_the_volume_of_each_label_of_the_seg(tmp_path: Path, kind: Any) -> None:  # noqa: ANN401
    _, labels = images("series", tmp_path)
    seg = parsed(dicom_segmentation(labels, kind))
    found: Any = highdicom.sr.srread(io.BytesIO(dicom_report(labels, kind)))
    assert (found.PatientID, found.StudyInstanceUID) == (seg.PatientID, seg.StudyInstanceUID)
    of_study = found.CurrentRequestedProcedureEvidenceSequence[0].ReferencedSeriesSequence
    evidence = {one.SeriesInstanceUID: one.ReferencedSOPSequence[0] for one in of_study}
    assert evidence[seg.SeriesInstanceUID].ReferencedSOPClassUID == seg.SOPClassUID
    assert len(evidence) == 2
    numbers = {one.SegmentNumber: one for one in seg.SegmentSequence}
    voxel = 0.5 * 0.75 * 2.5 / 1000
    report: Any = found.content
    groups = report.get_volumetric_roi_measurement_groups()
    volumes = [float((labels.array == label).sum()) * voxel for label in (2, 5, 9)]
    assert len(groups) == 3
    for group, volume in zip(groups, volumes, strict=True):
        (measured,) = group.get_measurements()
        assert measured.value == pytest.approx(volume) and measured.unit.value == "ml"
        (reference,) = (
            item for item in group[0].ContentSequence if "ReferencedSOPSequence" in item
        )
        referenced = reference.ReferencedSOPSequence[0]
        segment = numbers[referenced.ReferencedSegmentNumber]
        assert referenced.ReferencedSOPInstanceUID == seg.SOPInstanceUID
        assert group.tracking_uid == segment.TrackingUID
        assert group.tracking_identifier == segment.SegmentLabel
    site = groups[0].finding_sites[0]
    assert (site.value.meaning, site.laterality.meaning) == ("Hippocampus", "Left")
    assert groups[1].finding_sites == []


@pytest.mark.skipif(DCMQI is None, reason=NO_DCMQI)
@pytest.mark.parametrize("source", ["series", "frames"])
def test_dcmqi_reads_the_same(tmp_path: Path, source: str) -> None:
    image, labels = images(source, tmp_path)
    for name, content in (("seg", dicom_segmentation(labels)), ("sr", dicom_report(labels))):
        (tmp_path / f"{name}.dcm").write_bytes(content)
    out = tmp_path / "out"
    out.mkdir()
    dcmqi("segimage2itkimage", "--inputDICOM", tmp_path / "seg.dcm", "--outputDirectory", out,
          "-t", "nii")  # fmt: skip
    for number, label in enumerate((2, 5, 9), start=1):
        found = nibabel.load(out / f"{number}.nii.gz")
        drawn = (np.asanyarray(found.dataobj)[None] > 0).astype(np.uint8)
        placed = placed_on(MedicalImage(drawn, found.affine, kind="labels"), image)
        np.testing.assert_array_equal(placed.array, labels.array == label)
    dcmqi("tid1500reader", "--inputDICOM", tmp_path / "sr.dcm", "--outputMetadata", out / "sr.json")
    groups = json.loads((out / "sr.json").read_text())["Measurements"]
    assert [one["TrackingIdentifier"] for one in groups] == list(NAMES.values())[1:]
    values = [float(one["measurementItems"][0]["value"]) for one in groups]
    sizes = [(labels.array == label).sum() for label in (2, 5, 9)]
    assert values == pytest.approx([size * 0.5 * 0.75 * 2.5 / 1000 for size in sizes])


@pytest.mark.skipif(DCMQI is None, reason=NO_DCMQI)
def test_dcmqi_reads_a_label_map_segmentation(tmp_path: Path) -> None:
    image, labels = images("series", tmp_path)
    (tmp_path / "seg.dcm").write_bytes(dicom_segmentation(labels, "labelmap"))
    dcmqi("segimage2itkimage", "--inputDICOM", tmp_path / "seg.dcm", "--outputDirectory", tmp_path,
          "-t", "nii")  # fmt: skip
    found = nibabel.load(tmp_path / "1.nii.gz")
    ids = np.asanyarray(found.dataobj).astype(np.uint8)[None]
    placed = placed_on(MedicalImage(ids, found.affine, kind="labels"), image)
    np.testing.assert_array_equal(placed.array, labels.array)


@pytest.mark.skipif(DCMQI is None, reason=NO_DCMQI)
def test_a_seg_of_dcmqi_is_read(tmp_path: Path) -> None:
    """Its rows and slices run as in the NIfTI file that it was made from."""
    image = read_image(series(tmp_path / "in"))
    labels = labelled(image)
    labels.save(tmp_path / "labels.nii.gz")
    code = {"CodeValue": "10200004", "CodingSchemeDesignator": "SCT", "CodeMeaning": "Liver"}
    category = {"CodeValue": "85756007", "CodingSchemeDesignator": "SCT", "CodeMeaning": "Tissue"}
    segments = [
        {"labelID": label, "SegmentLabel": name, "SegmentAlgorithmType": "MANUAL",
         "SegmentedPropertyCategoryCodeSequence": category,
         "SegmentedPropertyTypeCodeSequence": code}
        for label, name in ((2, "liver"), (5, "spot"))
    ]  # fmt: skip
    meta = {"ContentCreatorName": "Doe^J", "ContentLabel": "X", "segmentAttributes": [segments]}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    dcmqi("itkimage2segimage", "--inputDICOMDirectory", tmp_path / "in", "--inputImageList",
          tmp_path / "labels.nii.gz", "--inputMetadata", tmp_path / "meta.json",
          "--outputDICOM", tmp_path / "seg.dcm", "--skip", "1")  # fmt: skip
    found = read_image(tmp_path / "seg.dcm", kind="labels")
    assert found.names == {1: "liver", 2: "spot"}
    assert found.codes[1] == LabelCode.parse("10200004,SCT,Liver") or found.codes[1].type.meaning
    wanted = np.searchsorted([0, 2, 5], labels.array)
    np.testing.assert_array_equal(placed_on(found, image).array, wanted)


def test_a_preview_shows_slices_with_labels(tmp_path: Path) -> None:
    image, labels = images("series", tmp_path)
    found = parsed(dicom_preview(image, labels))
    assert found.SOPClassUID == pydicom.uid.SecondaryCaptureImageStorage
    assert (found.PatientID, list(found.PatientOrientation)) == (IDENTITY["PatientID"], ["L", "P"])
    pixels = found.pixel_array.astype(int)
    assert pixels.ndim == 3 and pixels.shape[2] == 3
    assert (np.ptp(pixels, axis=2) > 20).any(), "no label is in colour"
    bare = parsed(dicom_preview(image, replace(labels, array=np.zeros_like(labels.array))))
    assert (np.ptp(bare.pixel_array.astype(int), axis=2) == 0).all()


def test_only_labels_of_dicom_slices_have_them() -> None:
    image = read_image(slice_file(**IDENTITY))
    labels = image.with_array(np.zeros(image.array.shape, np.uint8), kind="labels")
    for without in (image, replace(labels, origin=None)):
        for make in (dicom_segmentation, dicom_report, lambda one: dicom_preview(image, one)):
            with pytest.raises(UnsupportedFormat, match="segment a DICOM series"):
                make(without)
    with pytest.raises(InvalidInput, match="give the image that was segmented"):
        dicom_preview(read_image(encoded(dataset(np.zeros((5, 9), np.uint8)))), labels)
    with pytest.raises(InvalidParameter, match="seg type 'x': must be one of binary, labelmap"):
        dicom_segmentation(labels, "x")  # type: ignore[arg-type]
