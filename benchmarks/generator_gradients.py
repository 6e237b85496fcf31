"""The gradient of an untrained CapsPix2Pix by the number of routing iterations.

``python -m benchmarks.generator_gradients`` prints its norm, and what becomes of it in bfloat16 and
after noise of 1e-4 on the label map: the cosine between both gradients and the mean absolute
difference between both images. The label maps are random blocks of 4 x 4 pixels, the target is
noise.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.options import benchmark_parser
from caps_med.layers import ConvCapsule, DeconvCapsule
from caps_med.networks import CapsPix2Pix
from training.engine.precision import Precision, computed_in

#: Standard deviation of the noise on the label map.
NOISE = 1e-4
_CPU = torch.device("cpu")


def gradient(
    iterations: int, seed: int, precision: Precision = "float32", noise: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The image ``[2, 1, 64, 64]`` and the gradient of all weights in one row."""
    torch.manual_seed(seed)
    generator = CapsPix2Pix(spatial_dims=2, label_channels=1, image_channels=1).train()
    generator.whole_training_batches = True
    for layer in generator.modules():
        if isinstance(layer, (ConvCapsule, DeconvCapsule)):
            layer.routing = replace(layer.routing, iterations=iterations)
    torch.manual_seed(seed + 1)
    label = F.interpolate((torch.rand(2, 1, 16, 16) > 0.9).float(), scale_factor=4)
    z, target = torch.randn(2, generator.noise_size), torch.rand(2, 1, 64, 64)
    with computed_in(precision, _CPU):
        image = generator(label + noise * torch.randn_like(label), z).float()
    (image - target).abs().mean().backward()
    found = [p.grad.flatten() for p in generator.parameters() if p.grad is not None]
    return image.detach(), torch.cat(found)


def main() -> None:
    """Print a row for each number of iterations and seed."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--iterations", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| iterations | seed | norm | bfloat16: cosine, image | noise: cosine, image |")
    print("|---|---|---|---|---|")
    for iterations in options.iterations:
        for seed in options.seeds:
            image, expected = gradient(iterations, seed)
            cells = []
            for other in (
                gradient(iterations, seed, "bfloat16"),
                gradient(iterations, seed, noise=NOISE),
            ):
                cosine = torch.cosine_similarity(other[1], expected, 0).item()
                cells.append(f"{cosine:.2f}, {(other[0] - image).abs().mean().item():.5f}")
            print(f"| {iterations} | {seed} | {expected.norm().item():.3f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
