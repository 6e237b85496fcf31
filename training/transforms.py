"""Random variations of labelled slices, by MONAI's transforms and one of our own."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Annotated, Any

import monai.transforms as mt
import torch
import torch.nn.functional as F
from monai.config import KeysCollection
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from training.data.dataset import Source

#: A sample is cut this much larger than the crop, so that turning and shrinking find pixels.
CONTEXT = 1.4

Amount = Annotated[float, Field(ge=0)]
Change = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class Augmentation(BaseModel):
    """How training crops vary; a crop's place varies anyway.

    Attributes:
        rotation: largest angle, in radians.
        zoom, shear: largest relative change.
        elastic: largest displacement of a grid of 24 pixels, in pixels (2-D only).
        flip_columns, flip_rows: how often the picture is mirrored, left-right and top-bottom.
        field: strength of an uneven field, in 40 % of the crops.
        contrast: largest logarithm of the gamma, in 60 %.
        brightness: largest relative change, in 50 %.
        blur: largest standard deviation in pixels, in 20 %.
        noise: largest standard deviation, in 50 %.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rotation: Amount = 0.35
    zoom: Change = 0.2
    shear: Amount = 0.1
    elastic: Amount = 4.0
    flip_columns: Share = 0.5
    flip_rows: Share = 0.0
    field: Amount = 0.15
    contrast: Amount = 0.35
    brightness: Change = 0.15
    blur: Amount = 0.9
    noise: Amount = 0.04

    @property
    def warps(self) -> bool:
        """Whether pixels are resampled."""
        return any((self.rotation, self.zoom, self.shear, self.elastic))


def spatial(
    source: Source,
    crop: int,
    augmentation: Augmentation | None = None,
    warp: bool = True,
    foreground: float = 0.0,
) -> list[mt.Transform]:
    """Crop and flip; with `warp` turn, scale, shear and bend too.

    Labels are resampled with nearest neighbours, the rest linearly. Without `warp` nothing is
    resampled: pixels stay what they were, the dark rim of a masked brain included. The share
    `foreground` of all crops has a labelled pixel in its middle.
    """
    augmentation, dims = augmentation or Augmentation(), source.spatial_dims
    keys = [k for k in ("image", "label", "tissue") if k in source.training[0]]
    context = (round(crop * CONTEXT) if warp else crop,) * dims
    transforms: list[mt.Transform] = [
        mt.ToTensord(keys, track_meta=False),
        mt.CastToTyped(keys, dtype=torch.float32),
        mt.SpatialPadd(keys, spatial_size=context),
        _place(keys, context, foreground),
        mt.RandFlipd(keys, prob=augmentation.flip_columns, spatial_axis=dims - 1),
        mt.RandFlipd(keys, prob=augmentation.flip_rows, spatial_axis=dims - 2),
    ]
    if not warp:
        return transforms
    transforms.append(_bend(keys, (crop,) * dims, augmentation))
    if "tissue" in keys:
        transforms.append(_KeepBackgroundd())
    return transforms


def _place(keys: Sequence[str], size: tuple[int, ...], foreground: float) -> mt.Transform:
    """Where the crop is cut."""
    anywhere = mt.RandSpatialCropd(keys, roi_size=size, random_size=False)
    if not foreground:
        return anywhere
    inside = mt.RandCropByPosNegLabeld(
        keys, label_key="label", spatial_size=size, pos=1, neg=0, allow_smaller=True
    )
    return mt.OneOf([inside, anywhere], weights=(foreground, 1 - foreground))


def _bend(keys: Sequence[str], size: tuple[int, ...], augmentation: Augmentation) -> mt.Transform:
    shared = {
        "prob": 1.0,
        "rotate_range": augmentation.rotation,
        "scale_range": (augmentation.zoom,) * len(size),
        "shear_range": (augmentation.shear,) * len(size),
        "spatial_size": size,
        "mode": ["nearest" if key == "label" else "bilinear" for key in keys],
        "padding_mode": "zeros",
    }
    if len(size) == 3:
        return mt.RandAffined(keys, **shared)
    return mt.Rand2DElasticd(
        keys, spacing=(24, 24), magnitude_range=(0, augmentation.elastic), **shared
    )


def segmentation_transforms(
    source: Source,
    crop: int,
    individuals: float = 0.65,
    plain: float = 0.0,
    augmentation: Augmentation | None = None,
    foreground: float = 0.0,
) -> mt.Compose:
    """From a `Sample` to a training crop: ``image`` ``[C, *crop]``, ``label`` ``[1, *crop]``.

    With tissue probabilities, a share of samples become another individual first
    (`RandIndividuald`). Intensities then vary in contrast, uneven field, sharpness and noise, and
    a masked background stays zero. The share `plain` of all crops is only cut and flipped.
    """
    augmentation = augmentation or Augmentation()
    drawn = [RandIndividuald(prob=individuals)] if "tissue" in source.training[0] else []
    varied = [*drawn, *_intensities(source.normalization.foreground_only, augmentation)]
    shapes = [
        mt.Compose([*spatial(source, crop, augmentation, True, foreground), *varied]),
        mt.Compose(spatial(source, crop, augmentation, False, foreground)),
    ]
    choose = mt.SelectItemsd(("image", "label"))
    return mt.Compose([mt.OneOf(shapes, weights=(1 - plain, plain)), choose])


def _intensities(masked: bool, augmentation: Augmentation) -> list[mt.Transform]:
    blurred = 0.2 * (augmentation.blur > 0)
    blur = (min(0.25, augmentation.blur), augmentation.blur)
    gamma = (math.exp(-augmentation.contrast), math.exp(augmentation.contrast))
    return [
        *([_RememberMaskd()] if masked else []),
        mt.RandBiasFieldd("image", prob=0.4, coeff_range=(0.0, augmentation.field)),
        mt.RandAdjustContrastd("image", prob=0.6 * (augmentation.contrast > 0), gamma=gamma),
        mt.RandScaleIntensityd("image", prob=0.5, factors=augmentation.brightness),
        mt.RandGaussianSmoothd("image", prob=blurred, sigma_x=blur, sigma_y=blur, sigma_z=blur),
        mt.RandGaussianNoised("image", prob=0.5, std=augmentation.noise),
        *([mt.MaskIntensityd("image", mask_key="mask")] if masked else []),
        mt.ThresholdIntensityd("image", threshold=1.0, above=False, cval=1.0),
        mt.ThresholdIntensityd("image", threshold=0.0, above=True, cval=0.0),
    ]


def synthesis_transforms(source: Source, crop: int, augmentation: Augmentation) -> mt.Compose:
    """From a `Sample` to a training crop, as for segmentation but without another individual."""
    clean = mt.SelectItemsd(("image", "label"))
    masked = source.normalization.foreground_only
    varied = _intensities(masked, augmentation)
    warp = augmentation.warps
    return mt.Compose([*spatial(source, crop, augmentation, warp), *varied, clean])


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
