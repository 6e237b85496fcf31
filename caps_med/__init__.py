"""Medical image-to-image with convolutional capsule networks.

>>> import caps_med
>>> model = caps_med.load_model("brain-t1-tissue")  # doctest: +SKIP
>>> model.segment("t1.nii.gz").save("tissue.nii.gz")  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from caps_med._version import __version__

if TYPE_CHECKING:
    from caps_med.images import MedicalImage, read_channels, read_image
    from caps_med.inference import load_model

__all__ = ["MedicalImage", "__version__", "load_model", "read_channels", "read_image"]

_MODULES = {
    "MedicalImage": "caps_med.images",
    "load_model": "caps_med.inference",
    "read_channels": "caps_med.images",
    "read_image": "caps_med.images",
}


def __getattr__(name: str) -> object:
    """Import torch only when a model is asked for: `caps-med --help` must be quick."""
    if name not in _MODULES:
        raise AttributeError(f"module 'caps_med' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
