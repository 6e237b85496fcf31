"""Medical image-to-image with convolutional capsule networks.

>>> import caps_med
>>> model = caps_med.load_model("brain-t1-tissue")  # doctest: +SKIP
>>> model.segment("t1.nii.gz").save("tissue.nii.gz")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from caps_med._version import __version__

if TYPE_CHECKING:
    from caps_med.inference import load_model

__all__ = ["__version__", "load_model"]


def __getattr__(name: str) -> object:
    """Import torch only when a model is asked for: `caps-med --help` must be quick."""
    if name == "load_model":
        from caps_med.inference import load_model

        return load_model
    raise AttributeError(f"module 'caps_med' has no attribute {name!r}")
