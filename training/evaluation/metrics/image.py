"""Similarity of two images of the same size, with intensities in [0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from monai.metrics import PSNRMetric
from monai.metrics.regression import compute_ssim_and_cs
from numpy.typing import NDArray
from torch import Tensor

from caps_med.errors import InvalidInput

Image = NDArray[np.floating[Any]]

#: The score of identical images, whose peak signal-to-noise ratio is infinite.
LARGEST_PSNR = 100.0
#: Size and standard deviation of SSIM's Gaussian window in pixels (Wang et al. 2004).
SSIM_WINDOW, SSIM_SIGMA = 11, 1.5


def ssim_map(image: Tensor, reference: Tensor) -> Tensor:
    """Structural similarity (Wang et al. 2004) of images ``[B, C, H, W]`` at each pixel.

    MONAI's, since scikit-image has it only on the CPU. ``[B, C, H - 10, W - 10]``: the window must
    lie inside the image. In float32 under autocast, too: variances are differences of means.
    """
    values: Tensor
    with torch.autocast(image.device.type, enabled=False):
        values, _ = compute_ssim_and_cs(
            image.float(),
            reference.float(),
            spatial_dims=2,
            kernel_size=(SSIM_WINDOW,) * 2,
            kernel_sigma=(SSIM_SIGMA,) * 2,
            data_range=1.0,
        )
    return values


def has_ssim(image: Image) -> bool:
    """Whether SSIM's window lies inside an image ``[..., H, W]``."""
    return bool(min(image.shape[-2:]) >= SSIM_WINDOW)


def ssim(image: Image, other: Image) -> float:
    """Mean structural similarity of images ``[C, H, W]``; 1 for identical ones.

    Raises:
        InvalidInput: they are smaller than the window.
    """
    if not has_ssim(image):
        raise InvalidInput(
            f"images of {image.shape[1]} x {image.shape[2]} pixels: structural similarity needs at "
            f"least {SSIM_WINDOW} x {SSIM_WINDOW}"
        )
    return float(ssim_map(*_batches(image, other)).flatten().mean())


def masked_ssim(image: Tensor, reference: Tensor, mask: Tensor) -> float:
    """Mean SSIM of images ``[B, C, H, W]`` over the pixels of masks ``[B, 1, H, W]``."""
    margin = SSIM_WINDOW // 2
    padded = [F.pad(x, [margin] * 4, mode="reflect") for x in (image, reference)]
    return float((ssim_map(*padded) * mask).sum() / (mask.sum() * image.shape[1]))


def psnr(image: Image, other: Image) -> float:
    """Peak signal-to-noise ratio of images ``[C, H, W]`` in dB; at most `LARGEST_PSNR`."""
    return min(LARGEST_PSNR, float(PSNRMetric(max_val=1.0)(*_batches(image, other)).mean()))


def _batches(image: Image, other: Image) -> list[Tensor]:
    return [torch.from_numpy(np.asarray(x, np.float32))[None] for x in (image, other)]
