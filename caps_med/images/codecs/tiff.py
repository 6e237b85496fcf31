"""TIFF and BigTIFF, including OME-TIFF and ImageJ's: integers and floats; grey, RGB or channels.

One page is a picture; so are pages that ImageJ or OME call the channels of one. Other grey pages
of one size are a volume `[C, X, Y, Z]`: columns, rows, pages; rows run to Posterior and columns to
Left, so that it is displayed like the pages. Its voxels have the size given by OME or ImageJ, or
otherwise 1 mm. If a picture is stored in several sizes, like a whole slide, the largest is read
(`caps_med.images.codecs.tiff_pyramid`). A volume with any other orientation is not written.
"""

from __future__ import annotations

import hashlib
import io
import uuid
from dataclasses import replace

import numpy as np

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.codecs.codec import Codec
from caps_med.images.codecs.pictures import plane_of
from caps_med.images.codecs.tiff_pages import MAX_CHANNELS, Form, Pages, opened
from caps_med.images.codecs.tiff_pyramid import pyramid_of, read_full
from caps_med.images.codecs.tiff_stack import Stack, described
from caps_med.images.image import STACK_AFFINE, Array, Kind, MedicalImage
from caps_med.images.limits import Limits

_MAGICS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """A picture of one page or of pages that are channels, a volume of several slices."""
    with opened(io.BytesIO(data), limits) as pages:
        stack = described(pages)
        if pages.count > 1 and not (stack.planes == 1 and pyramid_of(pages)):
            return _volume(pages, stack, kind, limits)
        return read_full(pages, kind, limits)


def decode_one(data: bytes, kind: Kind, limits: Limits, index: int) -> MedicalImage:
    """The picture on page `index`, counted from 0, or one of the sizes in a single page."""
    with opened(io.BytesIO(data), limits) as pages:
        if pages.count == 1 and (pyramid := pyramid_of(pages)):
            return pyramid.read(pages, index, kind)
        if not 0 <= index < pages.count:
            raise InvalidInput(f"TIFF: no page {index} in a file of {pages.count}")
        return pages.read(index, kind)


def count(data: bytes, limits: Limits) -> int:
    """The number of pages, or of the sizes in a single page."""
    with opened(io.BytesIO(data), limits) as pages:
        pyramid = pyramid_of(pages) if pages.count == 1 else None
        return len(pyramid.sizes) if pyramid else pages.count


def encode(image: MedicalImage) -> bytes:
    """Uncompressed, dtype kept; OME-TIFF for volumes with channels or voxels other than 1 mm.

    Channels of a picture that are not colours are planes of one page, or pages of an OME-TIFF if
    there are more than a page may have.

    Raises:
        UnsupportedFormat: a volume oriented unlike a TIFF, whose geometry would be lost.
    """
    channels = len(image.array)
    if image.spatial_dims == 2 and channels in (1, 3):
        plane = plane_of(image, "tiff")
        return _written(plane, photometric="rgb" if plane.ndim == 3 else "minisblack")
    if image.spatial_dims == 2:
        return _channels(image.array)
    spacing = image.spacing or ()
    if not np.allclose(image.affine, _affine(spacing), atol=1e-6 * min(spacing)):
        raise UnsupportedFormat(
            "a volume cannot be written as tiff, because its geometry would be lost: use nifti "
            "or nrrd"
        )
    planes = np.ascontiguousarray(image.array.transpose(0, 3, 2, 1))
    if channels > 1:
        return _ome(planes, "CZYX", spacing)
    if np.allclose(spacing, 1):
        return _written(planes[0], photometric="minisblack")
    return _ome(planes[0], "ZYX", spacing)


def _channels(array: Array) -> bytes:
    """A picture with channels other than grey or RGB."""
    if len(array) > MAX_CHANNELS:
        return _ome(array, "CYX", ())
    plain = (0,) * (len(array) - 1)  # none of them is alpha
    return _written(array, photometric="minisblack", planarconfig="separate", extrasamples=plain)


