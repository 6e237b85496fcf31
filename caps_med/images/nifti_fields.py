"""What the header of a NIfTI file says about its voxels besides size and position."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header

#: An axis of NIfTI-1 has fewer voxels.
LONGEST_OF_NIFTI_1 = 2**15
#: The intent code of label maps, and those of matrices, vectors and colours along the fifth axis,
#: which is not written (nifti1.h).
_LABEL, _OF_FIFTH_AXIS = 1002, (*range(1004, 1011), 2003, 2004)


def describe_anew(header: Nifti1Header, *, labels: bool) -> None:
    """Reset what the header of a source says about its voxels: slope, display range, intent.

    Label maps are marked as such (NIFTI_INTENT_LABEL), and nothing else is, whatever the source.
    """
    header.set_slope_inter(1, 0)
    header["cal_min"] = header["cal_max"] = 0
    intent = int(header["intent_code"])
    if labels and intent != _LABEL:
        header.set_intent("label")
    elif not labels and intent in (_LABEL, *_OF_FIFTH_AXIS):
        header.set_intent("none")
