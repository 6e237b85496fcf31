"""Discriminators of the capsule GAN: is this image real, given its label map?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.errors import InvalidParameter
from caps_med.layers import DenseCapsules
from caps_med.layers.initialization import initialize
from caps_med.networks.base import capsule_lengths, check_input
from caps_med.networks.gan_layers import conv_capsule
from caps_med.routing import squash


class Discriminator(nn.Module):
    """Base: ``disc(image [B, C, H, W], label [B, L, H, W])`` -> logits ``[B, 1, ...]``.

    Above zero means real; the sigmoid is in the loss, where it is stable. Any size from 64 pixels.
    """

    def __init__(self, label_channels: int, image_channels: int) -> None:
        super().__init__()
        self.label_channels, self.image_channels = label_channels, image_channels

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        """The logits."""
        check_input("image", image, self.image_channels, 2, 1)
        check_input("label", label, self.label_channels, 2, 1)
        return self.score(torch.cat((image, label), 1))

    def score(self, pair: Tensor) -> Tensor:
        """The logits of image and label, concatenated along the channels."""
        raise NotImplementedError

    def auxiliary_loss(self, image: Tensor, label: Tensor) -> Tensor:
        """An additional loss of the discriminator on real images; zero unless overridden."""
        return image.new_zeros(())


class ConditionalDiscriminator(Discriminator):
    """The conditional convolutional discriminator of Bass et al. 2019 (appendix), 2-D.

    Convolutions 4x4 of stride 2 to 64, 128, 256 and 512 channels without bias, batch norm from the
    second on, leaky ReLU 0.2, and a 4x4 convolution to one score per patch.

    Deviation: upstream maps the 169 scores of a 256x256 image to one with a dense layer, which
    fixes the size; here the scores are averaged.

    Args:
        label_channels: channels of the label map.
        image_channels: channels of the image.
        width: channels of the first convolution; the published 64.

    >>> disc = ConditionalDiscriminator(label_channels=1, image_channels=1)
    >>> disc(torch.rand(2, 1, 96, 64), torch.zeros(2, 1, 96, 64)).shape
    torch.Size([2, 1])
    """

    def __init__(self, label_channels: int = 1, image_channels: int = 1, width: int = 64) -> None:
        super().__init__(label_channels, image_channels)
        channels = [image_channels + label_channels, width, 2 * width, 4 * width, 8 * width]
        blocks: list[nn.Module] = []
        for depth, (below, above) in enumerate(pairwise(channels)):
            conv = nn.Conv2d(below, above, 4, stride=2, padding=1, bias=False)
            initialize(conv)
            norm = [nn.BatchNorm2d(above)] if depth else []
            blocks += [conv, *norm, nn.LeakyReLU(0.2)]
        last = nn.Conv2d(channels[-1], 1, 4, bias=False)
        initialize(last)
        self.main = nn.Sequential(*blocks, last)

    def score(self, pair: Tensor) -> Tensor:
        """See `Discriminator.score`."""
        scores: Tensor = self.main(pair)
        return scores.flatten(1).mean(1, keepdim=True)


class PatchDiscriminator(Discriminator):
    """The 70x70 patch discriminator of pix2pix (Isola et al. 2017), assembled by MONAI; 2-D.

    Convolutions 4x4 to 64, 128, 256 (stride 2) and 512 channels (stride 1), and to one score per
    patch: 2.8 million parameters. Deviation: instance normalization, not batch statistics.

    Args:
        label_channels, image_channels, width: see `ConditionalDiscriminator`.

    Logits are ``[B, 1, H', W']``, each for one patch of 70x70 pixels; sizes from 32.

    >>> disc = PatchDiscriminator(label_channels=1, image_channels=1)
    >>> disc(torch.rand(2, 1, 128, 64), torch.zeros(2, 1, 128, 64)).shape
    torch.Size([2, 1, 14, 6])
    """

    def __init__(self, label_channels: int = 1, image_channels: int = 1, width: int = 64) -> None:
        super().__init__(label_channels, image_channels)
        from monai.networks.nets import PatchDiscriminator as Patches

        self.patches: nn.Module = Patches(
            2, width, label_channels + image_channels, norm=("instance", {"affine": True})
        )

    def score(self, pair: Tensor) -> Tensor:
        """See `Discriminator.score`."""
        scores: Tensor = self.patches(pair)[-1]
        return scores


class CapsuleDiscriminator(Discriminator):
    """The convolutional capsule discriminator of Bass et al. 2019 (appendix), 2-D.

    A 5x5 convolution, capsule layers 4x4 of stride 2 with one type of 64, 128, 256 and 512 atoms,
    each followed by batch norm, and a 4x4 convolution to one score per patch. With one capsule
    type there is nothing to route: each layer is a convolution and a squash.

    Deviations: the first convolution has as many channels as the input, where upstream's single one
    could not carry a label map of several classes; scores are averaged (see
    `ConditionalDiscriminator`).

    Args:
        label_channels, image_channels, width: see `ConditionalDiscriminator`.
    """

    def __init__(self, label_channels: int = 1, image_channels: int = 1, width: int = 64) -> None:
        super().__init__(label_channels, image_channels)
        first = image_channels + label_channels
        self.conv1 = nn.Conv2d(first, first, 5, padding=2)
        atoms = [first, width, 2 * width, 4 * width, 8 * width]
        self.convcaps = nn.ModuleList(
            conv_capsule(2, (1, below), (1, above), kernel_size=4, stride=2)
            for below, above in pairwise(atoms)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(above) for above in atoms[1:])
        self.conv2 = nn.Conv2d(atoms[-1], 1, 4, bias=False)
        initialize(self.conv1)
        initialize(self.conv2)

    def score(self, pair: Tensor) -> Tensor:
        """See `Discriminator.score`."""
        maps = F.leaky_relu(self.conv1(pair), 0.2)
        for layer, norm in zip(self.convcaps, self.norms, strict=True):
            maps = norm(layer(maps.unsqueeze(1)).squeeze(1))
        scores: Tensor = self.conv2(maps)
        return scores.flatten(1).mean(1, keepdim=True)


class CapsNetDiscriminator(Discriminator):
    """A capsule network with digit capsules "real" and "fake" (Bass et al. 2019, appendix), 2-D.

    Convolutions 9x9 to 128 (stride 2) and 256 channels, primary capsules of 8 atoms in 32 channels
    (9x9, stride 2), two digit capsules of 16 atoms, and a decoder of 512 and 1024 units that
    reconstructs its input. The logit is the difference of the two capsules' lengths.

    Deviations: primary capsules are averaged to a grid of 4x4 before they vote, and the decoder
    draws image and label at `RECONSTRUCTED` pixels, so that weights do not depend on the size;
    upstream has one size and a third hidden layer of 2048.

    Args:
        label_channels, image_channels: see `ConditionalDiscriminator`.
        width: channels of the first convolution; the published 128.
    """

    #: Primary capsules on each edge after averaging, pixels of the reconstruction, its weight.
    GRID, RECONSTRUCTED, RECONSTRUCTION_WEIGHT = 4, 32, 0.0005
    #: A difference of lengths lies in (-1, 1): steepened, it reaches decisions worth 0.999.
    STEEPNESS = 8.0

    def __init__(self, label_channels: int = 1, image_channels: int = 1, width: int = 128) -> None:
        super().__init__(label_channels, image_channels)
        pair, types = image_channels + label_channels, width // 4
        self.conv1 = nn.Conv2d(pair, width, 9, stride=2, padding=4)
        self.conv2 = nn.Conv2d(width, 2 * width, 9, padding=4)
        self.primary = nn.Conv2d(2 * width, 8 * types, 9, stride=2, padding=4)
        for conv in (self.conv1, self.conv2, self.primary):
            initialize(conv)
        self.digits = DenseCapsules(types * self.GRID**2, 8, out_types=2, out_atoms=16)
        self.decoder = nn.Sequential(
            nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 1024), nn.ReLU(),
            nn.Linear(1024, pair * self.RECONSTRUCTED**2), nn.Sigmoid(),
        )  # fmt: skip

    def score(self, pair: Tensor) -> Tensor:
        """See `Discriminator.score`."""
        lengths = capsule_lengths(self._capsules(pair))
        return self.STEEPNESS * (lengths[:, :1] - lengths[:, 1:])

    def auxiliary_loss(self, image: Tensor, label: Tensor) -> Tensor:
        """Sum of squared errors of the reconstruction, times the published 0.0005."""
        pair = torch.cat((image, label), 1)
        drawn = self.decoder(self._capsules(pair).flatten(1))
        wanted = F.adaptive_avg_pool2d(pair, self.RECONSTRUCTED).flatten(1)
        errors: Tensor = (drawn - wanted).square().sum(1)
        return self.RECONSTRUCTION_WEIGHT * errors.mean()

    def _capsules(self, pair: Tensor) -> Tensor:
        """``[B, 2, 16]``: real and fake."""
        maps = torch.relu(self.conv2(torch.relu(self.conv1(pair))))
        poses = F.adaptive_avg_pool2d(self.primary(maps), self.GRID)
        poses = squash(poses.unflatten(1, (-1, 8)).unsqueeze(1), 3)[:, 0]
        capsules: Tensor = self.digits(poses.movedim(2, -1).flatten(1, 3))
        return capsules


#: Arguments of each: label channels, image channels, width.
DISCRIMINATORS: Mapping[str, Callable[[int, int, int], Discriminator]] = {
    "convolutional": ConditionalDiscriminator,
    "patch": PatchDiscriminator,
    "capsule": CapsuleDiscriminator,
    "capsnet": CapsNetDiscriminator,
}


def build_discriminator(
    name: str, label_channels: int, image_channels: int, width: int
) -> Discriminator:
    """Build the discriminator with the given name.

    Args:
        name: a key of `DISCRIMINATORS`.
        label_channels, image_channels: of label map and image.
        width: channels of the first convolution.

    Raises:
        InvalidParameter: an unknown name.
    """
    if name not in DISCRIMINATORS:
        raise InvalidParameter(f"discriminator={name!r}: one of {tuple(DISCRIMINATORS)}")
    return DISCRIMINATORS[name](label_channels, image_channels, width)
