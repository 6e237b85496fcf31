"""Groups of cases that are not independent: slices of a volume, images of a patient, copies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

#: The ending that marks a part of a patient or volume.
_PART = re.compile(r"[-_ ](?:slices?|sl|z|frame|tile|patch|look|aug)[-_ ]?\d+$", re.IGNORECASE)

#: The subject of the Brain Imaging Data Structure (BIDS), by which its folders and files begin.
_SUBJECT = re.compile(r"(?:.*?/)??sub-[A-Za-z0-9]+(?=[_/]|$)")

#: Folders of what is seen in images, which are of many patients.
_FINDING = re.compile(
    r"(?:(?:^|[-_ ])(?:normal|abnormal|benign|malignant|healthy|diseased?|positive|negative|"
    r"controls?|tumou?rs?|cancers?|lesions?|covid(?:[-_ ]?19)?|pneumonia|"
    r"viral|bacterial|lungs?|opacit(?:y|ies)|cases|images|tissue))+",
    re.IGNORECASE,
)


def folder_of(name: str) -> str:
    """The folders above an image, without those named for a finding at their end.

    >>> folder_of("p1/slices/3"), folder_of("p1/benign/3"), folder_of("benign/benign (3)")
    ('p1/slices', 'p1', '')
    """
    folder = name.rpartition("/")[0]
    while folder and _FINDING.fullmatch(folder.rpartition("/")[2]):
        folder = folder.rpartition("/")[0]
    return folder


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


def folder_groups(named: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The folders that are groups, because nothing else says what belongs together: their images.

    >>> folder_groups([("p1/a", "p1"), ("p1/b", "p1"), ("p2/a", ""), ("s_z1", "s")])
    {'p1': 2}

    Args:
        named: name and group of each image.
    """
    pairs = [(name, group) for name, group in named if not subject_of(name)]
    return dict(Counter(group for name, group in pairs if group and group == folder_of(name)))


def joined(marked: Iterable[tuple[str, Hashable]]) -> dict[str, str]:
    """Group -> the group that it becomes, where those with a mark in common are one.

    It has the name of the first of them.

    >>> joined([("a", 1), ("b", 2), ("c", 1), ("c", 3), ("d", 3), ("e", "")])
    {'a': 'a', 'b': 'b', 'c': 'a', 'd': 'a', 'e': 'e'}

    Args:
        marked: the group and the mark of each image, such as a Patient ID, which is never shown, in
            an order that does not change; an empty mark joins nothing.
    """
    first: dict[Hashable, str] = {}
    into: dict[str, str] = {}

    def whole(group: str) -> str:
        while group in into:
            group = into[group]
        return group

    groups = []
    for group, mark in marked:
        groups.append(group)
        if mark:
            known, own = whole(first.setdefault(mark, group)), whole(group)
            if own != known:
                into[own] = known
    return {group: whole(group) for group in groups}


def group_numbers(groups: Sequence[str]) -> NDArray[np.int64]:
    """The number of each case's group, ``[N]``, counted from 0.

    >>> group_numbers(["b", "a", "b", "", ""]).tolist()
    [3, 2, 3, 0, 1]

    Args:
        groups: names; "" for a case on its own.
    """
    names = [group or f"\0{number}" for number, group in enumerate(groups)]
    return np.unique(names, return_inverse=True)[1].astype(np.int64)
