"""What a folder of data is, before any pixel is read: cases, each an image and its label map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

from caps_med.errors import InvalidInput

#: Names listed in an error message; the rest is only counted.
_LISTED = 10


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
        error: why no layout applies; then there are no cases.
    """

    name: str
    root: Path
    layout: str
    cases: tuple[Case, ...]
    labels: Mapping[int, str] = field(default_factory=dict)
    channels: tuple[str, ...] = ()
    unpaired: tuple[Unpaired, ...] = ()
    error: str = ""

    def require_complete(self) -> Self:
        """These cases, if every file found its counterpart.

        Raises:
            InvalidInput: no layout applies, there is no case, or a file lacks its counterpart.
        """
        if self.error:
            raise InvalidInput(self.error)
        if self.unpaired:
            first, names = self.unpaired[0], [u.path.name for u in self.unpaired]
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            raise InvalidInput(
                f"{self.root}: without a counterpart: {', '.join(names[:_LISTED])}{more}. "
                f"{first.path.name}: {first.what}: {first.fix}"
            )
        if not self.cases:
            raise InvalidInput(f"{self.root}: holds no labelled image ({self.layout})")
        return self

    def fingerprint(self) -> list[list[str | int]]:
        """Path, size and modification time (ns) of every file."""
        paths = {ref.path for case in self.cases for ref in (*case.images, case.label)}
        files = {file for path in paths for file in (path.iterdir() if path.is_dir() else [path])}
        stats = [(file, file.stat()) for file in sorted(files) if file.exists()]
        return [[str(file), stat.st_size, stat.st_mtime_ns] for file, stat in stats]


T = TypeVar("T")
#: Wraps the iteration over cases, to show progress.
Track = Callable[[Iterable[T]], Iterable[T]]
