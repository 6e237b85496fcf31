"""Groups of cases that are not independent: slices of a volume, images of a patient."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: The ending that marks a part of a patient or volume.
_PART = re.compile(r"[-_ ](?:slices?|sl|z|frame|tile|patch|look|aug)[-_ ]?\d+$", re.IGNORECASE)

#: The subject of the Brain Imaging Data Structure (BIDS), by which its folders and files begin.
_SUBJECT = re.compile(r"(?:.*?/)??sub-[A-Za-z0-9]+(?=[_/]|$)")


def subject_of(name: str) -> str:
    """The BIDS subject of an image, with the folders above it; else "".

    >>> subject_of("sub-01/ses-2/anat/sub-01_ses-2_T1w"), subject_of("p1/sub-volume 3")
    ('sub-01', '')
    """
    found = _SUBJECT.match(name)
    return found[0] if found else ""


def whole_of(name: str) -> str:
    """The patient or volume that an image is a part of, as far as its name says; else "".

    >>> whole_of("p1_slice03"), whole_of("sub-01_ses-2_T1w"), whole_of("p1")
    ('p1', 'sub-01', '')
    """
    if subject := subject_of(name):
        return subject
    whole = _PART.sub("", name)
    return "" if whole == name else whole


def group_numbers(groups: Sequence[str]) -> NDArray[np.int64]:
    """The number of each case's group, ``[N]``, counted from 0.

    >>> group_numbers(["b", "a", "b", "", ""]).tolist()
    [3, 2, 3, 0, 1]

    Args:
        groups: names; "" for a case on its own.
    """
    names = [group or f"\0{number}" for number, group in enumerate(groups)]
    return np.unique(names, return_inverse=True)[1].astype(np.int64)
