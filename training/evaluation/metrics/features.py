"""A small fixed network whose features describe the appearance of an image.

Fréchet distances usually use the features of an Inception network trained on photographs, which
would have to be downloaded and knows no grayscale medical images. This network was trained by
``python -m benchmarks.feature_network`` on axon phantoms and slices of the MNI152 template to tell
how an image was degraded, and how strongly: blur, noise, gamma, checkerboard artifacts and more
(`benchmarks.feature_network.DAMAGES`). So its features respond to typical faults of synthetic
images. Its weights lie beside this file and never change: distances compare only on the same
features.
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
#: Smaller images are enlarged to this edge.
SMALLEST = 32


class FeatureNetwork(nn.Module):
    """Five 3x3 convolutions, all but the first with stride 2; global average pooling; linear layer.

    ``net(image [B, C, H, W])`` in [0, 1] -> features ``[B, 32]``, each of zero mean and unit
    variance over the training images. Channels are averaged first. 194 thousand parameters.
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
