"""What is asked for beside a DICOM SEG is checked before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from caps_med.cli.dicom_beside import DicomBeside
from caps_med.errors import InvalidParameter

REPORT, PREVIEW = Path("volumes.dcm"), Path("preview.dcm")


def check(beside: DicomBeside, out: str | None = "seg.dcm", **changed: Any) -> None:  # noqa: ANN401
    file = None if out is None else Path(out)
    beside.check(
        file, **{"overwrite": False, "batch": False, "labels": True, "stored": False, **changed}
    )


def test_what_can_be_written_passes() -> None:
    check(DicomBeside("labelmap", REPORT, PREVIEW))
    check(DicomBeside("binary", None, None), "labels.nii.gz", batch=True)
    for out in (None, "labels.nii.gz"):
        check(DicomBeside("labelmap", REPORT, PREVIEW), out, stored=True)


@pytest.mark.parametrize(
    ("beside", "out", "changed", "message"),
    [
        (DicomBeside("binary", REPORT, None), "x.nii.gz", {}, "--report: only for a DICOM SEG"),
        (
            DicomBeside("labelmap", None, None),
            "x.png",
            {},
            "--seg-type labelmap: only for a DICOM SEG",
        ),
        (
            DicomBeside("binary", None, PREVIEW),
            "x.dcm",
            {"labels": False},
            "--preview: only for a DICOM SEG",
        ),
        (
            DicomBeside("binary", None, PREVIEW),
            "x.dcm",
            {"batch": True},
            "only for a single series",
        ),
        (
            DicomBeside("binary", Path("r.txt"), None),
            "x.dcm",
            {},
            "r.txt: the name must end in .dcm",
        ),
        (DicomBeside("binary", REPORT, REPORT), "x.dcm", {}, "must be different files"),
        (
            DicomBeside("binary", Path("none/r.dcm"), None),
            "x.dcm",
            {},
            "--report none/r.dcm: there is no folder none; create it first",
        ),
        (
            DicomBeside("binary", None, Path("none/p.dcm")),
            "x.dcm",
            {},
            "--preview none/p.dcm: there is no folder none; create it first",
        ),
        (DicomBeside("pixels", None, None), "x.dcm", {}, "pixels: must be binary or labelmap"),
    ],
)
def test_what_cannot_is_refused(
    beside: DicomBeside, out: str, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidParameter, match=message):
        check(beside, out, **changed)


def test_files_that_are_there_are_kept(tmp_path: Path) -> None:
    there = tmp_path / "volumes.dcm"
    there.touch()
    with pytest.raises(InvalidParameter, match="exists: name another file, or add --overwrite"):
        check(DicomBeside("binary", there, None))
    check(DicomBeside("binary", there, None), overwrite=True)
