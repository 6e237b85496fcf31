"""Transforming auto-encoder: capsules that learn poses from pairs of images and the known motion.

Hinton, Krizhevsky & Wang 2011, "Transforming auto-encoders", section 2 and figure 1.

Deviations: all capsules are computed at once; images of any size and number of channels; the
matrices of affine poses start near the identity, so that the first products are of moderate size.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Literal

import torch
from torch import Tensor, nn

from caps_med.arguments import check_choice, check_positive
from caps_med.errors import InvalidParameter
from caps_med.networks.base import CapsuleNetwork, LayerInfo, check_input
from caps_med.networks.batching import sample_by_sample

Pose = Literal["translation", "affine"]
#: Numbers of a pose.
_ATOMS: dict[Pose, int] = {"translation": 2, "affine": 9}


class TransformingAutoencoder(CapsuleNetwork):
    """Draw an image as it looks after a known transform.

    Args:
        in_channels: channels of the image.
        image_size: height and width.
        capsules: number of capsules; each sees the whole image.
        recognition: hidden units per capsule that compute its presence and pose.
        generation: hidden units per capsule that draw its contribution from the transformed pose.
        pose: ``"translation"``: two numbers, to which the shift is added; ``"affine"``: a 3 x 3
            matrix, which the matrix of the transform multiplies from the left.

    ``network(image [B, C, H, W], transform)`` -> ``[B, C, H, W]`` with the transform ``[B, 2]`` or
    ``[B, 3, 3]``, in whatever units the training data use. Only presence and pose of the input
    reach the drawing, so poses have to follow the transforms. Train with the squared error, and
    with inputs that are shifted themselves: otherwise one fixed pose would do for all of them.

    >>> network = TransformingAutoencoder(1, (22, 22))
    >>> network(torch.rand(4, 1, 22, 22), torch.tensor([[2.0, -1.0]]).expand(4, 2)).shape
    torch.Size([4, 1, 22, 22])
    """

    spatial_dims = 2
    whole_training_batches = True

    def __init__(
        self,
        in_channels: int = 1,
        image_size: tuple[int, int] = (28, 28),
        capsules: int = 30,
        recognition: int = 10,
        generation: int = 20,
        pose: Pose = "translation",
    ) -> None:
        super().__init__()
        check_choice(tuple(_ATOMS), pose=pose)
        check_positive(
            in_channels=in_channels, capsules=capsules, recognition=recognition,
            generation=generation, image_size=min(image_size),
        )  # fmt: skip
        self.in_channels, self.image_size = in_channels, tuple(image_size)
        self.shape = (in_channels, *self.image_size)
        self.pose: Pose = pose
        pixels, atoms = in_channels * math.prod(image_size), _ATOMS[pose]
        self.recognize = CapsuleLinear(capsules, pixels, recognition, shared=True)
        self.presence = CapsuleLinear(capsules, recognition, 1)
        self.find_pose = CapsuleLinear(capsules, recognition, atoms)
        self.generate = CapsuleLinear(capsules, atoms, generation)
        self.draw = CapsuleLinear(capsules, generation, pixels)
        if pose == "affine":
            with torch.no_grad():
                self.find_pose.bias.copy_(torch.eye(3).flatten().expand(capsules, 9))
        self.layers = (LayerInfo("capsules", capsules, atoms, max(image_size)),)

    @sample_by_sample
    def forward(self, image: Tensor, transform: Tensor) -> Tensor:
        """See the class.

        Raises:
            InvalidParameter: an image or a transform of the wrong shape.
        """
        presence, poses = self._encode(image)
        return self._decode(presence, self._moved(poses, transform))

    @sample_by_sample
    def encode(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Presence ``[B, K]`` in (0, 1) and pose ``[B, K, 2]`` or ``[B, K, 3, 3]`` of all capsules.

        Raises:
            InvalidParameter: an image of the wrong shape.
        """
        presence, poses = self._encode(image)
        return presence, poses if self.pose == "translation" else poses.unflatten(2, (3, 3))

    @sample_by_sample
    def capsules(self, image: Tensor, transform: Tensor | None = None) -> OrderedDict[str, Tensor]:
        """Poses ``[B, K, A, 1, 1]`` by layer name, transformed if a transform is given."""
        poses = self._encode(image)[1]
        if transform is not None:
            poses = self._moved(poses, transform)
        return OrderedDict(capsules=poses[..., None, None])

    def check(self, image: Tensor, transform: Tensor | None = None) -> None:
        """See `CapsuleNetwork.check`."""
        check_input("image", image, self.in_channels, self.spatial_dims, 1)
        if tuple(image.shape[2:]) != self.image_size:
            raise InvalidParameter(
                f"image has spatial size {tuple(image.shape[2:])}: {self.image_size} is needed"
            )
        shape = (len(image), 2) if self.pose == "translation" else (len(image), 3, 3)
        if transform is not None and tuple(transform.shape) != shape:
            raise InvalidParameter(
                f"transform has shape {tuple(transform.shape)}: {shape} is needed"
            )

    def _encode(self, image: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.sigmoid(self.recognize(image.flatten(1)))
        return torch.sigmoid(self.presence(hidden)).squeeze(2), self.find_pose(hidden)

    def _moved(self, poses: Tensor, transform: Tensor) -> Tensor:
        if self.pose == "translation":
            return poses + transform.unsqueeze(1)
        matrices: Tensor = transform.unsqueeze(1) @ poses.unflatten(2, (3, 3))
        return matrices.flatten(2)

    def _decode(self, presence: Tensor, poses: Tensor) -> Tensor:
        drawn: Tensor = self.draw(torch.sigmoid(self.generate(poses)))
        image: Tensor = (presence.unsqueeze(2) * drawn).sum(1).unflatten(1, self.shape)
        return image


class CapsuleLinear(nn.Module):
    """One linear layer for each capsule: ``[B, K, in]`` -> ``[B, K, out]``.

    Args:
        capsules: K.
        in_features: inputs of each capsule.
        out_features: outputs of each capsule.
        shared: whether all capsules have the same input ``[B, in]``.
    """

    def __init__(
        self, capsules: int, in_features: int, out_features: int, shared: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(capsules, in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(capsules, out_features))
        self.equation = "bi,kio->bko" if shared else "bki,kio->bko"
        nn.init.normal_(self.weight, std=in_features**-0.5)

    def forward(self, features: Tensor) -> Tensor:
        """See the class."""
        return torch.einsum(self.equation, features, self.weight) + self.bias
