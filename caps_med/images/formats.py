"""The format of an answer, chosen alike by the library, the command line and the service.

Unless another is requested, an answer has the format of its source. An image that a format cannot
hold is refused by its writer (see `caps_med.images.check_writable`).
"""

from __future__ import annotations

_LOSSLESS = {"jpeg": "png"}
_PICTURES = ("png", "tiff", "nifti", "npy")
_VOLUMES = ("nifti", "nrrd", "metaimage", "npy")


def formats_of(source: str, *, labels: bool, picture: bool, slices: bool) -> tuple[str, ...]:
    """The formats that an answer is offered in, the default first.

    Args:
        source: format of the image that the answer belongs to.
        labels: a label map, which JPEG would blur into other ids.
        picture: it has no third axis.
        slices: it lies over DICOM slices that a DICOM SEG can refer to.
    """
    default = "nifti" if source == "dicom" else source
    if labels:
        default = "dicom" if slices else _LOSSLESS.get(default, default)
    return tuple(dict.fromkeys((default, *(_PICTURES if picture else _VOLUMES))))
