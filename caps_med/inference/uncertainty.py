"""How sure a model is of an image, in numbers that rank images for active learning.

>>> from caps_med.inference import load_model  # doctest: +SKIP
>>> found = load_model("my-tumours").uncertainty("flair.nii.gz")  # doctest: +SKIP
>>> found.entropy, found.flips, found.descriptor.shape  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caps_med.images import MedicalImage
from caps_med.inference.passes import WINDOW, check_wanted, input_of_slice

if TYPE_CHECKING:
    from caps_med.inference.segmenter import Segmentation, Segmenter

FloatArray = NDArray[np.float32]

#: Evenly spaced slices of a volume whose capsules describe it, for a 2-D network.
DESCRIBED_SLICES = 8


@dataclass(frozen=True, eq=False)
class ImageUncertainty:
    """How sure a segmentation model is of one image, and what the image looks like to it.

    Attributes:
        entropy: mean normalized entropy of the class probabilities, 0 (sure) to 1 (all classes
            equally probable), over the positions labelled as foreground, or over the whole image
            if there are none.
        flips: mean disagreement of the image and its mirror images, 0 to 3/4, or to 1/2 with a
            single one; see `Disagreement`. None if not requested.
        members: mean disagreement of an ensemble's networks, 0 to 1 - 1 / members; None for a
            single network, or if not requested.
        descriptor: ``[N]``, float32: the mean pose vector of each capsule type of the last layer,
            one after another (N = types x atoms); without capsules the mean probability of each
            class. The distance between descriptors of the same model measures how alike two images
            are to it.
        segmentation: the answer to which these numbers refer.
    """

    entropy: float
    flips: float | None
    members: float | None
    descriptor: FloatArray
    segmentation: Segmentation


def image_uncertainty(
    segmenter: Segmenter, image: MedicalImage, disagreement: bool = True
) -> ImageUncertainty:
    """How sure a model is of an image; `Model.uncertainty` reads the image too.

    Args:
        segmenter: of the model.
        image: ``[C, *S]``.
        disagreement: whether to also segment the mirror images, and with each member of an
            ensemble: 4 passes instead of 1, and one for each member.

    Raises:
        InvalidInput, InputTooLarge: see `Segmenter`.
    """
    answer = segmenter(image, disagreement=disagreement)
    views = answer.disagreement
    return ImageUncertainty(
        entropy=answer.mean_entropy,
        flips=None if views is None else views.flips,
        members=None if views is None else views.members,
        descriptor=_descriptor(segmenter, image, answer),
        segmentation=answer,
    )


def _descriptor(segmenter: Segmenter, image: MedicalImage, answer: Segmentation) -> FloatArray:
    if not segmenter.network.layers:
        maps = answer.probabilities.array
        means = maps.reshape(len(maps), -1).mean(1, dtype=np.float64)
        return np.asarray(means, dtype=np.float32)
    return mean_poses(segmenter, segmenter.prepare(image).slices).ravel()


def mean_poses(segmenter: Segmenter, slices: Tensor) -> FloatArray:
    """Mean pose vector ``[J, A]`` of each capsule type of the last layer.

    A 2-D network is shown `DESCRIBED_SLICES` slices of a volume; for a slice or volume over
    `WINDOW` only the middle is used.

    Args:
        slices: ``[D, C, H, W]``, prepared for the network.
    """
    network, last = segmenter.network, segmenter.network.layers[-1]
    means = []
    for index, part in _described(slices, network.spatial_dims):
        check_wanted()
        with torch.inference_mode():
            capsules = network.capsules(input_of_slice(network, part, index))[last.name]
        sizes = part.shape[2:] if network.spatial_dims == 2 else (len(part), *part.shape[2:])
        for axis, size in enumerate(sizes, start=3):  # without padding
            capsules = capsules.narrow(axis, 0, -(-size // last.stride))
        means.append(capsules[0].float().flatten(2).mean(2).cpu())
    return np.asarray(torch.stack(means).mean(0).numpy(), dtype=np.float32)


def _described(slices: Tensor, spatial_dims: int) -> Iterator[tuple[int, Tensor]]:
    """Index of a slice, and the slices from which to take it."""
    for axis in (2, 3) if spatial_dims == 2 else (0, 2, 3):
        size = min(slices.shape[axis], WINDOW[spatial_dims])
        slices = slices.narrow(axis, (slices.shape[axis] - size) // 2, size)
    if spatial_dims == 3:
        yield 0, slices
        return
    count = min(len(slices), DESCRIBED_SLICES)
    for place in range(count):
        yield (2 * place + 1) * len(slices) // (2 * count), slices
