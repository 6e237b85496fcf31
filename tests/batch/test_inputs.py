"""What is found in folders, patterns and lists, and how outputs are named."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pydicom
import pytest
from pydicom.uid import DeflatedExplicitVRLittleEndian, SegmentationStorage

from caps_med.batch import Case, Found, find_cases
from caps_med.batch.cases import with_unambiguous_names
from caps_med.batch.inputs import Skipped
from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage
from tests.images.dicom_files import directory_file, series_file, slice_file, zipped_series


def picture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    MedicalImage(np.zeros((1, 8, 8), np.uint8), format="png").save(path)
    return path


def volume(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    MedicalImage(np.zeros((1, 8, 8, 2), np.uint8), format="nifti").save(path)
    return path


def names(found: Found) -> list[str]:
    return [case.name for case in found.cases]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "in"
    picture(root / "b.png")
    picture(root / "a.TIF")
    volume(root / "sub/deep/scan.1.nii.gz")
    for name in ("Thumbs.db", "notes.txt", "table.csv", ".DS_Store", ".hidden/c.png", "sub/x.json"):
        stranger = root / name
        stranger.parent.mkdir(parents=True, exist_ok=True)
        stranger.write_bytes(b"not an image")
    return root


def test_a_folder_with_strangers(folder: Path) -> None:
    found = find_cases([folder])
    assert names(found) == ["a", "b", "sub/deep/scan.1"]
    assert [case.suffix for case in found.cases] == [".tif", ".png", ".nii.gz"]
    reasons = {one.path: one.reason for one in found.skipped}
    assert reasons == {
        ".DS_Store": "hidden",
        "Thumbs.db": "not an image",
        "notes.txt": "not an image",
        "table.csv": "not an image",
        "sub/x.json": "not an image",
    }


def test_voxels_beside_a_header_belong_to_its_case(tmp_path: Path) -> None:
    files = ("p.hdr", "p.img", "q.hdr.gz", "q.img.gz", "x.mhd", "x.raw", "y.mhd", "y.zraw", "z.raw")
    for name in files:
        (tmp_path / name).write_bytes(b"NDims = 2")
    found = find_cases([tmp_path])
    assert names(found) == ["p", "q", "x", "y"]
    assert [one.path for one in found.skipped] == ["z.raw"]
    case = found.cases[2]
    before = case.fingerprint()
    (tmp_path / "x.raw").write_bytes(b"other voxels")
    assert case.fingerprint() != before


def test_the_folder_of_the_outputs_is_no_input(folder: Path) -> None:
    picture(folder / "out/b.png")
    assert "out/b" in names(find_cases([folder]))
    assert "out/b" not in names(find_cases([folder], leave_out=folder / "out"))


def test_what_matches_a_pattern_is_no_output(folder: Path) -> None:
    picture(folder / "out/b.png")
    for pattern in ("**/*.png", "*"):
        found = find_cases([folder / pattern], leave_out=folder / "out")
        assert "out/b" not in names(found) and "b" in names(found)
    assert names(find_cases([folder / "out/*.png"], leave_out=folder / "out")) == ["b"]


def test_links_are_followed_inside_the_folder_alone(folder: Path, tmp_path: Path) -> None:
    outside = picture(tmp_path / "elsewhere/secret.png")
    (folder / "link.png").symlink_to(outside)
    (folder / "folder").symlink_to(outside.parent)
    (folder / "same.png").symlink_to("b.png")
    (folder / "lost.png").symlink_to("nowhere.png")
    (folder / "circle.png").symlink_to("circle.png")
    found = find_cases([folder])
    assert names(found) == ["a", "b", "same", "sub/deep/scan.1"]
    reasons = {one.path: one.reason for one in found.skipped}
    assert reasons["link.png"] == "a link out of the folder"
    assert reasons["folder"] == "a link out of the folder"
    assert reasons["circle.png"] == "not a file"
    assert reasons["lost.png"] == "not a file"
    assert names(find_cases([folder / "link.png"])) == ["link"], "named by hand it is meant"


def test_a_name_that_is_no_text_is_skipped(folder: Path) -> None:
    """It could stand in no table."""
    before = names(find_cases([folder]))
    os.link(folder / "b.png", os.fsencode(folder) + b"/n\xe9.png")
    found = find_cases([folder])
    assert names(found) == before
    assert {one.path: one.reason for one in found.skipped}["n\\udce9.png"] == (
        "a name that is no text in UTF-8: rename it"
    )


@pytest.mark.parametrize("named", ["", "*"])
def test_a_pipe_is_skipped(folder: Path, named: str) -> None:
    """Opening one waits until somebody writes into it; this one is filled, so that no test does."""
    os.mkfifo(folder / "pipe")
    pipe = os.open(folder / "pipe", os.O_RDWR)
    os.write(pipe, bytes(20_000))
    found = find_cases([str(folder / named)])
    assert "b" in names(found)
    assert {one.path: one.reason for one in found.skipped}["pipe"] == "not a file"
    assert len(os.read(pipe, 99_999)) == 20_000
    os.close(pipe)


def test_patterns_files_and_lists(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert names(find_cases(["in/**/*.nii.gz"])) == ["scan.1"]
    assert names(find_cases(["in/*", "in/b.png"])) == ["a", "b", "sub/deep/scan.1"]
    assert names(find_cases([Path("in/b.png"), "in/sub"])) == ["b", "sub/deep/scan.1"]
    listed = tmp_path / "in/list.txt"
    listed.write_text("# of the study\nb.png\n\n  sub/deep  \n")
    assert names(find_cases(["in/list.txt"])) == ["b", "sub/deep/scan.1"]
    other = picture(tmp_path / "other/b.png")
    assert names(find_cases([other, "in/b.png"])) == ["in/b", "other/b"]


@pytest.mark.parametrize("study", ["study [1]", "study*", "study?"])
def test_patterns_below_a_folder_whose_name_looks_like_one(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture(tmp_path / study / "scans/a.png")
    picture(tmp_path / study / "scans/sub/b.png")
    picture(tmp_path / "study 1/scans/other.png")
    assert names(find_cases([tmp_path / study / "scans/*.png"])) == ["a"]
    monkeypatch.chdir(tmp_path / study)
    assert names(find_cases(["scans/*.png"])) == ["a"]
    assert names(find_cases(["sc[a]ns/**/*.png"])) == ["a", "sub/b"]
    Path("list.txt").write_text("scans/sub/*.png\n")
    assert names(find_cases(["list.txt"])) == ["b"]


def test_what_is_given_several_times_counts_once(folder: Path) -> None:
    """A pattern with ** matches folders and their files; a file that is named is read as well."""
    once = find_cases([folder])
    for given in (f"{folder}/**", folder / "sub"):
        found = find_cases([folder, given])
        assert (names(found), set(found.skipped)) == (names(once), set(once.skipped))
        assert len(found.skipped) == len(once.skipped)
    (folder / "plain").write_bytes((folder / "b.png").read_bytes())
    assert Skipped("plain", "not an image") in find_cases([folder]).skipped
    found = find_cases([folder, folder / "plain"])
    assert "plain" in names(found) and set(found.skipped) == set(once.skipped)


def test_a_list_may_begin_with_the_mark_of_notepad(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in/list.txt").write_text("b.png\nsub\n", encoding="utf-8-sig")
    assert names(find_cases([tmp_path / "in/list.txt"])) == ["b", "sub/deep/scan.1"]


def test_a_single_input_is_not_read_letter_by_letter(folder: Path) -> None:
    wanted = names(find_cases([folder]))
    assert names(find_cases(folder)) == wanted == names(find_cases(str(folder)))


def test_a_list_among_other_inputs_is_skipped(folder: Path, tmp_path: Path) -> None:
    lists = [tmp_path / "a.txt", tmp_path / "b.lst"]
    for one in lists:
        one.write_text("in\n")
    found = find_cases([lists[0], tmp_path / "in/sub"])
    assert [one.reason for one in found.skipped if one.path == "a.txt"] == [
        "a text file; as a list of inputs it must be the only input"
    ]
    with pytest.raises(InvalidInput, match=r"2 other files skipped .*must be the only input"):
        find_cases(lists)


def test_a_folder_may_be_called_like_a_list(tmp_path: Path) -> None:
    picture(tmp_path / "study.txt/a.png")
    assert names(find_cases([tmp_path / "study.txt"])) == ["a"]


def test_what_is_not_there(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere\*: no such file or folder"):
        find_cases([tmp_path / "nowhere*"])
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/notes.md").write_text("-")
    with pytest.raises(InvalidInput, match=r"found, 1 other file skipped \(not an image\)$"):
        find_cases([tmp_path / "empty"])
    with pytest.raises(InvalidInput, match="no input given"):
        find_cases([])
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="not a list of inputs"):
        find_cases([tmp_path / "binary.txt"])


def test_a_study_is_a_case_for_each_series(tmp_path: Path) -> None:
    """Series in folders of their own or in one; radiographs, which are no volume, by themselves."""
    study = tmp_path / "study"
    with zipfile.ZipFile(io.BytesIO(zipped_series())) as archive:
        slices = [archive.read(name) for name in sorted(archive.namelist())]
    for series, directory in (("1.2.3", "t1"), ("1.2.4", "both"), ("1.2.5", "both")):
        for number in range(2):
            file = study / directory / f"{series}-{number}"
            file.parent.mkdir(parents=True, exist_ok=True)
            position = [0, 0, 2.5 * number]
            file.write_bytes(
                slice_file(
                    SeriesInstanceUID=series, SeriesNumber=series[-1],
                    ImagePositionPatient=position,
                )
            )  # fmt: skip
    (study / "t1/README").write_text("not DICOM")
    (study / "broken.dcm").write_bytes(slices[0][:140])
    (study / "DICOMDIR").write_bytes(directory_file(entries=200))
    found = find_cases([study])
    assert names(found) == ["both/series4", "both/series5", "broken", "t1"]
    assert Skipped("DICOMDIR", "DICOM without a picture") in found.skipped
    sizes = {case.name: len(case.files) for case in found.cases}
    assert sizes == {"both/series4": 2, "both/series5": 2, "broken": 1, "t1": 2}
    assert names(find_cases([study / "t1"])) == ["t1"]


@pytest.mark.parametrize("deflated", [False, True])
def test_a_header_that_is_longer_than_what_is_read_first(deflated: bool, tmp_path: Path) -> None:
    for number in range(2):
        made = pydicom.dcmread(io.BytesIO(slice_file(SeriesNumber="7")))
        made.ImagePositionPatient = [0, 0, 2.5 * number]
        made.add_new((0x0009, 0x0010), "LO", "somebody")
        made.add_new((0x0009, 0x1001), "OB", np.random.default_rng(number).bytes(40_000))
        if deflated:
            made.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
        made.save_as(tmp_path / f"{number}")
    (case,) = find_cases([tmp_path]).cases
    assert len(case.files) == 2


def test_of_label_maps_the_images_beside_a_dicom_seg_are_skipped(tmp_path: Path) -> None:
    """As where that folder is read as one label map."""
    for patient in ("a", "b"):
        (tmp_path / patient).mkdir()
        for number in range(2):
            (tmp_path / patient / f"{number}.dcm").write_bytes(series_file(number, 2.5 * number))
    segments = slice_file(Modality="SEG", SOPClassUID=SegmentationStorage, SeriesInstanceUID="2.3")
    (tmp_path / "a/seg.dcm").write_bytes(segments)
    assert names(find_cases([tmp_path])) == ["a", "b"]
    found = find_cases([tmp_path], kind="labels")
    assert names(found) == ["a/seg", "b"]
    assert found.skipped == tuple(
        Skipped(f"a/{number}.dcm", "an image beside a DICOM segmentation") for number in range(2)
    )


def test_channels_in_files_of_their_own_are_one_case(tmp_path: Path) -> None:
    for name in ("p1_0000", "p1_0001", "p2_0000", "single"):
        volume(tmp_path / f"{name}.nii.gz")
    found = find_cases([tmp_path], channels=2)
    assert names(found) == ["p1", "p2_0000", "single"]
    assert [path.name for path in found.cases[0].files] == ["p1_0000.nii.gz", "p1_0001.nii.gz"]
    every = ["p1_0000", "p1_0001", "p2_0000", "single"]
    assert names(find_cases([tmp_path])) == names(find_cases([tmp_path], channels=1)) == every


def test_a_folder_of_first_channels_alone_is_named_without_them(tmp_path: Path) -> None:
    for name in ("imagesTs/p1_0000", "imagesTs/p2_0000", "frames/f_0000", "frames/f_0001"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        volume(tmp_path / f"{name}.nii.gz")
    assert names(find_cases([tmp_path], channels=1)) == [
        "frames/f_0000", "frames/f_0001", "imagesTs/p1", "imagesTs/p2"
    ]  # fmt: skip
    maps = find_cases([tmp_path / "imagesTs"], channels=1, kind="labels")
    assert names(maps) == ["p1_0000", "p2_0000"]


def claimed(name: str) -> list[str]:
    return [name, f"{name}_probabilities"]


def renamed(*files: str) -> list[str]:
    """The names of the outputs of files."""
    cases = [Case(Path(f).stem, (Path(f),), f, Path(f).suffix.lower()) for f in files]
    return [case.name for case in with_unambiguous_names(cases, claimed)]


@pytest.mark.parametrize(
    "files",
    [
        ["a.png", "a.tif", "B.png", "b.png", "c.png", "c_probabilities.png", "d.png"],
        ["a.PNG", "a.png", "a_png-1.png", "a_png-1-1.png", "a_png-2_probabilities.png"],
        ["cases.png", "cases_png.tif", "Cases.PNG"],
    ],
)
def test_outputs_never_meet(files: list[str]) -> None:
    outputs = renamed(*files)
    every = [each.casefold() for name in outputs for each in claimed(name)]
    assert len(set(every)) == len(every) and "cases" not in every


def test_names_stay_where_outputs_do_not_meet() -> None:
    assert renamed("a.png", "a.tif", "d.png") == ["a_png", "a_tif", "d"]
