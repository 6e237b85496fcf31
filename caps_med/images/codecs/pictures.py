"""Common code of PNG, JPEG, BMP and TIFF: Pillow's modes as `[C, H, W]` and back."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image, ImageOps

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images.image import Array, Kind, MedicalImage
from caps_med.images.limits import Limits
from caps_med.images.normalization import to_uint8

_READ_MODES = ("L", "RGB", "I", "F", "I;16", "I;16L", "I;16B")
_TRANSPARENT = ("P", "PA", "LA", "RGBA", "1")
#: Those that `from_pillow` takes.
MODES = (*_READ_MODES, *_TRANSPARENT)
#: Floats may leave 0..1 by this much, as sums of weights do: it rounds to 0 and to 255.
_HALF_LEVEL = 0.4 / 255


def decode_picture(data: bytes, name: str, kind: Kind, limits: Limits, bits: int) -> MedicalImage:
    """A picture `[1, H, W]` or `[3, H, W]` from Pillow's format `name`, upright by its tags.

    Transparency is blended over black, with a warning if it was not fully opaque.

    Args:
        data: a file whose size, length and checksums were checked.
        name: the only format that Pillow may try.
        kind: "labels" keeps palette indices and the ids of 1, 2 or 4 bits.
        limits: checked again with the size that Pillow sees, in case it reads a header
            differently.
        bits: bits of one sample, at most 8.
    """
    with decoding(name), Image.open(io.BytesIO(data), formats=[name]) as picture:
        limits.check_array((picture.height, picture.width))
        picture.load()
        return from_pillow(ImageOps.exif_transpose(picture), name.lower(), kind, bits)


def turned(array: Array, orientation: object) -> Array:
    """Channels `[C, H, W]` turned by an Orientation tag of 1 to 8 (TIFF 6.0, p. 36)."""
    if orientation in (5, 6, 7, 8):
        array = array.swapaxes(1, 2)
    if orientation in (3, 4, 7, 8):
        array = array[:, ::-1]
    return array[:, :, ::-1] if orientation in (2, 3, 6, 7) else array


@contextmanager
def decoding(name: str) -> Iterator[None]:
    """Turn errors of a decoder, which may have nearly any type, into this library's errors."""
    try:
        yield
    except CapsMedError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError) as error:
        raise InputTooLarge(f"{name}: the picture is too large to decode: crop it") from error
    except Exception as error:
        raise InvalidInput(
            f"{name}: the picture is cut or broken, or a variant that is not read: save it again"
        ) from error


def from_pillow(picture: Image.Image, name: str, kind: Kind, bits: int) -> MedicalImage:
    """The result of `decode_picture` for a picture that is loaded and upright."""
    if kind == "labels" and picture.mode in ("P", "1"):
        ids = np.asarray(picture).astype(np.uint8)
        colours = picture.getpalette() if picture.mode == "P" else None
        palette = None if colours is None else np.array(colours, np.uint8).reshape(-1, 3)
        return MedicalImage(ids[None], format=name, palette=palette)
    grey = picture.mode == "1" or (
        picture.mode == "P" and is_grey(np.array(picture.getpalette()).reshape(-1, 3))
    )
    pixels, warnings = _opaque(picture, name, kind)
    array = np.asarray(pixels.convert("L") if grey else pixels)
    array = array.astype(array.dtype.newbyteorder("="))
    if kind == "labels" and bits < 8:
        array = array // (255 // (2**bits - 1))  # Pillow spreads few bits over 0..255
    array = array[None] if array.ndim == 2 else np.moveaxis(array, -1, 0)
    return MedicalImage(np.ascontiguousarray(array), format=name, warnings=warnings)


def is_grey(palette: Array) -> bool:
    """Whether all colours `[N, 3]` are grey."""
    return bool((palette == palette[:, :1]).all())


def transparency(name: str, kind: Kind) -> tuple[str, ...]:
    """The warning about a picture that is not opaque; a label map must be opaque."""
    if kind == "labels":
        raise InvalidInput(
            f"{name.upper()}: a label map cannot be transparent: save it without alpha"
        )
    return (f"{name.upper()}: transparency was laid over black",)


def over_black(colours: Array, alpha: Array, top: float) -> Array:
    """Colours `[C, H, W]` blended over black, in their own type.

    Args:
        alpha: `[H, W]`, from 0, which is invisible, to `top`.
    """
    laid = colours * (alpha / top)
    return (laid if colours.dtype.kind == "f" else np.rint(laid)).astype(colours.dtype)


def _opaque(picture: Image.Image, name: str, kind: Kind) -> tuple[Image.Image, tuple[str, ...]]:
    """The picture without alpha, in one of `_READ_MODES`."""
    if picture.mode in _TRANSPARENT or (
        picture.mode in ("L", "RGB") and picture.has_transparency_data
    ):
        layered = picture.convert("RGBA")
        black = Image.new("RGBA", picture.size, (0, 0, 0, 255))
        flat = Image.alpha_composite(black, layered).convert("RGB")
        seen_through = layered.getchannel("A").getextrema() != (255, 255)
        target = "L" if picture.mode in ("L", "LA", "1") else "RGB"
        return flat.convert(target), transparency(name, kind) if seen_through else ()
    if picture.mode not in _READ_MODES:
        raise UnsupportedFormat(f"colour mode {picture.mode} is not read: convert to grey or RGB")
    return picture, ()


def plane_of(image: MedicalImage, name: str) -> Array:
    """The pixels `[H, W]` or `[H, W, 3]` of a picture, for the writer of format `name`.

    Raises:
        UnsupportedFormat: a volume, or channels that are not colours.
    """
    if image.spatial_dims != 2:
        raise UnsupportedFormat(
            f"a volume cannot be written as {name}, not even one of a single slice, because its "
            "geometry would be lost: use nifti, nrrd or npz"
        )
    if len(image.array) not in (1, 3):
        raise UnsupportedFormat(
            f"{len(image.array)} channels cannot be written as {name}: use tiff or npy, or one at a"
            " time"
        )
    return image.array[0] if len(image.array) == 1 else np.moveaxis(image.array, 0, -1)


def checked_uint8(plane: Array, name: str) -> Array:
    """Pixels as uint8: floats in 0..1 are scaled to 0..255, integers must lie in 0..255.

    Raises:
        InvalidInput: values outside by more than rounding, which would be clipped or wrap around.
    """
    top = 1 if plane.dtype.kind == "f" else 255
    beyond = _HALF_LEVEL if top == 1 else 0
    if not (plane.min() >= -beyond and plane.max() <= top + beyond):
        raise InvalidInput(
            f"{name} holds 0..{top} of {plane.dtype}, got {plane.min()} to {plane.max()}: "
            "normalize the image, or use npy"
        )
    return to_uint8(plane) if top == 1 else plane.astype(np.uint8)


def to_bytes(picture: Image.Image, name: str, **options: object) -> bytes:
    """The bytes in Pillow's format `name`."""
    file = io.BytesIO()
    picture.save(file, format=name, **options)
    return file.getvalue()
