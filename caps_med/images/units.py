"""Units of length in file headers, in millimetres."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header

#: Unit -> millimetres, as OME, ImageJ and NRRD name units; in lower case.
MILLIMETRES: Mapping[str, float] = {
    "nm": 1e-6, "um": 1e-3, "µm": 1e-3, "μm": 1e-3, "\\u00b5m": 1e-3, "micron": 1e-3,
    "microns": 1e-3, "mm": 1.0, "cm": 10.0, "m": 1e3, "inch": 25.4, "in": 25.4,
}  # fmt: skip
#: The lower three bits of NIfTI's xyzt_units -> millimetres (nifti1.h); 0 and others are unknown.
_NIFTI = {1: 1000.0, 2: 1.0, 3: 0.001}


def of_nifti(header: Nifti1Header) -> float:
    """The unit of a NIfTI header's affine in millimetres; 1 if the header names none."""
    return _NIFTI.get(int(header["xyzt_units"]) & 7, 1.0)


def unsized(name: str) -> str:
    """The warning of a format about a header without voxel sizes."""
    return f"{name}: the header has no voxel size; 1 mm is assumed, for volumes in mm3, too"
