"""The format of an answer, chosen in the same way by the library, the command line and the service.

Unless another is requested, an answer has the format of its source. The writer of a format rejects
images that the format cannot hold (see `caps_med.images.check_writable`).
"""

from __future__ import annotations

_LOSSLESS = {"jpeg": "png"}
_PICTURES = ("png", "tiff", "nifti", "npy")
_VOLUMES = ("nifti", "nrrd", "metaimage", "npy")


def formats_of(source: str, *, labels: bool, picture: bool, slices: bool) -> tuple[str, ...]:
    """The formats offered for an answer, the default first.

    Args:
        source: format of the image to which the answer belongs.
        labels: whether it is a label map, which JPEG would blur into other ids.
        picture: whether it has no third axis.
        slices: whether it lies on DICOM slices to which a DICOM SEG can refer.
    """
    default = "nifti" if source == "dicom" else source
    if labels:
        default = "dicom" if slices else _LOSSLESS.get(default, default)
    return tuple(dict.fromkeys((default, *(_PICTURES if picture else _VOLUMES))))
