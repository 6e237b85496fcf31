"""Medical image-to-image with convolutional capsule networks.

>>> import caps_med
>>> model = caps_med.load_model("brain-t1-tissue")  # doctest: +SKIP
>>> model.segment("t1.nii.gz").save("tissue.nii.gz")  # doctest: +SKIP
"""

from __future__ import annotations

import lazy_loader

from caps_med._version import __version__

TYPE_CHECKING = False  # typing itself takes as long to import as all the rest here
if TYPE_CHECKING:
    from caps_med.errors import CapsMedError
    from caps_med.images import MedicalImage, read_channels, read_image
    from caps_med.inference import load_model
else:
    # torch is imported when a model is asked for: `caps-med --help` must be quick
    __getattr__, _, _ = lazy_loader.attach(
        __name__,
        submod_attrs={
            "errors": ["CapsMedError"],
            "images": ["MedicalImage", "read_channels", "read_image"],
            "inference": ["load_model"],
        },
    )

__all__ = [
    "CapsMedError",
    "MedicalImage",
    "__version__",
    "load_model",
    "read_channels",
    "read_image",
]


def __dir__() -> list[str]:
    return __all__