def _written(planes: Array, **options: object) -> bytes:
    import tifffile

    planes = planes.astype(np.uint8) if planes.dtype.kind == "b" else planes
    file = io.BytesIO()
    tifffile.imwrite(file, planes, **{"metadata": None, "software": False, **options})
    return file.getvalue()


def _ome(planes: Array, axes: str, spacing: tuple[float, ...]) -> bytes:
    """Pages with OME's metadata, whose identifier depends on the content, not on clock and host.

    Args:
        axes: of the planes, such as "CZYX".
        spacing: for a volume, along X, Y and Z.
    """
    from tifffile import OmeXmlError

    digest = hashlib.sha256(planes.tobytes()).hexdigest()
    sizes = {f"PhysicalSize{axis}": mm for axis, mm in zip("XYZ", spacing, strict=False)}
    units = {f"{size}Unit": "mm" for size in sizes}
    identifier = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}"
    metadata = {"axes": axes, "UUID": identifier, **sizes, **units}
    try:
        return _written(planes, photometric="minisblack", ome=True, metadata=metadata)
    except OmeXmlError as error:
        raise UnsupportedFormat(f"OME-TIFF holds no {planes.dtype}: use nifti or nrrd") from error


def _affine(spacing: tuple[float, ...]) -> Array:
    return np.asarray(STACK_AFFINE @ np.diag([*spacing, 1.0]))


def _volume(pages: Pages, stack: Stack, kind: Kind, limits: Limits) -> MedicalImage:
    forms = {pages.form(index) for index in range(pages.count)}
    first = next(iter(forms))
    if len({(form.height, form.width) for form in forms}) > 1:
        raise _no_volume()
    if len(forms) > 1:
        raise UnsupportedFormat("TIFF: pages of different kinds are not read: save one page a file")
    if stack.frames > 1 and stack.slices * stack.channels > 1:
        raise UnsupportedFormat(
            f"TIFF: one image is read, this file has {stack.frames} time points: split them into "
            "files"
        )
    limits.check_array((pages.count * first.height * first.width,), _bytes_per_pixel(first))
    top = pages.read(0, kind)
    if len(top.array) > 1:
        raise _no_volume()
    planes = np.empty((pages.count, *top.spatial_shape), top.array.dtype)
    for place, index in enumerate(stack.order or range(pages.count)):
        planes[place] = pages.read(index, kind).array[0]
    planes = _by_channel(planes, stack.channels, stack.interleaved)
    if stack.channels == pages.count:
        return replace(top, array=planes[:, 0])
    voxels = np.ascontiguousarray(planes.transpose(0, 3, 2, 1))
    spacing = stack.spacing
    what = "pages" if stack.frames == 1 else f"the {stack.frames} time points"
    warning = f"TIFF: no geometry; {what} are taken for axial slices of 1 mm"
    if spacing is not None:
        warning = f"TIFF: no orientation; {what} are taken for axial slices"
    affine = _affine(spacing or (1.0, 1.0, 1.0))
    warnings = (*top.warnings, warning)
    return MedicalImage(
        voxels, affine, "tiff", palette=top.palette, warnings=warnings, white=top.white
    )


def _by_channel(planes: Array, channels: int, interleaved: bool) -> Array:
    """Pages `[channels * slices, H, W]` as `[channels, slices, H, W]`."""
    size = planes.shape[1:]
    if interleaved:
        return np.ascontiguousarray(planes.reshape(-1, channels, *size).swapaxes(0, 1))
    return planes.reshape(channels, -1, *size)


def _bytes_per_pixel(form: Form) -> int:
    return form.channels * np.dtype(form.dtype).itemsize


def _no_volume() -> UnsupportedFormat:
    return UnsupportedFormat(
        "TIFF: pages of different sizes, or in colour, are not a volume: save one page a file"
    )


def _recognises(data: bytes) -> bool:
    return data.startswith(_MAGICS)


CODEC = Codec(
    "tiff",
    (".tif", ".tiff"),
    "image/tiff",
    _recognises,
    decode,
    encode,
    count=count,
    decode_one=decode_one,
)
