"""A small fixed network whose features stand for how an image looks.

Fréchet distances are usually taken on features of an Inception network that has learned from
photographs, which would be a download and knows nothing of this project's grey images. This one
was trained by ``python -m benchmarks.feature_network`` on axon phantoms and slices of the MNI152
template to tell what was done to an image, and how strongly: blur, noise, another gamma, checks as
transposed convolutions leave them, and so on (`benchmarks.feature_network.DAMAGES`). So its
features answer to what synthetic images are wrong in. Its weights lie beside this file and never
change: distances are comparable only on the same features.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

#: The trained weights, as float16.
WEIGHTS = Path(__file__).parent / "features.safetensors"
#: Length of a feature vector.
FEATURES = 32
_CHANNELS = (1, 16, 32, 64, 96, 128)
#: A smaller image is enlarged.
SMALLEST = 32


class FeatureNetwork(nn.Module):
    """Five 3x3 convolutions, each but the first halving the size; means over the image; 32 numbers.

    ``net(image [B, C, H, W])`` in [0, 1] -> features ``[B, 32]``, each of mean zero and unit
    variance over the images that it was trained on. Of several channels their mean is looked at.
    194 thousand parameters.
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for depth, (below, above) in enumerate(pairwise(_CHANNELS)):
            conv = nn.Conv2d(below, above, 3, stride=2 if depth else 1, padding=1, bias=False)
            layers += [conv, nn.BatchNorm2d(above), nn.ReLU()]
        self.maps = nn.Sequential(*layers)
        self.embed = nn.Linear(_CHANNELS[-1], FEATURES)
        self.scale = nn.BatchNorm1d(FEATURES, affine=False)

    def forward(self, image: Tensor) -> Tensor:
        """The features ``[B, 32]``."""
        grey = image.mean(1, keepdim=True)
        if min(grey.shape[2:]) < SMALLEST:
            size = [max(SMALLEST, edge) for edge in grey.shape[2:]]
            grey = F.interpolate(grey, size, mode="bilinear", align_corners=False)
        features: Tensor = self.scale(self.embed(self.maps(grey).mean((2, 3))))
        return features


@cache
def feature_network() -> FeatureNetwork:
    """The network with its fixed weights, in evaluation mode."""
    network = FeatureNetwork()
    state = network.state_dict()
    weights = load_file(WEIGHTS)
    network.load_state_dict({k: weights[k].to(v.dtype) for k, v in state.items()})
    return network.eval().requires_grad_(False)
