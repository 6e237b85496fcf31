"""Checks, before any work, that a command's answer can be written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from caps_med.errors import InvalidParameter, UnsupportedFormat

if TYPE_CHECKING:
    from caps_med.images import Kind, MedicalImage

#: Formats that show three channels as red, green and blue.
_COLOURED = ("png", "jpeg", "bmp")


def check_file(out: Path, sources: Iterable[Path], overwrite: bool) -> None:
    """Check that `out` has a known suffix and an existing folder, and is no folder and no input.

    Args:
        sources: the inputs.
        overwrite: whether `out` may already exist.

    Raises:
        UnsupportedFormat, InvalidParameter: one of these checks fails.
    """
    from caps_med.images import codec_of_path

    if out.is_dir():
        raise InvalidParameter(f"--out {out}: this is a folder; name a file in it")
    codec_of_path(out)
    check_folder_of(out)
    check_no_input(out, sources)
    check_free([out], overwrite)


def check_no_input(file: Path, sources: Iterable[Path], option: str = "--out") -> None:
    """Check that a file to be written is not an input, even if it may be overwritten.

    Args:
        sources: the inputs: files, or folders of DICOM series.

    Raises:
        InvalidParameter: it is.
    """
    if file.exists() and any(_is_read(file, source) for source in sources):
        raise InvalidParameter(f"{option} {file}: this is the input itself; name another file")


def _is_read(file: Path, source: Path) -> bool:
    from caps_med.images import names_beside

    if source.is_dir():
        return file.resolve().is_relative_to(source.resolve()) and _is_slice(file)
    files = (source, *map(source.with_name, names_beside(source.name)))
    return any(one.exists() and file.samefile(one) for one in files)


def _is_slice(file: Path) -> bool:
    """Whether a file is a DICOM image, and not, for example, the DICOM SEG of an earlier answer."""
    from caps_med.batch.series import header_of
    from caps_med.images.series import series_of

    header = header_of(file)
    return header is not None and bool(series_of([(file, header)], "image")[0])


def check_folder_of(out: Path, option: str = "--out") -> None:
    """Check that the folder to which `out` will be written exists.

    Raises:
        InvalidParameter: it does not.
    """
    if not out.parent.is_dir():
        raise InvalidParameter(f"{option} {out}: there is no folder {out.parent}; create it first")


def check_free(files: Iterable[Path], overwrite: bool) -> None:
    """Check that none of the files exists, unless they may be overwritten.

    Raises:
        InvalidParameter: one exists.
    """
    for file in files:
        if not overwrite and file.exists():
            raise InvalidParameter(f"{file} exists: name another file, or add --overwrite")


def check_format(
    out: Path,
    source: MedicalImage,
    kind: Kind,
    channels: int,
    *,
    colours: bool = True,
    labels: int = 0,
) -> None:
    """Check that the format of `out` can hold an answer in the space of `source`.

    Args:
        kind, channels: of the answer.
        colours: whether three channels of a picture are colours.
        labels: how many it may have beside the background.

    Raises:
        UnsupportedFormat: it cannot.
    """
    from caps_med.images import check_writable, codec_of_path

    name = codec_of_path(out).name
    if channels > 1 and not colours and name in _COLOURED:
        raise UnsupportedFormat(
            f"--out {out}: the {channels} channels are no colours, so they cannot be written as "
            f"{name}: use nifti, tiff or npy"
        )
    check_writable(source, kind, channels, name, colours=colours, labels=labels)


def check_picture(out: Path, sources: Iterable[Path], overwrite: bool) -> None:
    """`check_file` and `check_format` for an answer that is a colour picture.

    Raises:
        UnsupportedFormat, InvalidParameter: it cannot be written to `out`.
    """
    import numpy as np

    from caps_med.images import MedicalImage

    check_file(out, sources, overwrite)
    check_format(out, MedicalImage(np.zeros((1, 1, 1), np.uint8)), "image", 3)


def seeded_path(path: Path, seed: int) -> Path:
    """``image.nii.gz`` -> ``image-seed7.nii.gz``."""
    stem, *suffixes = path.name.split(".")
    return path.with_name(".".join([f"{stem}-seed{seed}", *suffixes]))
