"""The random fields of a volume's slices, against fields smoothed in three dimensions.

Rows of ``python -m benchmarks``. Both draw three fields of Gaussian noise, white to smooth, and
fibres along the zeros of a fourth (`caps_med.networks.noise.fields`). Ours computes each slice by
itself; the other filters white noise of the whole volume by its Fourier transform.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import alternate, ratio
from caps_med.networks import CapsPix2Pix
from caps_med.networks.noise.fields import FIBRE_SCALE, FIBRE_STRENGTH, SCALES, THINNESS

#: Slices of the volume.
SLICES = 64
#: Standard deviation of a Gaussian over the width of a field's cells.
_SIGMA = 0.5


def field_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a size: seconds and ratio of the fields of `SLICES` slices."""
    return [_row(size, options) for size in options.sizes]


def sliced_fields(network: CapsPix2Pix, z: Tensor, size: int) -> Tensor:
    """Fields ``[D, F, H, W]`` of one volume as synthesis computes them, slice by slice."""
    vectors = network.noise_of_slices(z, torch.arange(SLICES))
    return torch.cat([network.noise.fields(vector[None], (size, size)) for vector in vectors])


def filtered_fields(size: int) -> Tensor:
    """Fields ``[D, F, H, W]`` of the same scales: white noise of the volume, filtered."""
    shape = (SLICES, size, size)
    fields = [_filtered(shape, scale) for scale in SCALES]
    course, strength = (_filtered(shape, FIBRE_SCALE) for _ in range(2))
    ridges = torch.exp(-(THINNESS * course).square()) * strength.relu()
    return torch.stack([*fields, FIBRE_STRENGTH * ridges], 1)


def _filtered(shape: tuple[int, int, int], scale: int) -> Tensor:
    white = torch.randn(shape)
    if scale == 1:
        return white
    axes = [torch.fft.fftfreq(n) for n in shape[:2]] + [torch.fft.rfftfreq(shape[2])]
    square = sum(axis.square() for axis in torch.meshgrid(*axes, indexing="ij"))
    response = torch.exp(-2 * (torch.pi * _SIGMA * scale) ** 2 * torch.as_tensor(square))
    smooth: Tensor = torch.fft.irfftn(torch.fft.rfftn(white) * response, shape)
    return smooth / smooth.std()


def _row(size: int, options: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(0)
    network = CapsPix2Pix(noise_source="field").eval()
    z = torch.randn(1, network.noise_size)

    def sliced() -> None:
        with torch.inference_mode():
            sliced_fields(network, z, size)

    def filtered() -> None:
        filtered_fields(size)

    jobs = {"sliced": sliced, "filtered": filtered}
    seconds = alternate(jobs, options.rounds, options.clock)
    row: dict[str, Any] = {"work": "fields", "volume": [SLICES, size, size]}
    row["forward"] = {name: statistics.median(found) for name, found in seconds.items()}
    row["forward, sliced/filtered"] = ratio(seconds, "sliced", "filtered")
    print(f"fields {row['volume']!s:24}sliced/filtered {row['forward, sliced/filtered']:.2f}")
    return row
