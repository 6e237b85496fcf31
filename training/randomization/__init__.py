"""Images of random contrast drawn from label maps: domain randomization.

Billot et al. 2023, "SynthSeg: Segmentation of brain MRI scans of any contrast and resolution
without retraining" (Medical Image Analysis 86:102789): a network that is trained on images of
random contrast, resolution and shape, drawn anew from label maps at every step, learns what does
not depend on them. No image is needed.

What the ids of label maps mean is read without torch.
"""

from typing import TYPE_CHECKING

import lazy_loader

from training.randomization.config import Randomization
from training.randomization.scheme import LabelScheme, scheme_of

if TYPE_CHECKING:
    from training.randomization.generator import RandomImages
    from training.randomization.label_maps import LabelMaps
else:
    __getattr__, _, _ = lazy_loader.attach(
        __name__, submod_attrs={"generator": ["RandomImages"], "label_maps": ["LabelMaps"]}
    )

__all__ = ["LabelMaps", "LabelScheme", "RandomImages", "Randomization", "scheme_of"]


def __dir__() -> list[str]:
    return __all__
