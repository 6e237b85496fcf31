"""Grey and colour, each where the other is needed."""

from __future__ import annotations

import numpy as np

from caps_med.errors import InvalidInput
from caps_med.images.image import MedicalImage

#: Shares of red, green and blue in what a colour picture looks like in grey (ITU-R BT.601).
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)


def with_channels(image: MedicalImage, count: int) -> MedicalImage:
    """The image with `count` channels: colours as their luminance, grey as equal colours.

    Real colours warn when they are given up; a grey picture that was saved in colour does not.

    Args:
        image: ``[C, *S]``.
        count: 1 or 3 where C is the other; else C.

    Raises:
        InvalidInput: neither grey nor colour, or something else is asked for.
    """
    array = image.array
    if len(array) == count:
        return image
    if (len(array), count) == (1, 3):
        return image.with_array(np.repeat(array, 3, 0))
    if (len(array), count) != (3, 1):
        raise InvalidInput(f"the image has {len(array)} channel(s) where {count} are needed")
    if (array[:1] == array).all():
        return image.with_array(array[:1])
    grey = np.tensordot(LUMINANCE, array, 1)[None]
    whole = np.issubdtype(array.dtype, np.integer)
    warning = "the image is in colour where grey is needed: its luminance (ITU-R BT.601) was taken"
    return image.with_array(
        (np.rint(grey) if whole else grey).astype(array.dtype), warnings=(warning,)
    )
