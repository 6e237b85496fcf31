"""The formats. To add one, write its file and list it here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.codecs import bmp, dicom, jpeg, metaimage, nifti, npy, npz, nrrd, png, tiff
from caps_med.images.codecs.codec import Codec

CODECS: dict[str, Codec] = {
    module.CODEC.name: module.CODEC
    for module in (nifti, nrrd, metaimage, dicom, png, jpeg, tiff, bmp, npy, npz)
}
#: In the order in which content is looked at: before DICOM's magic lie 128 bytes that may look like
#: any other format.
_BY_CONTENT = (dicom.CODEC, *(codec for codec in CODECS.values() if codec is not dicom.CODEC))


def codec_of_name(name: str) -> Codec:
    """The codec with a format's name; raises `UnsupportedFormat` if there is none."""
    if name not in CODECS:
        raise UnsupportedFormat(f"format must be one of {', '.join(CODECS)}, got {name!r}")
    return CODECS[name]


def names_beside(name: str) -> tuple[str, ...]:
    """The files that belong to an image file, if they exist: `x.raw` and `x.zraw` to `x.mhd`.

    Each is looked for in lower case and in capitals, first as the suffix of the image file is.
    """
    return tuple(chain(*(_renamed(name, suffix, ends) for suffix, ends in _beside())))


def headers_beside(name: str) -> tuple[str, ...]:
    """The image files of which a file may hold the voxels: `x.mhd` and `x.nhdr` of `x.raw`."""
    ends = [(end, (suffix,)) for suffix, several in _beside() for end in several]
    return tuple(chain(*(_renamed(name, end, suffixes) for end, suffixes in ends)))


def _beside() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each suffix of headers, and those of the files with their voxels."""
    return chain(*(codec.beside.items() for codec in CODECS.values()))


def _renamed(name: str, suffix: str, ends: Sequence[str]) -> Iterator[str]:
    """A name with other ends in lower case and in capitals, if it has this suffix."""
    if name.lower().endswith(suffix):
        for capitals in sorted((True, False), key=name.endswith(suffix.upper()).__ne__):
            for end in ends:
                yield name[: -len(suffix)] + (end.upper() if capitals else end)


def voxels_named(named: str, beside: Iterable[str]) -> list[str]:
    """Which of the files beside a header may hold its voxels, the one that it names first.

    Args:
        named: the name in the header, of which capitals do not matter: files are renamed on disks
            that do not tell them apart. Empty if it names none, so that each may.
        beside: see `names_beside`.
    """
    named = named.removeprefix("./")  # as Teem writes it
    allowed = [name for name in beside if not named or name.lower() == named.lower()]
    return sorted(allowed, key=named.__ne__)


def codec_of_content(data: bytes) -> Codec:
    """The codec that recognises `data`, whatever its name was.

    Raises:
        UnsupportedFormat: none does.
        InvalidInput: there are no data.
    """
    if not data:
        raise InvalidInput("the file is empty: copy it again")
    for codec in _BY_CONTENT:
        if codec.recognises(data):
            return codec
    raise UnsupportedFormat(
        f"the content is of no known format (allowed: {', '.join(CODECS)}): convert it first"
    )


def codec_of_path(path: Path) -> Codec:
    """The codec for a file name's suffix, to write; raises `UnsupportedFormat` if there is none."""
    for codec in CODECS.values():
        if path.name.lower().endswith(codec.suffixes):
            return codec
    allowed = ", ".join(suffix for codec in CODECS.values() for suffix in codec.suffixes)
    raise UnsupportedFormat(f"{path.name} has no known suffix: use one of {allowed}")
