"""Images of random contrast drawn from label maps: domain randomization.

Billot et al. 2023, "SynthSeg: Segmentation of brain MRI scans of any contrast and resolution
without retraining" (Medical Image Analysis 86:102789): a network that is trained on images of
random contrast, resolution and shape, drawn anew from label maps at every step, learns what does
not depend on them. No image is needed.
"""

from training.randomization.config import Randomization
from training.randomization.generator import RandomImages
from training.randomization.label_maps import LabelMaps
from training.randomization.scheme import LabelScheme, scheme_of

__all__ = ["LabelMaps", "LabelScheme", "RandomImages", "Randomization", "scheme_of"]
