"""Random variations of labelled slices, by MONAI's transforms and one of our own."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import monai.transforms as mt
import torch
import torch.nn.functional as F
from monai.config import KeysCollection
from torch import Tensor

from training.datasets.source import Source

#: The slice is cut this much larger than the crop, so that turning and shrinking find pixels.
CONTEXT = 1.4


def spatial(source: Source, crop: int, warp: bool = True) -> list[mt.Transform]:
    """Crop and flip; with `warp` turn, scale, shear and bend too.

    Labels are resampled with nearest neighbours, the rest bilinear. Without `warp` nothing is
    resampled: pixels stay what they were, the dark rim of a masked brain included.
    """
    keys = [k for k in ("image", "label", "tissue") if k in source.training[0]]
    modes = ["nearest" if key == "label" else "bilinear" for key in keys]
    context = (round(crop * CONTEXT) if warp else crop,) * 2
    transforms: list[mt.Transform] = [
        mt.ToTensord(keys, track_meta=False),
        mt.CastToTyped(keys, dtype=torch.float32),
        mt.SpatialPadd(keys, spatial_size=context),
        mt.RandSpatialCropd(keys, roi_size=context, random_size=False),
        mt.RandFlipd(keys, prob=0.5, spatial_axis=1),
    ]
    if not warp:
        return transforms
    transforms.append(
        mt.Rand2DElasticd(
            keys,
            spacing=(24, 24),
            magnitude_range=(0, 4),
            prob=1.0,
            rotate_range=0.35,
            scale_range=(0.2, 0.2),
            shear_range=(0.1, 0.1),
            spatial_size=(crop, crop),
            mode=modes,
            padding_mode="zeros",
        )
    )
    if "tissue" in keys:
        transforms.append(_KeepBackgroundd())
    return transforms


def segmentation_transforms(
    source: Source, crop: int, individuals: float = 0.65, plain: float = 0.0
) -> mt.Compose:
    """From a `Sample` to a training crop: ``image`` ``[C, crop, crop]``, ``label`` ``[1, ...]``.

    With tissue probabilities, a share of samples become another individual first
    (`RandIndividuald`). Intensities then vary in contrast, uneven field, sharpness and noise, and
    a masked background stays zero. The share `plain` of all crops is only cut and flipped.
    """
    drawn = [RandIndividuald(prob=individuals)] if "tissue" in source.training[0] else []
    varied = [*drawn, *_intensities(source.normalization.foreground_only)]
    return mt.Compose(
        [
            mt.OneOf(
                [
                    mt.Compose([*spatial(source, crop), *varied]),
                    mt.Compose(spatial(source, crop, warp=False)),
                ],
                weights=(1 - plain, plain),
            ),
            mt.SelectItemsd(("image", "label")),
        ]
    )


def _intensities(masked: bool) -> list[mt.Transform]:
    return [
        *([_RememberMaskd()] if masked else []),
        mt.RandBiasFieldd("image", prob=0.4, coeff_range=(0.0, 0.15)),
        mt.RandAdjustContrastd("image", prob=0.6, gamma=(0.7, 1.4)),
        mt.RandScaleIntensityd("image", prob=0.5, factors=0.15),
        mt.RandGaussianSmoothd("image", prob=0.2, sigma_x=(0.25, 0.9), sigma_y=(0.25, 0.9)),
        mt.RandGaussianNoised("image", prob=0.5, std=0.04),
        *([mt.MaskIntensityd("image", mask_key="mask")] if masked else []),
        mt.ThresholdIntensityd("image", threshold=1.0, above=False, cval=1.0),
        mt.ThresholdIntensityd("image", threshold=0.0, above=True, cval=0.0),
    ]


def synthesis_transforms(source: Source, crop: int) -> mt.Compose:
    """From a `Sample` to a training crop whose intensities are left as they are."""
    clean = mt.SelectItemsd(("image", "label"))
    return mt.Compose([*spatial(source, crop), clean])


class _KeepBackgroundd(mt.Transform):
    """After resampling: pixels without tissue are background with certainty, labels follow."""

    def __call__(self, data: Mapping[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        tissue = data["tissue"].clone()
        tissue[0] += 1 - tissue.sum(0).clamp(max=1)
        return {**data, "tissue": tissue, "label": tissue.argmax(0, keepdim=True).float()}


class _RememberMaskd(mt.Transform):
    def __call__(self, data: Mapping[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        return {**data, "mask": (data["image"].amax(0, keepdim=True) > 0).float()}


class RandIndividuald(mt.RandomizableTransform, mt.MapTransform):
    """Draw one individual from an average: sharp sulci where the template only has probabilities.

    An average head is smooth: where half of 152 heads have fluid in a sulcus and half have cortex,
    the template is grey. Its tissue maps say how often each tissue is found. Here every pixel
    draws its tissue from them, with noise that is correlated over one to three pixels, so that the
    drawn label map has the fine folds of a single head; and the image's expected tissue means are
    replaced by those of the drawn tissue, slightly blurred (partial volume), in the template's
    contrast or a random one with fluid < grey < white. What distinguishes the image from its
    tissue means (the darker white matter of the brain stem, the brighter thalamus) is kept in
    part. Masks of skull stripping vary too: a rim of fluid outside the template's mask is added, or
    a rim of the brain is taken off. Close to Billot et al. 2023 (SynthSeg), who draw contrasts but
    not tissue from probabilities.

    Input keys: ``image`` ``[1, H, W]``, ``label`` ``[1, H, W]``, ``tissue`` ``[4, H, W]`` in the
    order background, fluid, grey, white.
    """

    def __init__(self, keys: KeysCollection = ("image", "label"), prob: float = 0.65) -> None:
        mt.MapTransform.__init__(self, keys)
        mt.RandomizableTransform.__init__(self, prob)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """The same keys, of one individual."""
        self.randomize(None)
        if not self._do_transform:
            return dict(data)
        tissue: Tensor = data["tissue"]
        image = data["image"][0]
        label = self._draw(self._strip(tissue))
        drawn = F.one_hot(label, tissue.shape[0]).permute(2, 0, 1).float()
        means = (tissue * image).sum((1, 2)) / tissue.sum((1, 2)).clamp_min(1e-3)
        expected = (tissue * means.view(-1, 1, 1)).sum(0)
        contrast = self._contrast(means)
        sharp = _blur((drawn * contrast.view(-1, 1, 1)).sum(0), self.R.uniform(0.3, 0.75))
        kept = self.R.uniform(0.3, 1.0) * (image - expected) * (tissue[0] < 0.5)
        texture = _blur(self._noise(image.shape), 0.7) * self.R.uniform(0, 0.05)
        individual = (sharp + kept + texture).clamp(0.02, 1) * (label > 0)
        return {**data, "image": individual[None], "label": label[None].float()}

    def _draw(self, tissue: Tensor) -> Tensor:
        """Labels ``[H, W]`` drawn from probabilities with correlated noise."""
        scale, strength = self.R.uniform(0.6, 2.2), self.R.uniform(0.3, 2.0)
        noise = torch.stack([_blur(self._noise(tissue.shape[1:]), scale) for _ in tissue])
        noise = noise / noise.std().clamp_min(1e-6)
        logits = torch.log(tissue.clamp(1e-4, 1)) + strength * noise
        logits[0] = torch.where(tissue[0] > 0.5, torch.inf, -torch.inf)
        label: Tensor = logits.argmax(0)
        return label

    def _strip(self, tissue: Tensor) -> Tensor:
        """Probabilities of a brain that was stripped more generously or more tightly."""
        rim = int(self.R.randint(-2, 4))
        if rim == 0:
            return tissue
        tissue, size = tissue.clone(), 2 * abs(rim) + 1
        background = tissue[0] > 0.5
        grown = (background if rim < 0 else ~background).float()[None]
        changed = F.max_pool2d(grown, size, stride=1, padding=abs(rim))[0] > 0
        changed &= ~background if rim < 0 else background
        tissue[:, changed] = 0
        tissue[0 if rim < 0 else 1, changed] = 1
        return tissue

    def _contrast(self, means: Tensor) -> Tensor:
        """Intensity of background, fluid, grey and white matter."""
        if self.R.uniform() < 0.5:
            jitter = torch.from_numpy(self.R.normal(0, 0.04, 4)).float()
            jitter[1] -= self.R.uniform(0, 0.25)
            return (means + jitter).clamp(0.03, 1) * torch.tensor([0.0, 1, 1, 1])
        white = self.R.uniform(0.75, 1.0)
        grey = white * self.R.uniform(0.62, 0.88)
        fluid = grey * self.R.uniform(0.15, 0.75)
        return torch.tensor([0.0, fluid, grey, white])

    def _noise(self, shape: torch.Size) -> Tensor:
        return torch.from_numpy(self.R.standard_normal(tuple(shape))).float()


def _blur(image: Tensor, sigma: float) -> Tensor:
    smoothed: Tensor = mt.GaussianSmooth(sigma)(image[None])
    return smoothed[0]
