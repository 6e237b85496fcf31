"""Convolutional baselines for classification, with the interface of the capsule networks.

They have no capsules: `classify` returns capsules of zero atoms, and nothing is reconstructed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal, get_args

from torch import Tensor, nn

from caps_med.arguments import check_choice, check_positive, check_share
from caps_med.errors import InvalidParameter
from caps_med.networks.classification import ClassificationNetwork
from caps_med.networks.efficient_convolutions import EfficientConvolutions
from caps_med.routing.layout import widen

#: Probabilities of classes that exclude one another, or of each class alone.
Activation = Literal["softmax", "sigmoid"]


class ConvolutionalClassifier(ClassificationNetwork):
    """Base of the networks in this module: `logits`, and the probabilities computed from them."""

    activation: Activation

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        image_size: Sequence[int],
        activation: Activation,
    ) -> None:
        super().__init__(in_channels, out_channels, image_size)
        check_choice(get_args(Activation), activation=activation)
        self.activation = activation

    def logits(self, image: Tensor) -> Tensor:
        """Scores before the softmax or sigmoid, ``[B, out_channels]``."""
        raise NotImplementedError

    def _classify(self, image: Tensor) -> tuple[Tensor, Tensor]:
        logits = widen(self.logits(image))
        scores = logits.softmax(1) if self.activation == "softmax" else logits.sigmoid()
        return scores, logits.new_zeros(*logits.shape, 0)

    def capsules(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """Not available: these networks have no capsules.

        Raises:
            InvalidParameter: always.
        """
        raise InvalidParameter(f"{type(self).__name__} has no capsules to show")


class ConvNet(ConvolutionalClassifier):
    """The convolutions of `EfficientCapsNet`, global average pooling, and two dense layers.

    Args:
        in_channels: channels of the image.
        out_channels: classes.
        image_size: edges of the image, two or three.
        activation: ``"softmax"``, or ``"sigmoid"`` where several classes may be present.
        hidden: units of the first dense layer.
        dropout: fraction of the hidden units that is dropped in training.

    Input ``[B, in_channels, *image_size]``, output probabilities ``[B, out_channels]``. With 28 x
    28 pixels, one channel and ten classes: 161,834 parameters, ten more than `EfficientCapsNet`
    without its decoder.

    >>> import torch
    >>> ConvNet(in_channels=1, out_channels=10)(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 10,
        image_size: tuple[int, ...] = (28, 28),
        activation: Activation = "softmax",
        hidden: int = 224,
        dropout: float = 0.2,
    ) -> None:
        super().__init__(in_channels, out_channels, image_size, activation)
        check_positive(hidden=hidden)
        check_share(dropout=dropout)
        self.features = EfficientConvolutions(self.spatial_dims, self.stem.out_channels)
        self.head = nn.Sequential(
            nn.Linear(self.features.out_channels, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, out_channels),
        )

    def logits(self, image: Tensor) -> Tensor:
        """See `ConvolutionalClassifier.logits`."""
        maps: Tensor = self.features(self.stem(image))
        found: Tensor = self.head(maps.flatten(2).mean(2))
        return found


class ResNet(ConvolutionalClassifier):
    """MONAI's ResNet (He et al. 2016) with a first convolution for small images.

    Args:
        in_channels: channels of the image.
        out_channels: classes.
        image_size: edges of the image, two or three.
        activation: ``"softmax"``, or ``"sigmoid"`` where several classes may be present.
        blocks: residual blocks in each of the four stages; the default is a ResNet-10.
        widths: channels of the four stages.

    Input ``[B, in_channels, *image_size]``, output probabilities ``[B, out_channels]``. The first
    convolution has kernel 3 and stride 1 and no pooling follows, as for CIFAR.

    >>> import torch
    >>> ResNet(out_channels=4, widths=(8, 8, 16, 16))(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 4])
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 10,
        image_size: tuple[int, ...] = (28, 28),
        activation: Activation = "softmax",
        blocks: tuple[int, int, int, int] = (1, 1, 1, 1),
        widths: tuple[int, int, int, int] = (32, 64, 128, 256),
    ) -> None:
        super().__init__(in_channels, out_channels, image_size, activation)
        check_positive(blocks=min(blocks), widths=min(widths))
        from monai.networks.nets import ResNet as MonaiResNet

        self.resnet: Any = MonaiResNet(
            "basic",
            list(blocks),
            list(widths),
            spatial_dims=self.spatial_dims,
            n_input_channels=self.stem.out_channels,
            conv1_t_size=3,
            conv1_t_stride=1,
            no_max_pool=True,
            num_classes=out_channels,
        )

    def logits(self, image: Tensor) -> Tensor:
        """See `ConvolutionalClassifier.logits`."""
        # not by MONAI's `forward`, whose `view` refuses an empty batch
        maps, layers = self.stem(image), self.resnet
        maps = layers.act(layers.bn1(layers.conv1(maps)))
        for stage in (layers.layer1, layers.layer2, layers.layer3, layers.layer4):
            maps = stage(maps)
        found: Tensor = layers.fc(layers.avgpool(maps).flatten(1))
        return found
