"""DICOM SEG read as label maps: files of this library, of highdicom, and broken ones."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import highdicom
import numpy as np
import pydicom
import pytest
from highdicom.seg import SegmentationFractionalTypeValues, SegmentDescription
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes
from pydicom.uid import ExplicitVRLittleEndian, RLELossless, RTStructureSetStorage

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import (
    DEFAULT_LIMITS,
    Limits,
    MedicalImage,
    encode_image,
    placed_on,
    read_image,
)
from caps_med.images.codecs import dicom_segments
from caps_med.images.codecs.dicom_kinds import MOST_SEGMENTS
from caps_med.images.codecs.dicom_seg import segmentation
from caps_med.images.dicom_origin import SegType
from caps_med.images.image import Array
from tests.images.codecs.test_dicom_seg import frames, labelled, series
from tests.images.dicom_files import IDENTITY, slice_file
from tests.zips import zip_of

NAMES = {0: "background", 2: "left hippocampus", 5: "tumor"}


def read_labels(content: bytes | Path, limits: Limits = DEFAULT_LIMITS) -> MedicalImage:
    return read_image(content, kind="labels", limits=limits)


def written(labels: MedicalImage, kind: SegType = "binary") -> bytes:
    assert labels.origin is not None
    return segmentation(labels, labels.origin, kind)


def test_a_series_and_a_volume_may_be_chosen_and_must_be_there(tmp_path: Path) -> None:
    labels = labelled(read_image(frames()))
    one = written(labels)
    other = written(labels.with_array(np.where(labels.array == 2, 0, labels.array)))
    uid = str(pydicom.dcmread(io.BytesIO(one)).SeriesInstanceUID)
    wanted = read_labels(one).array
    for name, content in (("a", one), ("b", other)):
        (tmp_path / f"{name}.dcm").write_bytes(content)
    zipped = zip_of(("a.dcm", one), ("b.dcm", other))
    for source in (one, tmp_path / "a.dcm", tmp_path, zipped):
        found = read_image(source, kind="labels", series=uid, index=0)
        np.testing.assert_array_equal(found.array, wanted)
        with pytest.raises(InvalidInput, match=r"contains no DICOM SEG of the series 1\.2"):
            read_image(source, kind="labels", series="1.2")
        with pytest.raises(InvalidInput, match="no picture 1, it is one image"):
            read_image(source, kind="labels", series=uid, index=1)


@pytest.mark.parametrize("kind", ["binary", "labelmap"])
@pytest.mark.parametrize("source", ["series", "frames"])
def test_a_label_map_comes_back(tmp_path: Path, source: str, kind: SegType) -> None:
    """Its slices without labels are left out; a label map keeps its ids, segments are counted."""
    image = read_image(series(tmp_path) if source == "series" else frames())
    labels = replace(labelled(image), names=NAMES)
    found = read_labels(written(labels, kind))
    assert found.kind == "labels" and found.spatial_shape == (7, 5, 2)
    wanted = labels.array if kind == "labelmap" else np.searchsorted([0, 2, 5], labels.array)
    np.testing.assert_array_equal(placed_on(found, image).array, wanted)
    first, second = (2, 5) if kind == "labelmap" else (1, 2)
    assert found.names == {first: "left hippocampus", second: "tumor"}
    assert found.codes[first].type.meaning == "Hippocampus"
    assert found.codes[first].laterality == "left"
    assert found.codes[second].category.meaning == "Morphologically Abnormal Structure"
    assert found.palette is not None and labels.palette is None
    assert found.warnings == ()


def sources(tmp_path: Path) -> list[Dataset]:
    """Four slices in the order of their heights: 0, 2.5, 5 and 7.5 mm."""
    folder = series(tmp_path / "in", Modality="CT", ContentDate="20260102")
    found = [pydicom.dcmread(path) for path in folder.iterdir()]
    return sorted(found, key=lambda one: float(one.ImagePositionPatient[2]))


def test_a_folder_or_zip_of_one_is_that_one(tmp_path: Path) -> None:
    """As archives send the series of a SEG."""
    content = written(labelled(read_image(frames())))
    wanted = read_labels(content)
    (tmp_path / "seg").mkdir()
    (tmp_path / "seg" / "a.dcm").write_bytes(content)
    (tmp_path / "seg" / "notes.txt").write_text("no image")
    contours = slice_file(SOPClassUID=RTStructureSetStorage)
    (tmp_path / "seg" / "0-contours.dcm").write_bytes(contours)  # read before it
    zipped = zip_of(("s/a.dcm", content)), zip_of(("s/0.dcm", contours), ("s/a.dcm", content))
    for source in (tmp_path / "seg", *zipped):
        np.testing.assert_array_equal(read_labels(source).array, wanted.array)
    with pytest.raises(InvalidInput, match="the zip contains several DICOM SEG"):
        read_labels(zip_of(("a.dcm", content), ("b.dcm", content)))
    with pytest.raises(UnsupportedFormat, match="a segmentation is no image"):
        read_image(tmp_path / "seg")


def test_beside_a_series_it_is_the_label_map(tmp_path: Path) -> None:
    """As in the folder of a study; it may be chosen by its series, too."""
    content = written(labelled(read_image(series(tmp_path))))
    wanted = read_labels(content)
    (tmp_path / "seg.dcm").write_bytes(content)
    uid = str(pydicom.dcmread(io.BytesIO(content)).SeriesInstanceUID)
    files = [(path.name, path.read_bytes()) for path in tmp_path.iterdir()]
    for source in (tmp_path, [*tmp_path.iterdir()], zip_of(*files)):
        for chosen in (None, uid):
            found = read_image(source, kind="labels", series=chosen)
            np.testing.assert_array_equal(found.array, wanted.array)
            assert found.names == wanted.names
        with pytest.raises(UnsupportedFormat, match="a segmentation is no image"):
            read_image(source, series=uid)
        with pytest.raises(InvalidInput, match=r"contains no DICOM series 1\.2: it contains"):
            read_image(source, kind="labels", series="1.2")


def test_a_cut_file_blocks_what_it_belongs_to(tmp_path: Path) -> None:
    """Which its beginning says; a file that does not say it blocks all."""
    content = written(labelled(read_image(series(tmp_path))))
    wanted, image = read_labels(content).array, read_image(tmp_path).array
    slice_name, whole = next((path.name, path.read_bytes()) for path in tmp_path.iterdir())
    of_seg, of_series = (
        str(pydicom.dcmread(io.BytesIO(one)).SeriesInstanceUID) for one in (content, whole)
    )
    (tmp_path / slice_name).write_bytes(whole[:-9])
    (tmp_path / "seg.dcm").write_bytes(content)
    files = [(path.name, path.read_bytes()) for path in tmp_path.iterdir()]
    for source in (tmp_path, zip_of(*files)):
        for chosen in (None, of_seg):
            np.testing.assert_array_equal(
                read_image(source, kind="labels", series=chosen).array, wanted
            )
        for chosen in (None, of_series):
            with pytest.raises(InvalidInput, match="an element reaches past"):
                read_image(source, series=chosen)
    (tmp_path / slice_name).write_bytes(whole)
    (tmp_path / "seg.dcm").write_bytes(content[:-9])
    np.testing.assert_array_equal(read_image(tmp_path).array, image)
    for chosen in (None, of_seg):
        with pytest.raises(InvalidInput, match=r"seg.dcm: DICOM: an element reaches past"):
            read_image(tmp_path, kind="labels", series=chosen)
    (tmp_path / "seg.dcm").write_bytes(content)
    (tmp_path / "another.dcm").write_bytes(content[:-9])  # which of both, nobody knows
    with pytest.raises(InvalidInput, match=r"another.dcm: DICOM: an element reaches past"):
        read_labels(tmp_path)
    (tmp_path / "another.dcm").write_bytes(whole[:300])
    for kind in ("image", "labels"):
        with pytest.raises(InvalidInput, match=r"another.dcm: DICOM"):
            read_image(tmp_path, kind=kind)


def of_highdicom(tmp_path: Path, array: Array, kind: str, **more: Any) -> Dataset:  # noqa: ANN401
    """A SEG of an array `[slices, 5, 7, segments]`, or `[slices, 5, 7]` of numbers."""
    count = array.shape[3] if array.ndim == 4 else int(array.max())
    described = [
        SegmentDescription(
            number, f"part {number}", codes.cid7150.Tissue, codes.cid7192.Liver, "MANUAL"
        )
        for number in range(1, count + 1)
    ]
    found: Dataset = highdicom.seg.Segmentation(
        sources(tmp_path)[: len(array)], array, kind, described,
        f"{IDENTITY['StudyInstanceUID']}.1", 1, f"{IDENTITY['StudyInstanceUID']}.2", 1,
        "maker", "model", "1", "2",
        **more,
    )  # fmt: skip
    return found


def content_of(made: Dataset) -> bytes:
    file = io.BytesIO()
    made.save_as(file, enforce_file_format=True)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["BINARY", "LABELMAP"])
def test_that_of_a_single_slice_lies_on_it(tmp_path: Path, kind: str) -> None:
    """highdicom says 1 mm of it, whatever the slice."""
    array = np.zeros((1, 5, 7), np.uint8)
    array[0, 1:3, 2:5] = 1
    found = read_labels(content_of(of_highdicom(tmp_path, array, kind)))
    image = read_image(sources(tmp_path)[:1])
    assert image.spacing == (0.75, 0.5, 2.5) and found.spacing == (0.75, 0.5, 1.0)
    placed = placed_on(found, image)
    np.testing.assert_array_equal(placed.array[0, ..., 0].T, array[0])
    assert placed.spacing == image.spacing


def test_where_segments_overlap_is_told(tmp_path: Path) -> None:
    array = np.zeros((4, 5, 7, 2), bool)
    array[1, 1:4, 1:4, 0] = array[1, 2:4, 2:6, 1] = True
    found = read_labels(content_of(of_highdicom(tmp_path, array, "BINARY")))
    assert found.warnings == (
        "DICOM SEG: segments overlap at 4 voxels; the one with the highest number is kept",
    )
    wanted = np.where(array[1, ..., 1], 2, array[1, ..., 0])
    np.testing.assert_array_equal(found.array[0, ..., 0].T, wanted)


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, RLELossless])
def test_shares_from_a_half_on_are_labelled(tmp_path: Path, syntax: str) -> None:
    array = np.zeros((4, 5, 7, 2))
    array[2, 2, 1:6, 0] = [0.2, 0.49, 0.51, 0.6, 0.9]
    array[2, 2, 1:6, 1] = [0.8, 0.51, 0.49, 0.7, 0.1]
    made = of_highdicom(
        tmp_path, array, "FRACTIONAL", max_fractional_value=200,
        fractional_type=SegmentationFractionalTypeValues.OCCUPANCY,
    )  # fmt: skip
    if syntax == RLELossless:
        made.compress(RLELossless, encoding_plugin="pydicom")
    found = read_labels(content_of(made))
    assert found.array[0, 1:6, 2, 0].tolist() == [2, 2, 1, 2, 1]
    assert found.warnings == (
        "DICOM SEG: fractional; shares from 0.5 on are labelled",
        "DICOM SEG: segments overlap at 1 voxels; the one with the largest share is kept",
    )


def test_slices_without_a_frame_are_background(tmp_path: Path) -> None:
    array = np.zeros((4, 5, 7), np.uint8)
    array[[0, 3], 2, 3] = 1
    made = of_highdicom(tmp_path, array, "BINARY")
    measures = made.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0]
    measures.SpacingBetweenSlices = 2.5
    found = read_labels(content_of(made))
    assert found.array[0, 3, 2].tolist() == [1, 0, 0, 1]
    del measures.SpacingBetweenSlices  # then these two are neighbours, 7.5 mm apart
    found = read_labels(content_of(made))
    assert found.array[0, 3, 2].tolist() == [1, 1]
    assert found.spacing == pytest.approx((0.75, 0.5, 7.5))


def test_frames_without_a_place_are_a_picture() -> None:
    image = read_image(slice_file(**IDENTITY))
    labels = image.with_array((image.array > 22).astype(np.uint8), kind="labels")
    made = pydicom.dcmread(io.BytesIO(encode_image(labels, "dicom")))
    del made.PerFrameFunctionalGroupsSequence[0].PlanePositionSequence
    found = read_labels(content_of(made))
    assert found.spatial_dims == 2 and found.format == "png"
    np.testing.assert_array_equal(found.array[0], labels.array[0, ..., 0].T)


def broken(change: Callable[[Dataset], None], kind: SegType = "binary") -> bytes:
    """A SEG of four frames after a change."""
    made = pydicom.dcmread(io.BytesIO(written(labelled(read_image(frames())), kind)))
    change(made)
    return content_of(made)


def first_group(made: Dataset) -> Dataset:
    return made.PerFrameFunctionalGroupsSequence[0]  # type: ignore[no-any-return]


def move(made: Dataset, z: float) -> None:
    first_group(made).PlanePositionSequence[0].ImagePositionPatient = [-10.0, 20.0, z]


def with_spacing(made: Dataset, spacing: float) -> None:
    shared = made.SharedFunctionalGroupsSequence[0]
    shared.PixelMeasuresSequence[0].SpacingBetweenSlices = spacing


def uneven(made: Dataset) -> None:
    """On a grid of countless slices, the frames would lie."""
    move(made, 9.1)
    with_spacing(made, 1e-300)


def of_unknown_segment(made: Dataset) -> None:
    first_group(made).SegmentIdentificationSequence[0].ReferencedSegmentNumber = 9


def twice(made: Dataset) -> None:
    made.SegmentSequence[1].SegmentNumber = 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda m: setattr(m, "NumberOfFrames", 4000),
            InvalidInput,
            "describes .* bytes",
        ),
        (lambda m: setattr(m, "NumberOfFrames", 2), InvalidInput, "3 frames are described"),
        (lambda m: setattr(m, "Rows", 60000), InvalidInput, "bytes of pixels, there are"),
        (lambda m: setattr(m, "Rows", 0), InvalidInput, "it holds no frame"),
        (
            lambda m: setattr(m, "SegmentationType", "SURFACE"),
            UnsupportedFormat,
            "its type must",
        ),
        (lambda m: setattr(m, "SamplesPerPixel", 3), UnsupportedFormat, "one sample of 1, 8"),
        (lambda m: move(m, 1e9), InvalidInput, "affine is singular"),
        (uneven, InvalidInput, "not evenly spaced"),
        (lambda m: move(m, float("nan")), InvalidInput, "NaN or infinity"),
        (
            lambda m: delattr(first_group(m), "PlanePositionSequence"),
            InvalidInput,
            "1 of 3 frames without position",
        ),
        (of_unknown_segment, InvalidInput, "a frame is of segment 9, which is missing"),
        (twice, InvalidInput, "two segments have one number"),
        (lambda m: delattr(m, "PerFrameFunctionalGroupsSequence"), InvalidInput, "of segment 0"),
    ],
)
def test_a_broken_file_is_refused(
    change: Callable[[Dataset], None], error: type[CapsMedError], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_labels(broken(change))


@pytest.mark.parametrize("read", [dicom_segments.read_segments, dicom_segments.described_segments])
def test_whatever_pydicom_raises_is_an_error_of_this_library(read: Callable[..., object]) -> None:
    number = b"\x62\x00\x04\x00US\x02\x00"
    content = broken(lambda made: None).replace(number, number.replace(b"US", b"FD"))
    with pytest.raises(InvalidInput, match="DICOM SEG: the file is cut or broken"):
        read(content, DEFAULT_LIMITS)


def test_a_label_map_has_one_frame_a_slice() -> None:
    def repeat(made: Dataset) -> None:
        position = made.PerFrameFunctionalGroupsSequence[1].PlanePositionSequence[0]
        first_group(made).PlanePositionSequence[
            0
        ].ImagePositionPatient = position.ImagePositionPatient

    with pytest.raises(InvalidInput, match="two frames of a label map lie on one slice"):
        read_labels(broken(repeat, "labelmap"))


@pytest.mark.parametrize("kind", ["binary", "labelmap"])
def test_as_many_segments_are_written_as_are_read(kind: SegType) -> None:
    """Beside the background, which highdicom adds to label maps."""
    named = {number: f"part {number}" for number in range(MOST_SEGMENTS + 1)}
    labels = replace(labelled(read_image(frames())), names=named)
    found = read_labels(written(labels, kind))
    assert set(found.names) == set(named) - {0}
    np.testing.assert_array_equal(found.array[found.array > 0], labels.array[labels.array > 0])
    more = replace(labels, names={**named, len(named): "one more"})
    with pytest.raises(UnsupportedFormat, match=r"map of 501 labels .* 500 are the most: write n"):
        written(more, kind)


def test_segments_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dicom_segments, "MOST_SEGMENTS", 1)
    with pytest.raises(InputTooLarge, match="more than 1 segments"):
        read_labels(written(labelled(read_image(frames()))))
    monkeypatch.undo()
    with pytest.raises(InputTooLarge, match="max_voxels"):
        read_labels(written(labelled(read_image(frames()))), Limits(max_voxels=60))


def test_names_are_printable_and_codes_are_codes() -> None:
    def change(made: Dataset) -> None:
        first, second = made.SegmentSequence
        first.SegmentLabel = "a\nb" + "x" * 80
        second.SegmentLabel = ""
        first.SegmentedPropertyTypeCodeSequence[0].CodeMeaning = ""

    with pydicom.config.disable_value_validation():
        found = read_labels(broken(change))
    assert found.names == {1: "a b" + "x" * 61, 2: "label 2"}
    assert list(found.codes) == [2]
