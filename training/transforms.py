"""Random augmentation of labelled samples: MONAI's transforms and one of our own."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import monai.transforms as mt
import numpy as np
import torch
import torch.nn.functional as F
from monai.config import KeysCollection
from monai.transforms.utils import create_control_grid
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from training.data.samples import UNLABELLED, Source

#: Samples are cut larger than the crop by this factor, so that a rotated or shrunk crop is filled.
CONTEXT = 1.4

#: Where crops lie. ``anywhere``: around any pixel, moved inwards at the border of the image; what
#: they are warped from is mirrored beyond it. ``inside``: with equal probability wherever all that
#: they are warped from lies in the image, so that its border is not seen.
Crops = Literal["anywhere", "inside"]

Pixels = TypeVar("Pixels", NDArray[np.uint8], Tensor)
Amount = Annotated[float, Field(ge=0)]
Change = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class Augmentation(BaseModel):
    """Strength of the random augmentation; crops are taken at random positions in any case.

    Attributes:
        rotation: maximum angle in radians.
        zoom, shear: maximum relative change.
        elastic: maximum displacement of the points of a grid of 24 pixels, in pixels (2-D only).
        flip_columns, flip_rows: probability of a flip, left-right and top-bottom.
        field: strength of a bias field, in 40 % of the crops.
        contrast: maximum absolute logarithm of gamma, in 60 %.
        brightness: maximum relative change, in 50 %.
        blur: maximum standard deviation in pixels, in 20 %.
        noise: standard deviation of Gaussian noise, in 50 %.
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
        """Whether any of the changes resamples pixels."""
        return any((self.rotation, self.zoom, self.shear, self.elastic))


def spatial_transforms(
    source: Source,
    crop: int,
    augmentation: Augmentation | None = None,
    warp: bool = True,
    foreground: float = 0.0,
    continued: bool = False,
    crops: Crops = "inside",
) -> list[mt.Transform]:
    """Crop and flip; with `warp` also rotate, scale, shear and deform.

    Labels are resampled by nearest neighbour, all else linearly. Without `warp` nothing is
    resampled, so that the sharp rim of a masked brain stays sharp. The share `foreground` of the
    crops is centred on a labelled pixel, and of partly labelled data the others on a pixel that has
    a class, background included. Samples smaller than the crop are padded with zeros, or,
    if `continued`, mirrored.

    Args:
        crops: where they lie, see `Crops`.
    """
    augmentation, dims = augmentation or Augmentation(), source.spatial_dims
    keys = [k for k in ("image", "label", "tissue") if k in source.training[0]]
    context = (round(crop * CONTEXT) if warp else crop,) * dims
    outside = _outside_unlabelled if source.partly_labelled else list
    least, around = context, partial(_inside, keys, context)
    if crops == "anywhere":
        least = (crop,) * dims
        around = partial(_AroundAnyd, keys, least, context[0] - crop)
    transforms: list[mt.Transform] = [
        *outside([_Padded(keys, least, continued)]),
        _crop(around, foreground, source.partly_labelled),
        mt.RandFlipd(keys, prob=augmentation.flip_columns, spatial_axis=dims - 1),
        mt.RandFlipd(keys, prob=augmentation.flip_rows, spatial_axis=dims - 2),
    ]
    if not warp:
        return transforms
    transforms += outside([_warp(keys, (crop,) * dims, augmentation)])
    if "tissue" in keys:
        transforms.append(_KeepBackgroundd())
    return transforms


def _outside_unlabelled(transforms: Sequence[mt.Transform]) -> list[mt.Transform]:
    """Transforms that fill label maps with 0, so that they fill them with `UNLABELLED`."""
    swap = mt.Lambdad("label", _with_unlabelled_as_0)
    return [swap, *transforms, swap]


def _with_unlabelled_as_0(label: Pixels) -> Pixels:
    """Or back again."""
    return UNLABELLED - label


def _crop(
    around: Callable[[int | None], mt.Transform], foreground: float, partly_labelled: bool
) -> mt.Transform:
    """A crop at any position, of partly labelled data one with a class, or around a labelled pixel.

    Args:
        around: makes the transform of the lowest class that its centre may have; of None for any
            pixel.
    """
    anywhere = around(0 if partly_labelled else None)
    if not foreground:
        return anywhere
    return mt.OneOf([around(1), anywhere], weights=(foreground, 1 - foreground))


def _inside(keys: Sequence[str], size: tuple[int, ...], lowest: int | None) -> mt.Transform:
    """MONAI's crop at any position, or around a class."""
    if lowest is None:
        return mt.RandSpatialCropd(keys, roi_size=size, random_size=False)
    return _Aroundd(keys, size, lowest)


def _places(label: Tensor, lowest: int) -> NDArray[np.intp]:
    """The pixels of a label map with the class `lowest` or one above it, numbered in its order."""
    suits = ((label >= lowest) & (label != UNLABELLED)).any(0).flatten()
    return np.flatnonzero(suits.numpy())


