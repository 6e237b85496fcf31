"""Scores and pictures of a network in training, on held-out samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from monai.metrics import compute_confusion_matrix_metric, get_confusion_matrix
from monai.networks.utils import eval_mode
from numpy.typing import NDArray
from torch import Tensor

from caps_med.images import label_palette
from caps_med.inference.passes import in_passes
from caps_med.networks import (
    SegmentationNetwork,
    SynthesisNetwork,
    one_hot,
    predicted_classes,
)
from caps_med.networks.padding import cropped, padded
from training.data.samples import UNLABELLED, Sample, evenly
from training.evaluation.metrics.image import masked_ssim
from training.evaluation.metrics.planes import as_slices
from training.progress import SCORING, tracked

#: Samples side by side in a picture.
_SHOWN = 4


def dice_scores(
    network: SegmentationNetwork, samples: Sequence[Sample], labels: Mapping[int, str]
) -> dict[str, float]:
    """Dice of each foreground class over all labelled pixels of all samples, and ``score``, their
    mean.

    A class in neither the labels nor the predictions has no Dice and does not count. Pooled over
    pixels and on the network's device, by MONAI; `metrics.overlap` scores single cases.

    Not MONAI's ConfusionMatrixMetric: of several processes it gathers what all have seen, and would
    wait for ever where the first alone scores.
    """
    channels = network.out_channels
    counts = []
    with eval_mode(network):
        for image, label in _cases(samples, network):
            found = predicted_classes(_answer(network, image))
            true, labelled = of_labelled(label, channels)
            of_sample = one_hot(found, channels) * labelled, true
            counts.append(get_confusion_matrix(*of_sample, include_background=channels == 1))
    dice = compute_confusion_matrix_metric("f1 score", torch.cat(counts).sum(0))
    per_class = dice.tolist()
    names = list(labels.values())[1:]
    scores = {f"dice {n}": v for n, v in zip(names, per_class, strict=True) if v == v}  # not NaN
    return {"score": sum(scores.values()) / max(1, len(scores)), **scores}


def pixel_scores(
    network: SegmentationNetwork, samples: Sequence[Sample], pixels: int = 20_000
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores ``[N, K]`` and true classes ``[N]`` of randomly chosen labelled pixels.

    Args:
        pixels: of each sample; all of a smaller one.
    """
    random = np.random.default_rng(0)
    scores, classes = [], []
    with eval_mode(network):
        for image, label in _cases(samples, network):
            maps = _answer(network, image)[0].flatten(1)
            true = label.flatten()
            labelled = torch.nonzero(true != UNLABELLED)[:, 0]
            drawn = random.choice(len(labelled), min(pixels, len(labelled)), replace=False)
            chosen = labelled[torch.from_numpy(drawn).to(true.device)]
            scores.append(maps[:, chosen].T.float().cpu().numpy())
            classes.append(true[chosen].long().cpu().numpy())
    return np.concatenate(scores), np.concatenate(classes)


def of_labelled(label: Tensor, channels: int) -> tuple[Tensor, Tensor]:
    """Classes ``[B, 1, *S]`` one-hot, ``[B, channels, *S]`` with zeros where there is none, and
    whether there is one, ``[B, 1, *S]``.
    """
    labelled = label != UNLABELLED
    return one_hot(label * labelled, channels) * labelled, labelled


def _answer(network: SegmentationNetwork, image: Tensor) -> Tensor:
    """Probabilities of one sample, padded as in inference; of a volume in windows, as there."""
    if network.spatial_dims == 2:
        return cropped(network(padded(network, image)), image.shape[2:])
    maps = image[0].movedim(0, 1)  # a volume as its slices
    return in_passes(network, network, maps).movedim(0, 1)[None].to(image.device)


def validation_picture(network: SegmentationNetwork, samples: Sequence[Sample]) -> Tensor:
    """Some samples side by side, ``[3, H, W]`` in [0, 1]: image, label and prediction below."""
    columns = []
    with eval_mode(network):
        for image, label in _cases(evenly(samples, _SHOWN), network):
            found = predicted_classes(_answer(network, image))
            if image.ndim == 5:
                image, label, found = (x[:, :, x.shape[2] // 2] for x in (image, label, found))
            columns.append(_column(image, label, found).cpu())
    height, width = (max(c.shape[axis] for c in columns) for axis in (1, 2))
    padded = [F.pad(c, (0, width - c.shape[2], 0, height - c.shape[1])) for c in columns]
    return torch.cat(padded, 2)


def _column(image: Tensor, label: Tensor, found: Tensor) -> Tensor:
    """One sample's image, label and prediction below each other, ``[3, 3 H, W]``."""
    gray = image[0, image.shape[1] // 2].clamp(0, 1).expand(3, -1, -1)
    palette = torch.as_tensor(label_palette(), dtype=torch.float32, device=image.device) / 255
    colored = [palette[x[0, 0].long()].movedim(-1, 0) for x in (label, found)]
    return torch.cat([gray, *colored], 1)


def synthesis_scores(
    generator: SynthesisNetwork, samples: Sequence[Sample], channels: int
) -> dict[str, float]:
    """SSIM (also as ``score``) and mean absolute error in the labelled foreground.

    Both are averaged over the pixels of each sample, then over samples. The image is that of
    `average_style`, without the grain, which no two images share.
    """
    z = average_style(generator)
    ssims, errors = [], []
    with eval_mode(generator):
        for image, label in _cases(samples, generator):
            condition = one_hot(padded(generator, label), channels)
            fake, _ = generator.clean_and_image(condition, z.to(image.device))
            fake = cropped(fake, image.shape[2:])
            fake, image, inside = (as_slices(x) for x in (fake, image, (label > 0).float()))
            if inside.sum() > 0:
                ssims.append(masked_ssim(fake, image, inside))
                errors.append(float(((fake - image).abs() * inside).sum() / inside.sum()))
    ssim, error = (sum(values) / max(1, len(values)) for values in (ssims, errors))
    return {"score": ssim, "ssim": ssim, "mean absolute error": error}


def average_style(generator: SynthesisNetwork) -> Tensor:
    """A noise vector ``[1, Z]`` whose first half, the style code, is zero.

    See `training.tasks.synthesis.style`. The other half is random but fixed: generators are never
    trained on a z without it.
    """
    z = torch.randn(1, generator.noise_size, generator=torch.Generator().manual_seed(0))
    z[:, : generator.noise_size // 2] = 0
    return z


def _cases(samples: Sequence[Sample], network: torch.nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Image and label ``[1, C, *S]`` of each sample, on the network's device."""
    device = next(network.parameters()).device
    for sample in tracked(samples, SCORING):
        image, label = (torch.from_numpy(sample[key]).float() for key in ("image", "label"))
        yield image[None].to(device), label[None].to(device)
