"""One image of a data set, whatever its file format."""

from __future__ import annotations

import numpy as np

from caps_med.errors import NotFinite
from caps_med.images import MedicalImage
from training.data.cases import FileRef
from training.data.classified.arrays import ArrayRef, read_picture
from training.data.classified.figshare import SliceRef, read_slice
from training.data.stacks import read_reference


def read(reference: FileRef) -> MedicalImage:
    """The image ``[C, *S]``.

    Raises:
        CapsMedError: the file is missing, corrupt or of an unknown format, or holds NaN.
    """
    if isinstance(reference, ArrayRef):
        image = read_picture(reference)
    elif isinstance(reference, SliceRef):
        image = read_slice(reference)
    else:
        return read_reference(reference, "image")
    if image.array.dtype.kind == "f" and not np.isfinite(image.array).all():
        raise NotFinite("the image contains NaN or infinity: repair it")
    return image