class _AroundAnyd(mt.Randomizable, mt.MapTransform):
    """A crop around a random pixel, with a margin, which is mirrored beyond the image's border.

    A crop that would reach beyond the border is moved inwards; only the margin lies there. So every
    pixel occurs in crops, and what lies at the border, such as the background of a masked head, in
    about as large a part of them as of the image.

    Args:
        size: of the crop along each axis, at most that of the image.
        margin: added to each axis, half of it on each side.
        lowest: the centre has this class or one above it, where there is one; None for any pixel.
    """

    def __init__(
        self, keys: KeysCollection, size: Sequence[int], margin: int, lowest: int | None
    ) -> None:
        mt.MapTransform.__init__(self, keys)
        self.size, self.margin, self.lowest = size, (margin // 2, margin - margin // 2), lowest

    def randomize(self, label: Tensor) -> None:
        """Choose the first pixel of the crop along each axis."""
        shape = label.shape[1:]
        chosen = () if self.lowest is None else _places(label, self.lowest)
        place = self.R.randint(len(chosen) or shape.numel())
        if len(chosen):
            place = chosen[place]
        center = np.unravel_index(place, shape)
        last = np.subtract(shape, self.size)
        self.first = np.clip(np.subtract(center, np.floor_divide(self.size, 2)), 0, last).tolist()

    def __call__(self, data: Mapping[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        """The same keys, cropped alike."""
        self.randomize(data["label"])
        return {**data, **{key: self._cut(data[key]) for key in self.keys}}

    def _cut(self, array: Tensor) -> Tensor:
        for axis, (first, width) in enumerate(zip(self.first, self.size, strict=True), start=1):
            places = np.pad(np.arange(array.shape[axis]), self.margin, mode="symmetric")
            places = places[first : first + width + sum(self.margin)]
            array = array.index_select(axis, torch.from_numpy(places))
        return array


class _Aroundd(mt.RandCropByPosNegLabeld):
    """MONAI's crop around a class, without its warning of samples that have no such pixel, or
    nothing else.

    Args:
        lowest: the centre has this class or one above it, where there is one.
    """

    def __init__(self, keys: KeysCollection, size: tuple[int, ...], lowest: int) -> None:
        super().__init__(
            keys, label_key="label", spatial_size=size, pos=1, neg=0, allow_smaller=True
        )
        self.lowest = lowest

    def randomize(self, label: Tensor, *_: Any) -> None:  # noqa: ANN401 - MONAI's, not used here
        """Choose the centre: one of those pixels, or any where all are alike."""
        chosen = _places(label, self.lowest)
        if not len(chosen):
            chosen = np.arange(label[0].numel())
        self.cropper.randomize(label, chosen, chosen)


def _warp(keys: Sequence[str], size: tuple[int, ...], augmentation: Augmentation) -> mt.Transform:
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
    return _Elasticd(keys, spacing=(24, 24), magnitude_range=(0, augmentation.elastic), **shared)


def segmentation_transforms(
    source: Source,
    crop: int,
    individuals: float = 0.65,
    plain: float = 0.0,
    augmentation: Augmentation | None = None,
    foreground: float = 0.0,
    crops: Crops = "anywhere",
) -> mt.Compose:
    """From a `Sample` to a training crop: ``image`` ``[C, *crop]``, ``label`` ``[1, *crop]``.

    The share `plain` of the crops is only cropped and flipped. In the others, where the data have
    tissue probabilities, the share `individuals` becomes another individual (`RandIndividuald`);
    then contrast, bias field, sharpness and noise vary. A masked background stays zero. An
    `augmentation` that warps nothing resamples nothing.
    """
    augmentation = augmentation or Augmentation()
    warp = augmentation.warps
    drawn = [RandIndividuald(prob=individuals)] if "tissue" in source.training[0] else []
    varied = [*drawn, *_intensities(source.normalization.foreground_only, augmentation)]
    shape = partial(
        spatial_transforms, source, crop, augmentation, foreground=foreground, crops=crops
    )
    shapes = [mt.Compose([*shape(warp=warp), *varied]), mt.Compose(shape(warp=False))]
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
    """From a `Sample` to a training crop, as for segmentation but without `RandIndividuald`.

    Small samples are mirrored: a generator cannot tell padding from the background that it borders.
    """
    clean = mt.SelectItemsd(("image", "label"))
    masked = source.normalization.foreground_only
    varied = _intensities(masked, augmentation)
    warp = augmentation.warps
    spatial = spatial_transforms(source, crop, augmentation, warp, continued=True)
    return mt.Compose([*spatial, *varied, clean])


class _Padded(mt.MapTransform):
    """Arrays as tensors of 32-bit floats, centred in at least `size`, as MONAI's SpatialPadd does.

    Args:
        size: of each spatial axis; longer ones are left as they are.
        continued: by mirroring, instead of by zeros.
    """

    def __init__(self, keys: KeysCollection, size: Sequence[int], continued: bool) -> None:
        super().__init__(keys)
        self.size, self.mode = size, "symmetric" if continued else "constant"

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """The same keys, of tensors."""
        return {**data, **{key: self._padded(np.ascontiguousarray(data[key])) for key in self.keys}}

    def _padded(self, array: NDArray[Any]) -> Tensor:
        missing = [max(0, w - n) for w, n in zip(self.size, array.shape[1:], strict=True)]
        if any(missing):
            widths = [(0, 0), *((m // 2, m - m // 2) for m in missing)]
            array = np.pad(array, widths, mode=self.mode)  # type: ignore[call-overload]
        return torch.as_tensor(array, dtype=torch.float32)


class _Elasticd(mt.Rand2DElasticd):
    """`monai.transforms.Rand2DElasticd` that is always applied: the same crops in half the time.

    MONAI makes the grid of control points anew for each crop, and converts its numbers to and fro.
    The draws are its own, in its order.
    """

    def __init__(self, keys: KeysCollection, **arguments: Any) -> None:  # noqa: ANN401 - MONAI's
        super().__init__(keys, **arguments)
        elastic = self.rand_2d_elastic
        self.size, self.spacing = elastic.spatial_size, elastic.deform_grid.spacing
        self.control = create_control_grid(self.size, self.spacing, backend="torch")

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """The same keys, warped alike."""
        self.randomize(None)
        self.rand_2d_elastic.randomize(self.size)
        positions, changed = self._positions(), dict(data)
        for key, mode in zip(self.keys, self.mode, strict=True):
            image = changed[key][None].double()
            rows, columns = image.shape[2:]
            # pixels from the middle of the image -> [-1, 1] between its borders
            scale = positions.new_tensor([2.0 / max(2, columns), 2.0 / max(2, rows)])
            found = F.grid_sample(
                image, positions * scale, mode=mode, padding_mode="zeros", align_corners=False
            )
            changed[key] = found[0].float()
        return changed

    def _positions(self) -> Tensor:
        """Where each pixel of the crop is taken from, columns before rows, ``[1, H, W, 2]``."""
        deform, affine = self.rand_2d_elastic.deform_grid, self.rand_2d_elastic.rand_affine_grid
        points = self.control.clone()
        deform.randomize(points.shape[1:])
        points[:2] += torch.from_numpy(deform.rand_mag * deform.random_offset)
        warped = affine(grid=points).as_subclass(Tensor)[None, :2]
        fine = F.interpolate(
            warped, scale_factor=self.spacing, recompute_scale_factor=True, mode="bicubic",
            align_corners=False,
        )  # fmt: skip
        for axis, edge in enumerate(self.size, start=2):
            fine = fine.narrow(axis, fine.shape[axis] // 2 - edge // 2, edge)
        return fine.flip(1).movedim(1, -1).double()


class _KeepBackgroundd(mt.Transform):
    """After resampling: what is missing to a total probability of 1 is background."""

    def __call__(self, data: Mapping[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        tissue = data["tissue"].clone()
        tissue[0] += 1 - tissue.sum(0).clamp(max=1)
        return {**data, "tissue": tissue, "label": tissue.argmax(0, keepdim=True).float()}


class _RememberMaskd(mt.Transform):
    def __call__(self, data: Mapping[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        return {**data, "mask": (data["image"].amax(0, keepdim=True) > 0).float()}


class RandIndividuald(mt.RandomizableTransform, mt.MapTransform):
    """Sample an individual head from an averaged template, with the sharp sulci of a single one.

    An average head is smooth: where half of 152 heads have fluid in a sulcus and half have cortex,
    the template is grey. Its tissue maps hold the probability of each tissue. Here the tissue of
    every pixel is sampled from them, with noise that is correlated over one to three pixels, so
    that the label map has the fine folds of a single head. In the image, the expected tissue
    intensity is replaced by that of the sampled tissue, slightly blurred (partial volume), in the
    template's contrast or a random one with fluid < grey < white. Deviations of the image from its
    tissue means (the darker white matter of the brain stem, the brighter thalamus) are kept in
    part. The brain mask varies too: a rim of fluid is added outside the template's, or a rim of the
    brain is removed. Close to Billot et al. 2023 (SynthSeg), who sample contrasts but not tissue
    from probabilities.

    Input keys: ``image`` ``[1, H, W]``, ``label`` ``[1, H, W]``, ``tissue`` ``[4, H, W]`` in the
    order background, fluid, grey, white.
    """

    def __init__(self, keys: KeysCollection = ("image", "label"), prob: float = 0.65) -> None:
        mt.MapTransform.__init__(self, keys)
        mt.RandomizableTransform.__init__(self, prob)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """The same keys, of an individual."""
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
        """Labels ``[H, W]`` sampled from the probabilities with correlated noise."""
        scale, strength = self.R.uniform(0.6, 2.2), self.R.uniform(0.3, 2.0)
        noise = torch.stack([_blur(self._noise(tissue.shape[1:]), scale) for _ in tissue])
        noise = noise / noise.std().clamp_min(1e-6)
        logits = torch.log(tissue.clamp(1e-4, 1)) + strength * noise
        logits[0] = torch.where(tissue[0] > 0.5, torch.inf, -torch.inf)
        label: Tensor = logits.argmax(0)
        return label

    def _strip(self, tissue: Tensor) -> Tensor:
        """Probabilities after a wider or tighter skull stripping."""
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
        """Intensities of background, fluid, grey and white matter."""
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
