"""Checkerboard artifacts of transposed convolutions: ``python -m benchmarks.grid``.

    python -m benchmarks.grid --model axon-synthesis --data DIR [--models REPOSITORY]

DIR holds ``images`` and ``labels`` as `caps-med data phantoms` writes them. Printed for the real
images and for one synthetic image of each label map: the power at the frequencies of a grid of
eight pixels relative to that around them, in decibels (0: no grid), and the fine structure within
eight pixels of the border relative to that inside (1: no difference).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import caps_med
from benchmarks.options import benchmark_parser
from caps_med.images import as_written, read_image
from training.evaluation.metrics.artefacts import border, grid


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--models", type=Path, help="Repository; built-ins are always there.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--count", type=int, default=8, help="images")
    options = parser.parse_args()
    model = caps_med.load_model(options.model, options.models)
    folders = [sorted((options.data / name).iterdir()) for name in ("images", "labels")]
    images, labels = (files[:: max(1, len(files) // options.count)] for files in folders)
    made = (as_written(model.synthesize(file, seed=i)) for i, file in enumerate(labels))
    for name, found in (("real", map(read_image, images)), (model.bundle.reference, made)):
        planes = [_plane(image.array) for image in found]
        measured = ([measure(one) for one in planes] for measure in (grid, border))
        comb, rim = (np.mean([each for each in of if each is not None]) for of in measured)
        print(f"{name:<24} grid {comb:6.2f} dB   border {rim:.2f}", flush=True)


def _plane(array: NDArray[Any]) -> NDArray[np.float64]:
    return np.squeeze(array).astype(np.float64)


if __name__ == "__main__":
    main()
