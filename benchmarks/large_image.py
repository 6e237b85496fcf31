"""Segmenting a 2048 x 2048 image: peak memory beyond the idle process, and time per pixel.

``python -m benchmarks.large_image`` prints the peak of ``model.segment`` with the built-in
``brain-t1-tissue`` (target: 2 GB), and SegCaps' time per pixel at 1024 x 1024 over that at
256 x 256, alternating (target: 1.15).
"""

from __future__ import annotations

import statistics
from functools import partial

import numpy as np
import torch

import caps_med
from benchmarks.measure import alternate, peak_beyond_idle
from caps_med.allocator import keep_freed_memory
from caps_med.images import MedicalImage
from caps_med.inference.passes import in_passes
from caps_med.networks import SegCaps


def main() -> None:
    """Measure and print both."""
    keep_freed_memory()  # as the command does
    model = caps_med.load_model("brain-t1-tissue")
    rng = np.random.default_rng(0)
    small, large = (MedicalImage(rng.uniform(0, 1, (1, edge, edge)).astype(np.float32),
                                 format="npy") for edge in (64, 2048))  # fmt: skip
    model.segment(small)
    peak = peak_beyond_idle(partial(model.segment, large))
    print(f"2048 x 2048: {peak:.0f} MB beyond the idle process")
    network = SegCaps().eval()
    slices = {edge: torch.rand(1, 1, edge, edge) for edge in (256, 1024)}

    def run(edge: int) -> None:
        in_passes(network, network, slices[edge])

    seconds = alternate({str(e): partial(run, e) for e in slices}, 5)
    each = [b / a / 16 for a, b in zip(seconds["256"], seconds["1024"], strict=True)]
    print(f"time per pixel, 1024² over 256²: {statistics.median(each):.2f} (median of {each})")


if __name__ == "__main__":
    main()
