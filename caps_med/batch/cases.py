"""A case: a single input, and the name of its outputs."""

from __future__ import annotations

import hashlib
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from caps_med.batch.places import fetched, state_of
from caps_med.images import CODECS, names_beside

if TYPE_CHECKING:
    from caps_med.batch.places import Place


@dataclass(frozen=True)
class Case:
    """One image: a file, the files of its channels, or those of a DICOM series.

    Attributes:
        name: of its outputs without suffix, relative to the output folder, with ``/``.
        files: in the order in which they are read.
        input: the file or folder as displayed, relative to the common folder of all inputs.
        suffix: of the file, in lower case with its dot; empty for a series.
    """

    name: str
    files: tuple[Place, ...]
    input: str
    suffix: str = ""

    @property
    def source(self) -> Path | list[Path]:
        """The argument for `caps_med.read_image`, if the case's files are on this machine."""
        files = [cast(Path, file) for file in self.files]
        return files[0] if len(files) == 1 else files

    @contextmanager
    def here(self) -> Iterator[Case]:
        """The case with its files on this machine, for as long as the context lasts."""
        with fetched((*self.files, *self._beside())) as files:
            yield replace(self, files=files[: len(self.files)])

    def fingerprint(self) -> str:
        """A digest of the sizes and times, or ETags, of all files; changes if one is replaced."""
        text = repr([state_of(file) for file in (*self.files, *self._beside())])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _beside(self) -> list[Place]:
        """The files with the voxels of detached headers."""
        named = [file.with_name(name) for file in self.files for name in names_beside(file.name)]
        return [file for file in named if file.is_file()]


#: Names of the tables.
RESERVED = ("cases",)
#: The channel's number at the end of a file name, as nnU-Net and the Medical Segmentation
#: Decathlon have it.
CHANNEL = re.compile(r"(?P<case>.+)_(?P<number>\d{4})")


def split_suffix(name: str) -> tuple[str, str]:
    """A file name split into stem and suffix of an image format, which is empty if it has none.

    >>> split_suffix("t1.NII.GZ"), split_suffix("README.txt")
    (('t1', '.nii.gz'), ('README.txt', ''))
    """
    suffixes = (suffix for codec in CODECS.values() for suffix in codec.read_suffixes)
    for suffix in sorted(suffixes, key=len, reverse=True):
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)], suffix
    return name, ""


def called_like(images: Iterable[str]) -> Callable[[str], Sequence[str]]:
    """The images, by their file names, to which the name of a label map's file belongs.

    3D Slicer's ``a.seg.nrrd`` belongs to ``a.nrrd``, and ``b.png`` to nnU-Net's ``b_0000.png``,
    unless another image matches exactly.

    >>> found = called_like(["a.nrrd", "b_0000.png", "c.png", "c_0000.png"])
    >>> found("a.seg.nrrd"), found("b.png"), found("c.tif"), found("d.png")
    (['a.nrrd'], ['b_0000.png'], ['c.png'], ())
    """
    named: dict[str, list[str]] = {}
    numbered: dict[str, list[str]] = {}
    for image in images:
        stem = split_suffix(image)[0]
        named.setdefault(stem, []).append(image)
        if found := CHANNEL.fullmatch(stem):
            numbered.setdefault(found["case"], []).append(image)

    def alike(label: str) -> Sequence[str]:
        stem = split_suffix(label)[0]
        plain = stem.removesuffix(".seg")
        return named.get(stem) or named.get(plain) or numbered.get(plain) or ()

    return alike


def with_unambiguous_names(
    cases: Sequence[Case], claimed: Callable[[str], Iterable[str]]
) -> list[Case]:
    """The cases, renamed if outputs would collide: ``a.png`` and ``a.tif`` become a_png and a_tif.

    Names that differ only in case or Unicode form count as equal, as on some file systems.

    Args:
        claimed: the outputs of a case's name, without suffixes.
    """
    renamed = list(cases)
    # the last until none meet: a file may have the name that another one is given
    for rename in itertools.chain([_with_suffix], itertools.repeat(_numbered)):
        owners = Counter([*RESERVED])
        owners.update(each for case in renamed for each in _folded(claimed(case.name)))
        meeting = [any(owners[each] > 1 for each in _folded(claimed(c.name))) for c in renamed]
        if not any(meeting):
            break
        renamed = [
            rename(case, number) if meets else case
            for number, (case, meets) in enumerate(zip(renamed, meeting, strict=True), start=1)
        ]
    return renamed


def _folded(names: Iterable[str]) -> set[str]:
    return {unicodedata.normalize("NFC", name).casefold() for name in names}


def _with_suffix(case: Case, number: int) -> Case:
    suffix = case.suffix.replace(".", "_")
    return replace(case, name=f"{case.name}{suffix}") if suffix else case


def _numbered(case: Case, number: int) -> Case:
    return replace(case, name=f"{case.name}-{number}")
