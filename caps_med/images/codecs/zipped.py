"""A zip of one image: a file of any format, or a header and its voxels, such as .mhd and .raw."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import PurePosixPath

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.codecs import dicom_layout, npz, zips
from caps_med.images.codecs.nrrd import MAX_HEADER
from caps_med.images.codecs.registry import codec_of_content, names_beside, voxels_named
from caps_med.images.limits import Limits

#: A header and its voxels.
_MOST_FILES = 2
#: A header has fewer bytes, beside those of its voxels; NRRD has the longest.
_HEADER_ROOM = MAX_HEADER
#: Of each file in memory: its pieces and the whole, or a part and the image of both.
_COPIES = 2


def unpacked(data: bytes, limits: Limits, admit: Callable[[int], None] | None = None) -> bytes:
    """The content of the one image in a zip; anything else, such as a zip of DICOM, unchanged.

    Args:
        admit: called with the size of its files in bytes before they are inflated; if it raises,
            nothing is inflated.

    Raises:
        InvalidInput: the zip is corrupt, or a header names voxels that are not in it.
        UnsupportedFormat: the compression of its files is not supported.
        InputTooLarge: inflated, they are over `limits`.
    """
    if not zips.recognises(data) or npz.recognises(data):
        return data
    contents: dict[PurePosixPath, bytes] = {}
    with zips.opened(data) as archive:
        members = [one for one in archive.infolist() if _is_meant(one)]
        if len(members) > _MOST_FILES:
            return data
        size = sum(one.file_size for one in members)  # which no file of a zip exceeds
        limits.check_decoded("the zip", size, _HEADER_ROOM)
        if admit is not None:
            admit(_COPIES * size)
        for one in members:
            contents[PurePosixPath(one.filename)] = zips.content(archive, one)
    if any(dicom_layout.recognises(content) for content in contents.values()):
        return data
    for name, content in contents.items():
        if (image := _image(name, content, contents)) is not None:
            return image
    return data


def _is_meant(member: zipfile.ZipInfo) -> bool:
    """Whether it is a file other than those that macOS adds beside each file in a zip."""
    path = PurePosixPath(member.filename)
    return not (member.is_dir() or path.name.startswith(".") or path.parts[:1] == ("__MACOSX",))


def _image(
    name: PurePosixPath, content: bytes, contents: dict[PurePosixPath, bytes]
) -> bytes | None:
    """The content of a file if it is the one image among the files, with its voxels."""
    try:
        codec = codec_of_content(content)
    except (UnsupportedFormat, InvalidInput):
        return None
    named = codec.detached(content) if codec.detached else None
    if named is None or codec.attached is None or len(contents) == 1:
        nested = zips.recognises(content) and not npz.recognises(content)
        return content if len(contents) == 1 and not nested else None
    if named:
        wanted = voxels_named(str(name.parent / named), map(str, contents))
    else:
        wanted = [str(name.parent / one) for one in names_beside(name.name)]
    voxels = (contents[file] for one in wanted if (file := PurePosixPath(one)) in contents)
    if (found := next(voxels, None)) is None:
        raise InvalidInput(
            "zip: the header names another file for its voxels than the one beside it: rename that "
            "file as in the header (x.img for x.hdr)"
        )
    return codec.attached(content, found)
