"""Series that hold several volumes, and folders and zips that hold several series."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom.dataset import Dataset
from pydicom.uid import MediaStorageDirectoryStorage, RTStructureSetStorage

from caps_med.errors import (
    InputTooLarge,
    InvalidInput,
    SeveralSeries,
    SeveralVolumes,
    UnsupportedFormat,
)
from caps_med.images import Limits, count_pictures, encode_image, read_image
from caps_med.images.codecs import dicom_series
from caps_med.images.codecs.dicom_geometry import SlicePlane
from caps_med.images.codecs.dicom_stacks import stacks_of
from tests.images.dicom_files import (
    IDENTITY,
    PATIENT,
    SERIES,
    dataset,
    encoded,
    enhanced,
    placed,
    series_file,
    slice_file,
)
from tests.zips import zip_of

ECHO_TIMES = (4.92, 19.7, 104.0)
HEIGHTS = (0.0, 2.0, 4.0)
GREY = np.arange(35, dtype=np.uint16).reshape(5, 7)


def echoes(folder: Path, **removed: None) -> Path:
    """Three echoes of three slices, stored slice by slice; echo k has values from 1000 k."""
    number = 0
    for z in HEIGHTS:
        for echo, time in enumerate(ECHO_TIMES):
            number += 1
            told: dict[str, Any] = {"EchoTime": time, "InstanceNumber": number, **removed}
            made = dataset((GREY + 1000 * echo + 100 * int(z)).astype("u2"), **placed(z), **told)
            made.SOPInstanceUID = f"{SERIES}.{number}"
            (folder / f"{10 * number % 7}-{number}.dcm").write_bytes(encoded(made))
    return folder


def indexed(made: Dataset, indices: Sequence[list[int]]) -> None:
    """Say where each frame of an enhanced file is along the dimensions that the file declares."""
    for group, values in zip(made.PerFrameFunctionalGroupsSequence, indices, strict=True):
        content = Dataset()
        content.DimensionIndexValues = values
        group.FrameContentSequence = [content]


def values_of(volume: int) -> list[int]:
    """The first voxels of its slices."""
    return [1000 * volume + 100 * int(z) for z in HEIGHTS]


@pytest.mark.parametrize("removed", [{}, {"EchoTime": None}])
def test_volumes_are_counted_and_chosen(tmp_path: Path, removed: dict[str, None]) -> None:
    """By what tells them apart, or by the order in which they were taken."""
    folder = echoes(tmp_path, **removed)
    wanted = r"3 volumes of 3 slices each: choose one volume of 0 to 2 with --volume N .*index=N"
    with pytest.raises(SeveralVolumes, match=wanted) as raised:
        read_image(folder)
    assert raised.value.count == 3
    for index in range(3):
        read = read_image(folder, index=index)
        assert read.array[0, 0, 0].tolist() == values_of(index)
        assert read.spacing == (0.75, 0.5, 2.0)
        assert f"volume {index} of 0 to 2" in " ".join(read.warnings)
    with pytest.raises(InvalidInput, match="no volume 3, there are 3: 0 to 2"):
        read_image(folder, index=3)


def test_a_time_of_each_slice_tells_no_volumes_apart(tmp_path: Path) -> None:
    """Each would be a volume of its own."""
    for number in range(9):
        told: dict[str, Any] = {"AcquisitionTime": f"1010{10 + number}", "InstanceNumber": number}
        data = series_file(number, HEIGHTS[number % 3], **told)
        (tmp_path / f"{number}.dcm").write_bytes(data)
    with pytest.raises(SeveralVolumes, match="3 volumes of 3 slices each"):
        read_image(tmp_path)
    assert read_image(tmp_path, index=1).warnings[0] == "DICOM: volume 1 of 0 to 2"


def test_values_in_order_of_their_size_not_of_their_letters(tmp_path: Path) -> None:
    """104 ms after 19.7 ms."""
    assert read_image(echoes(tmp_path), index=2).array.max() == 2434


def test_a_number_that_is_none_does_not_matter() -> None:
    """Of elements that only tell volumes apart, pydicom would refuse these values."""
    made = slice_file(InstanceNumber=1, EchoTime="12")
    number, time = b"\x20\0\x13\0IS\2\0", b"\x18\0\x81\0DS\2\0"
    broken = made.replace(number + b"1 ", number + b"x ").replace(time + b"12", time + b"ms")
    assert broken.count(b"ms") > made.count(b"ms")
    np.testing.assert_array_equal(read_image(broken).array, read_image(made).array)


def test_slices_of_microscopy_are_a_volume() -> None:
    """Micrometres lie between them, as between their pixels."""
    step = 0.004
    files = [
        series_file(k, step * k, PixelSpacing=[step] * 2, InstanceNumber=k) for k in range(1, 4)
    ]
    read = read_image(files)
    assert read.array.shape == (1, 7, 5, 3)
    assert read.spacing == pytest.approx((step,) * 3)


def test_in_a_zip(tmp_path: Path) -> None:
    content = zip_of(*((path.name, path.read_bytes()) for path in echoes(tmp_path).iterdir()))
    assert count_pictures(content) == 3
    assert read_image(content, index=1).array[0, 0, 0].tolist() == values_of(1)


def test_only_the_chosen_volume_counts(tmp_path: Path) -> None:
    folder, limits = echoes(tmp_path), Limits(max_voxels=3 * GREY.size)
    assert read_image(folder, index=1, limits=limits).array.shape == (1, 7, 5, 3)
    with pytest.raises(InputTooLarge, match="max_voxels"):
        read_image(folder, index=1, limits=Limits(max_voxels=3 * GREY.size - 1))


def test_a_missing_slice_of_one_echo_is_no_volume_of_the_others(tmp_path: Path) -> None:
    folder = echoes(tmp_path)
    next(folder.glob("*-5.dcm")).unlink()  # the middle slice of the second echo
    with pytest.raises(InvalidInput, match="not evenly spaced"):
        read_image(folder)


def test_a_series_that_is_there_twice_is_not_two_volumes(tmp_path: Path) -> None:
    for number, z in enumerate(HEIGHTS):
        (tmp_path / f"{number}.dcm").write_bytes(series_file(number, z))
        changed = series_file(number, z, WindowCenter=40)
        (tmp_path / f"copy{number}.dcm").write_bytes(changed)
    with pytest.raises(InvalidInput, match="slices 1 and 2 of 6 lie in one place"):
        read_image(tmp_path)


def test_a_series_of_which_all_files_are_there_twice(tmp_path: Path) -> None:
    """As where a CD was copied into a folder twice; a SEG can refer to it."""
    for number, z in enumerate(HEIGHTS):
        (tmp_path / f"{number}.dcm").write_bytes(series_file(number, z))
    once = read_image(tmp_path)
    shutil.copytree(tmp_path, tmp_path / "again")
    read = read_image(tmp_path, series=SERIES)
    np.testing.assert_array_equal(read.array, once.array)
    assert read.origin == once.origin
    assert "of 3 files there are equal copies" in " ".join(read.warnings)
    content = zip_of(*((str(path), path.read_bytes()) for path in sorted(tmp_path.rglob("*.dcm"))))
    np.testing.assert_array_equal(read_image(content).array, once.array)


def test_three_planes_of_a_localizer(tmp_path: Path) -> None:
    axes = ([1.0, 0, 0, 0, 1, 0], [1.0, 0, 0, 0, 0, -1], [0.0, 1, 0, 0, 0, -1])
    for number, axis in enumerate(axes):
        there = placed(0.0) | {"ImageOrientationPatient": axis}
        (tmp_path / f"{number}.dcm").write_bytes(encoded(dataset(GREY + number, **there)))
    with pytest.raises(SeveralVolumes, match="3 volumes of 1 slices each, which differ in orient"):
        read_image(tmp_path)
    assert read_image(tmp_path, index=2).array.min() == 2


def test_orientations_are_bounded_and_sorted_at_once() -> None:
    """Each frame was compared with one of every orientation: 2,000 took half a minute."""
    axes = np.eye(3)
    planes = [SlicePlane(axes[2] * n, axes[0], axes[1], (1 + n % 2001, 1), 1) for n in range(4000)]
    assert stacks_of(planes[:4]) == [[0], [1], [2], [3]]
    assert stacks_of([*planes[:2000], *planes[2001:]])[-1] == [1999]
    with pytest.raises(InputTooLarge, match=r"more than 2000 orientations .*: split it"):
        stacks_of(planes)


def test_a_slice_without_its_position_is_named(tmp_path: Path) -> None:
    for number in range(3):
        place = {**placed(number), "ImagePositionPatient": None} if number == 1 else placed(number)
        made = dataset(np.zeros((2, 2), "u2"), SOPInstanceUID=f"{SERIES}.{number}", **place)
        (tmp_path / f"{number}.dcm").write_bytes(encoded(made))
    told = r"1 of 3 slices \(1\.dcm\) without position, .*: add what is missing, .* choose one pic"
    with pytest.raises(SeveralVolumes, match=told):
        read_image(tmp_path)
    assert read_image(tmp_path, index=1).array.shape == (1, 2, 2)


@pytest.mark.parametrize(("name", "dtype"), [("Float", "f4"), ("DoubleFloat", "f8")])
def test_pixels_that_are_floats_are_told_as_such(tmp_path: Path, name: str, dtype: str) -> None:
    """Such a slice was taken for a report and left out of its series."""
    made = dataset(np.zeros((2, 2), "u2"), **placed(0))
    (tmp_path / "1.dcm").write_bytes(encoded(made))
    del made.PixelData
    setattr(made, f"{name}PixelData", np.zeros((2, 2), dtype).tobytes())
    (tmp_path / "2.dcm").write_bytes(encoded(made))
    with pytest.raises(UnsupportedFormat, match=r"2.dcm: DICOM: .*\(Float Pixel Data\) .* store"):
        read_image(tmp_path)


def test_a_dicom_seg_of_a_chosen_volume_names_its_slices(tmp_path: Path) -> None:
    for number, z in enumerate([z for z in HEIGHTS for _ in range(2)], start=1):
        more: dict[str, Any] = {"EchoTime": 5 + number % 2, "InstanceNumber": number}
        (tmp_path / f"{number}.dcm").write_bytes(series_file(number, z, **more))
    origin = read_image(tmp_path, index=1).origin
    assert origin is not None
    assert origin.slices == tuple((f"{SERIES}.{number}", 1) for number in (1, 3, 5))


class TestEnhanced:
    FRAMES = np.arange(6, dtype=np.uint16)[:, None, None] + np.zeros((1, 3, 4), np.uint16)

    def file(self) -> bytes:
        """Two time points at three heights, and identifiers."""
        made = enhanced(self.FRAMES, (0.0, 0.0), [z for z in HEIGHTS for _ in range(2)], **IDENTITY)
        for number, group in enumerate(made.PerFrameFunctionalGroupsSequence):
            content = type(made)()
            content.TemporalPositionIndex = number % 2 + 1
            group.FrameContentSequence = [content]
        return encoded(made)

    def test_time_points_of_one_file(self) -> None:
        data = self.file()
        with pytest.raises(SeveralVolumes, match="2 volumes of 3 slices each"):
            read_image(data)
        assert read_image(data, index=0).array[0, 0, 0].tolist() == [0, 2, 4]
        assert read_image(data, index=1).array[0, 0, 0].tolist() == [1, 3, 5]

    def test_an_index_of_the_slices_tells_no_volumes_apart(self) -> None:
        """Of (slice, time point), the first."""
        made = enhanced(self.FRAMES, (0.0, 0.0), [z for z in HEIGHTS for _ in range(2)])
        indexed(made, [[number // 2 + 1, number % 2 + 1] for number in range(6)])
        data = encoded(made)
        assert count_pictures(data) == 2
        assert read_image(data, index=1).array[0, 0, 0].tolist() == [1, 3, 5]

    @pytest.mark.parametrize("told", [((1, "9"), (2, "8")), ((1, "8"), (1, "9")),
                                      ((None, "8"), (None, "9"))])  # fmt: skip
    def test_several_files_of_the_same_places(self, told: Sequence[tuple[int | None, str]]) -> None:
        """In order of Instance Number, or of their identifiers where it is the same."""
        files = []
        for file, (number, identifier) in enumerate(told):
            uid = f"{SERIES}.{identifier}"
            more: dict[str, Any] = {"InstanceNumber": number, "SOPInstanceUID": uid}
            made = enhanced(self.FRAMES[3 * file :][:3], (0.0, 0.0), HEIGHTS, **more)
            indexed(made, [[1, 1], [1, 2], [1, 3]])
            files.append((f"{2 - file}.dcm", encoded(made)))
        content = zip_of(*files)
        with pytest.raises(SeveralVolumes, match="2 volumes of 3 slices each") as raised:
            read_image(content)
        assert raised.value.count == count_pictures(content) == 2
        for index in range(2):
            read = read_image(content, index=index)
            assert read.array[0, 0, 0].tolist() == [3 * index, 3 * index + 1, 3 * index + 2]


class TestSomeFramesWithoutPlace:
    FRAMES = TestEnhanced.FRAMES[:4]
    REFUSED = (
        "DICOM: 1 of 4 frames without position, orientation or pixel spacing: add what is missing"
    )

    def made(self, **changed: Any) -> Dataset:  # noqa: ANN401
        """An enhanced file whose third frame has no position."""
        made = enhanced(self.FRAMES, (0.0, 0.0), (0.0, 2.0, 4.0, 6.0), **changed)
        del made.PerFrameFunctionalGroupsSequence[2].PlanePositionSequence
        return made

    def test_they_are_no_slices_of_1_mm(self) -> None:
        data = encoded(self.made())
        for index in (None, 0):
            with pytest.raises(InvalidInput, match=self.REFUSED):
                read_image(data, index=index)
        with pytest.raises(InvalidInput, match=self.REFUSED):
            count_pictures(data)

    def test_of_several_files_it_is_named(self) -> None:
        content = zip_of(
            ("1.dcm", slice_file(SOPInstanceUID=f"{SERIES}.1")), ("2.dcm", encoded(self.made()))
        )
        with pytest.raises(InvalidInput, match=f"file 2 of the zip: {self.REFUSED}"):
            read_image(content)

    def test_pictures_of_a_cine_can_still_be_chosen(self) -> None:
        data = encoded(self.made(FrameTime=40.0))
        assert count_pictures(data) == 4
        assert read_image(data, index=3).array.shape == (1, 3, 4)

    def test_pictures_beside_slices_can_still_be_chosen(self) -> None:
        """As of a report that was saved as a picture in the series that it is about."""
        report = encoded(dataset(GREY, SOPInstanceUID=f"{SERIES}.2"))
        content = zip_of(("1.dcm", slice_file(SOPInstanceUID=f"{SERIES}.1")), ("2.dcm", report))
        assert count_pictures(content) == 2
        assert read_image(content, index=1).array.shape == (1, 5, 7)


class TestCine:
    FRAMES = np.stack([GREY, GREY + 100])

    def test_it_is_no_volume(self) -> None:
        cine = encoded(dataset(self.FRAMES, FrameTime=40.0))
        with pytest.raises(SeveralVolumes, match="that follow each other in time, not a") as raised:
            read_image(cine)
        assert raised.value.count == count_pictures(cine) == 2
        np.testing.assert_array_equal(read_image(cine, index=1).array[0], GREY + 100)

    @pytest.mark.parametrize("modality", ["US", "XA"])
    def test_by_its_modality(self, modality: str) -> None:
        with pytest.raises(SeveralVolumes, match="in time"):
            read_image(encoded(dataset(self.FRAMES, Modality=modality)))

    def test_colours(self) -> None:
        frames = np.zeros((2, 4, 5, 3), np.uint8)
        frames[1, ..., 0] = 200
        made = dataset(frames[0], NumberOfFrames=2)
        made.PixelData = frames.tobytes()
        assert read_image(encoded(made), index=1).array[:, 0, 0].tolist() == [200, 0, 0]

    def test_frames_without_time_are_a_stack_of_which_one_can_be_chosen(self) -> None:
        stack = encoded(dataset(self.FRAMES))
        assert read_image(stack).array.shape == (1, 7, 5, 2)
        np.testing.assert_array_equal(read_image(stack, index=1).array[0], GREY + 100)


class TestStudy:
    T1, T2 = f"{SERIES}.1000", f"{SERIES}.2000"

    @pytest.fixture
    def study(self, tmp_path: Path) -> Path:
        told = ((self.T1, "T1w MPRAGE", 3), (self.T2, "T2w", 2))
        for uid, description, count in told:
            for number, z in enumerate(HEIGHTS[:count]):
                more = {"SeriesInstanceUID": uid, "SeriesDescription": description}
                data = slice_file(z, Modality="MR", **more)
                (tmp_path / f"{description[:2]}-{number}.dcm").write_bytes(data)
        return tmp_path

    def zipped(self, study: Path) -> bytes:
        return zip_of(*((path.name, path.read_bytes()) for path in sorted(study.iterdir())))

    def sources(self, study: Path) -> Sequence[Any]:
        return study, self.zipped(study), sorted(study.iterdir())

    def test_several_series_are_listed(self, study: Path) -> None:
        listed = (
            rf"several DICOM series: choose one with --series UID .*{self.T1} \(MR, T1w MPRAGE, "
            rf"3 files\); {self.T2} \(MR, T2w, 2 files\)$"
        )
        for source in self.sources(study):
            with pytest.raises(SeveralSeries, match=listed) as raised:
                read_image(source)
            assert raised.value.uids == (self.T1, self.T2)
            assert raised.value.titles[self.T2] == "MR, T2w, 2 files"
            assert PATIENT not in str(raised.value)

    def test_a_folder_for_each_series_of_a_study_or_cd(self, study: Path) -> None:
        for path in sorted(study.iterdir()):
            folder = study / "DICOM" / path.name[:2]
            folder.mkdir(parents=True, exist_ok=True)
            path.rename(folder / path.name)
        directory = dataset(GREY, SOPClassUID=MediaStorageDirectoryStorage)
        del directory.PixelData
        (study / "DICOMDIR").write_bytes(encoded(directory))
        with pytest.raises(SeveralSeries, match="T1w MPRAGE"):
            read_image(study)
        assert read_image(study, series=self.T2).array.shape == (1, 7, 5, 2)
        (study / "here.dcm").write_bytes(slice_file(SeriesInstanceUID=self.T1))
        assert read_image(study).array.shape == (1, 7, 5, 1)  # a series has other folders beside it
        assert read_image(study, series=self.T2).array.shape == (1, 7, 5, 2)

    def test_other_objects_of_a_study_beside_the_folder_of_its_series(self, study: Path) -> None:
        (study / "MR").mkdir()
        for path in study.glob("T1*.dcm"):
            path.rename(study / "MR" / path.name)
        for path in study.glob("T2*.dcm"):
            path.unlink()
        contours = slice_file(SOPClassUID=RTStructureSetStorage, SeriesInstanceUID="1.2.3")
        (study / "contours.dcm").write_bytes(contours)
        assert read_image(study).array.shape == (1, 7, 5, 3)
        shutil.rmtree(study / "MR")
        with pytest.raises(UnsupportedFormat, match="contours"):
            read_image(study)

    def test_a_series_that_cannot_be_read_leaves_the_others(self, study: Path) -> None:
        told: dict[str, Any] = {
            "SeriesInstanceUID": "1.2.3",
            "Modality": "MR",
            "ImageType": ["ORIGINAL", "MOSAIC"],
        }
        (study / "A-mosaic.dcm").write_bytes(slice_file(0.0, **told))
        for source in self.sources(study):
            with pytest.raises(SeveralSeries, match=r"1\.2\.3 \(MR, 1 file\)"):
                read_image(source)
            assert read_image(source, series=self.T2).array.shape == (1, 7, 5, 2)
            with pytest.raises(UnsupportedFormat, match="a mosaic"):
                read_image(source, series="1.2.3")

    def test_a_folder_of_too_much_is_not_read(
        self, study: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dicom_series, "_MAX_ENTRIES", 3)
        with pytest.raises(InputTooLarge, match="more than 3 files and folders: name the folder"):
            read_image(study, series=self.T2)

    def test_one_is_chosen(self, study: Path) -> None:
        for source in self.sources(study):
            assert read_image(source, series=self.T1).array.shape == (1, 7, 5, 3)
            assert read_image(source, series=self.T2).array.shape == (1, 7, 5, 2)

    def test_there_is_no_such_series(self, study: Path) -> None:
        for source in self.sources(study):
            with pytest.raises(InvalidInput, match=rf"no DICOM series 1.2: it contains {self.T1}"):
                read_image(source, series="1.2")

    def test_the_other_series_do_not_count(self, study: Path) -> None:
        limits = Limits(max_voxels=2 * GREY.size)
        assert read_image(study, series=self.T2, limits=limits).array.shape == (1, 7, 5, 2)
        with pytest.raises(InputTooLarge, match="max_voxels"):
            read_image(study, series=self.T1, limits=limits)

    def test_nor_do_their_bytes_files_and_frames(
        self, study: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        size = max(path.stat().st_size for path in study.iterdir())
        limits = Limits(max_bytes=2 * size, max_voxels=2 * GREY.size)
        monkeypatch.setattr(dicom_series, "MAX_FILES", 2)
        large = dataset(np.zeros((3, *GREY.shape), np.uint8), SeriesInstanceUID="1.2.3")
        (study / "A-large.dcm").write_bytes(encoded(large))
        assert read_image(study, series=self.T2, limits=limits).array.shape == (1, 7, 5, 2)
        for series, told in ((self.T1, "max_bytes"), ("1.2.3", "max_voxels")):
            with pytest.raises(InputTooLarge, match=told):
                read_image(study, series=series, limits=limits)
        with pytest.raises(InputTooLarge, match="more than 2 DICOM files in one series"):
            read_image(study, series=self.T1)
        with pytest.raises(SeveralSeries):
            read_image(study, limits=limits)

    def test_of_a_file_it_must_be_its_own(self, study: Path) -> None:
        file = study / "T1-0.dcm"
        assert read_image(file, series=self.T1).array.shape == (1, 7, 5, 1)
        with pytest.raises(InvalidInput, match="the file contains no DICOM series"):
            read_image(file, series=self.T2)

    def test_of_other_files_and_images_none_is_chosen(self, study: Path) -> None:
        image = read_image(study, series=self.T1)
        with pytest.raises(InvalidInput, match="nifti: the file contains no DICOM series"):
            read_image(encode_image(image, "nifti"), series=self.T1)
        with pytest.raises(InvalidInput, match="an image in memory contains no DICOM series"):
            read_image(image, series=self.T1)
        with pytest.raises(InvalidInput, match="cannot be chosen for 2 channels"):
            read_image([image, image], index=0)

    def test_a_description_is_one_short_line(self, study: Path) -> None:
        shutil.rmtree(study, ignore_errors=True)
        hostile = "\n\x1b[31m" + "x" * 5000
        files = [
            (f"{n}.dcm", slice_file(SeriesInstanceUID=f"1.2.{n}", SeriesDescription=hostile))
            for n in range(50)
        ]
        with pytest.raises(SeveralSeries, match=r"and 30 more$") as raised:
            read_image(zip_of(*files))
        assert str(raised.value).isprintable() and len(str(raised.value)) < 3000
