"""What ``caps-med segment`` writes for a DICOM series in addition to the label map."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from caps_med.cli.output import check_folder_of, check_free
from caps_med.drafts import write_whole
from caps_med.errors import InvalidParameter

if TYPE_CHECKING:
    from caps_med.images import MedicalImage
    from caps_med.images.dicom_origin import SegType
    from caps_med.inference import Segmentation


@dataclass(frozen=True)
class DicomBeside:
    """The options of the command.

    Attributes:
        seg_type: ``binary`` or ``labelmap``.
        report: the structured report's file; None for none.
        preview: the secondary capture's file; None for none.
    """

    seg_type: str
    report: Path | None
    preview: Path | None

    def check(
        self, out: Path | None, overwrite: bool, *, batch: bool, labels: bool, stored: bool
    ) -> None:
        """Check, before any work, that the requested files can be written.

        Args:
            out: the label map's file; None if it is only stored in an archive.
            overwrite: whether files may already exist.
            batch: whether several images are segmented.
            labels: whether `out` gets the labels, not probabilities.
            stored: whether a DICOM SEG is stored in an archive.

        Raises:
            InvalidParameter: they cannot; the message says what to give.
        """
        given = {
            "--seg-type labelmap": self.kind == "labelmap",
            "--report": self.report is not None,
            "--preview": self.preview is not None,
        }
        for name in (name for name, chosen in given.items() if chosen):
            if batch:
                raise InvalidParameter(
                    f"{name}: only for a single series, not with --input; leave one out"
                )
            if not (stored or (labels and out is not None and _is_dicom(out))):
                raise InvalidParameter(
                    f"{name}: only for a DICOM SEG; give --out a file that ends in .dcm, and "
                    "leave out --probabilities, or store it with --to"
                )
        named = {"--report": self.report, "--preview": self.preview}
        for option, file in named.items():
            if file is not None:
                check_folder_of(file, option)
        files = [file for file in named.values() if file is not None]
        if len({*files, out}) <= len(files):
            raise InvalidParameter("--out, --report and --preview: must be different files")
        if other := next((file for file in files if not _is_dicom(file)), None):
            raise InvalidParameter(f"{other}: the name must end in .dcm, as this is a DICOM file")
        check_free(files, overwrite)

    def write(self, source: MedicalImage, result: Segmentation) -> None:
        """Write the requested files in addition to the label map."""
        from caps_med.images import dicom_preview, dicom_report

        if self.report is not None:
            write_whole(self.report, dicom_report(result, self.kind))
        if self.preview is not None:
            write_whole(self.preview, dicom_preview(source, result))

    @property
    def kind(self) -> SegType:
        """How the DICOM SEG holds the labels.

        Raises:
            InvalidParameter: an unknown way is requested.
        """
        from caps_med.images.dicom_origin import SegType

        for kind in get_args(SegType):
            if kind == self.seg_type:
                known: SegType = kind
                return known
        listed = " or ".join(get_args(SegType))
        raise InvalidParameter(f"--seg-type {self.seg_type}: must be {listed}")


def _is_dicom(file: Path) -> bool:
    from caps_med.images import CODECS

    return file.name.lower().endswith(CODECS["dicom"].suffixes)
