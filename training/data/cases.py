"""What a folder of data is, before any pixel is read: cases, each an image and its label map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from caps_med.errors import InvalidInput

#: So many names are told in a message; the rest is counted.
_TOLD = 10


@dataclass(frozen=True)
class FileRef:
    """A file, or one picture of a stack of pictures.

    Attributes:
        path: the file; for a DICOM series its folder.
        index: which picture of an npy stack ``[N, H, W(, C)]`` or a multi-page TIFF, which volume
            of a NIfTI file of four axes; None for the whole file.
    """

    path: Path
    index: int | None = None

    def __str__(self) -> str:
        """The file's name, with the picture's number in a stack."""
        return self.path.name if self.index is None else f"{self.path.name}[{self.index}]"


@dataclass(frozen=True)
class Case:
    """One labelled image.

    Attributes:
        name: unique in its data set; the file's stem without suffixes such as ``_seg``.
        images: one file, or one a channel (nnU-Net's ``_0000``, ``_0001``).
        label: its label map.
        group: what must not be split between training and validation (a patient, a volume);
            the case's own name by default.
    """

    name: str
    images: tuple[FileRef, ...]
    label: FileRef
    group: str = ""

    @property
    def grouped(self) -> str:
        """The group, or the name where there is none."""
        return self.group or self.name


@dataclass(frozen=True)
class Unpaired:
    """A file that belongs to no case: `what` is wrong, and the `fix`."""

    path: Path
    what: str
    fix: str


@dataclass(frozen=True)
class Cases:
    """A data set found on disk.

    Attributes:
        name: of the folder or list.
        root: where it lies.
        layout: which arrangement was recognized, in words for the user.
        cases: sorted by name.
        labels: label id -> name, where the layout says (``dataset.json``); else empty.
        channels: names of the image channels, where the layout says; else empty.
        unpaired: what could not be used, and why.
        label_values: value in the label files -> label id, where they differ (masks of 0 and 255);
            empty where the values are the ids. `training.data.reading.label_encoding` finds it.
    """

    name: str
    root: Path
    layout: str
    cases: tuple[Case, ...]
    labels: Mapping[int, str] = field(default_factory=dict)
    channels: tuple[str, ...] = ()
    unpaired: tuple[Unpaired, ...] = ()
    label_values: Mapping[int, int] = field(default_factory=dict)

    def require_complete(self) -> Cases:
        """These cases, if every file found its counterpart.

        Raises:
            InvalidInput: there is no case, or a file without counterpart; the message names them.
        """
        if self.unpaired:
            first, names = self.unpaired[0], [u.path.name for u in self.unpaired]
            more = f" and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
            raise InvalidInput(
                f"{self.root}: without a counterpart: {', '.join(names[:_TOLD])}{more}. "
                f"{first.path.name}: {first.what}: {first.fix}"
            )
        if not self.cases:
            raise InvalidInput(f"{self.root}: holds no labelled image ({self.layout})")
        return self
