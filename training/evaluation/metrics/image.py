"""One image against another of the same size, both ``[C, H, W]`` in [0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from monai.metrics import PSNRMetric, SSIMMetric
from numpy.typing import NDArray

Image = NDArray[np.floating[Any]]

#: Of identical images, whose peak signal-to-noise ratio is infinite.
LARGEST_PSNR = 100.0
#: Edge of SSIM's window; an image must be as large.
SSIM_WINDOW = 11


def ssim(image: Image, other: Image) -> float:
    """Structural similarity (Wang et al. 2004), by MONAI: 1 of identical images.

    A Gaussian window of 11 pixels and standard deviation 1.5, wherever it lies inside the image.
    """
    metric = SSIMMetric(spatial_dims=2, data_range=1.0, win_size=SSIM_WINDOW, kernel_sigma=1.5)
    return float(metric(*_batches(image, other)).mean())


def psnr(image: Image, other: Image) -> float:
    """Peak signal-to-noise ratio in dB, by MONAI; at most `LARGEST_PSNR`."""
    return min(LARGEST_PSNR, float(PSNRMetric(max_val=1.0)(*_batches(image, other)).mean()))


def _batches(image: Image, other: Image) -> list[torch.Tensor]:
    return [torch.from_numpy(np.asarray(x, np.float32))[None] for x in (image, other)]
