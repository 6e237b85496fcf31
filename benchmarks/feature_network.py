"""Train the small network whose features image distances are measured on.

``python -m benchmarks.feature_network`` trains `training.evaluation.metrics.FeatureNetwork` to tell
which of `DAMAGES` was done to a 64 x 64 crop and how strongly, on axon phantoms and slices of the
MNI152 template, and writes ``training/evaluation/metrics/features.safetensors`` (float16). It then
measures, on phantoms and slices that it has not seen, how each distance grows with each damage;
``--only-show`` does that alone. About six minutes on one core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor, nn

from benchmarks.options import benchmark_parser
from caps_med.bundles.weights import save_weights
from caps_med.images import Normalization
from training.data.mni152 import load_mni152
from training.evaluation.metrics import ImageSet, distances
from training.evaluation.metrics.features import FEATURES, WEIGHTS, FeatureNetwork
from training.labelmaps.phantoms import axon_phantom

Floats = NDArray[np.floating[Any]]
Generator = np.random.Generator

CROP, BATCH, SEED = 64, 32, 0
#: Phantoms to learn from, and to look at.
LEARNED, SHOWN = 400, 64


def noise(image: Floats, rng: Generator, strength: float) -> Floats:
    return np.asarray(image + rng.normal(0, 0.02 + 0.13 * strength, image.shape))


def grain(image: Floats, rng: Generator, strength: float) -> Floats:
    """Noise that is correlated over some pixels."""
    field = ndimage.gaussian_filter(rng.standard_normal(image.shape), rng.uniform(1, 2.5))
    return np.asarray(image + (0.02 + 0.13 * strength) * field / field.std())


def blur(image: Floats, rng: Generator, strength: float) -> Floats:
    return np.asarray(ndimage.gaussian_filter(image, 0.4 + 2.1 * strength))


def sharpen(image: Floats, rng: Generator, strength: float) -> Floats:
    detail = image - ndimage.gaussian_filter(image, 1.5)
    return np.asarray(image + (0.3 + 2.2 * strength) * detail)


def gamma(image: Floats, rng: Generator, strength: float) -> Floats:
    return np.asarray(image ** np.exp(rng.choice((-1, 1)) * (0.15 + 0.85 * strength)))


def haze(image: Floats, rng: Generator, strength: float) -> Floats:
    """A bright cloud over everything."""
    field = ndimage.gaussian_filter(rng.standard_normal(image.shape), len(image) / 5)
    field = (field - field.min()) / max(float(np.ptp(field)), 1e-9)
    return np.asarray(image + (0.1 + 0.5 * strength) * field * (1 - image))


def checks(image: Floats, rng: Generator, strength: float) -> Floats:
    """The chequered pattern that transposed convolutions leave."""
    rows, columns = np.indices(image.shape) // rng.choice((1, 2))
    return np.asarray(image + (0.02 + 0.13 * strength) * ((rows + columns) % 2 - 0.5))


def blocks(image: Floats, rng: Generator, strength: float) -> Floats:
    """Pixels of two to five."""
    edge = 2 + round(3 * strength)
    rows, columns = (np.arange(n) // edge * edge for n in image.shape)
    return np.asarray(image[rows][:, columns])


def steps(image: Floats, rng: Generator, strength: float) -> Floats:
    """Few grey levels."""
    levels = 12 - round(9 * strength)
    return np.asarray(np.rint(image * levels) / levels)


def patches(image: Floats, rng: Generator, strength: float) -> Floats:
    """Pieces of the image in wrong places."""
    result, edge = image.copy(), max(4, len(image) // 6)
    for _ in range(1 + round(8 * strength)):
        (y, x), (v, u) = rng.integers(0, np.array(image.shape) - edge, (2, 2))
        result[y : y + edge, x : x + edge] = image[v : v + edge, u : u + edge]
    return np.asarray(result)


def ripple(image: Floats, rng: Generator, strength: float) -> Floats:
    """Bent by a random field of some pixels."""
    moves = [ndimage.gaussian_filter(rng.standard_normal(image.shape), 3) for _ in range(2)]
    moves = [(0.5 + 3.5 * strength) * m / m.std() for m in moves]
    places = [axis + move for axis, move in zip(np.indices(image.shape), moves, strict=True)]
    return np.asarray(ndimage.map_coordinates(image, places, order=1, mode="reflect"))


#: What is done to an image ``[H, W]`` in [0, 1], with a strength of 0 to 1.
DAMAGES: Mapping[str, Callable[[Floats, Generator, float], Floats]] = {
    damage.__name__: damage
    for damage in (noise, grain, blur, sharpen, gamma, haze, checks, blocks, steps, patches, ripple)
}


def damaged(image: Floats, name: str, rng: Generator, strength: float) -> Floats:
    """The image after one of `DAMAGES`, in [0, 1] again."""
    return np.clip(DAMAGES[name](image, rng, strength), 0, 1)


def pictures(seed: int, count: int) -> list[Floats]:
    """Axon phantoms as a network sees them."""
    scale = Normalization()
    return [scale.apply(axon_phantom(seed, case).image)[0].astype(float) for case in range(count)]


def main() -> None:
    """Train, write, show."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--only-show", action="store_true", help="train nothing")
    options = parser.parse_args()
    heads = load_mni152()
    if not options.only_show:
        slices = [np.asarray(s["image"][0], float) for s in heads.training]
        network = learn([pictures(101, LEARNED), slices], options.steps)
        save_weights(network, WEIGHTS, half=True)
        print(f"{WEIGHTS}: {WEIGHTS.stat().st_size / 1024:.0f} KiB")
    held_out = [np.asarray(s["image"][0], float) for s in heads.validation]
    for name, images in (("axons", pictures(102, SHOWN)), ("mni152", held_out)):
        show(name, images)


def learn(kinds: Sequence[Sequence[Floats]], count: int) -> FeatureNetwork:
    """The trained network; every batch holds as many crops of each kind of image."""
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    network, head = FeatureNetwork(), nn.Linear(FEATURES, len(DAMAGES) + 2)
    optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=2e-3)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, count)
    for step in range(1, count + 1):
        crops, classes, strengths = batch(kinds, rng)
        answer = head(network(crops))
        found = F.cross_entropy(answer[:, :-1], classes)
        strong = F.mse_loss(torch.sigmoid(answer[:, -1]), strengths)
        optimizer.zero_grad()
        (found + 4 * strong).backward()
        optimizer.step()
        falling.step()
        if step % 250 == 0:
            right = (answer[:, :-1].argmax(1) == classes).float().mean()
            print(f"step {step}: {found:.3f}, strength {strong:.4f}, right {right:.2f}", flush=True)
    return network.eval()


def batch(kinds: Sequence[Sequence[Floats]], rng: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Crops ``[B, 1, 64, 64]``, which damage each has (the last class has none), how strong."""
    crops, classes, strengths = [], [], []
    for number in range(BATCH):
        images = kinds[number % len(kinds)]
        crop = cut(images[int(rng.integers(len(images)))], rng)
        chosen = int(rng.integers(len(DAMAGES) + 1))
        strength = float(rng.uniform()) if chosen < len(DAMAGES) else 0.0
        if chosen < len(DAMAGES):
            crop = damaged(crop, list(DAMAGES)[chosen], rng, strength)
        crops.append(crop)
        classes.append(chosen)
        strengths.append(strength)
    return (
        torch.from_numpy(np.stack(crops)).float()[:, None],
        torch.tensor(classes),
        torch.tensor(strengths),
    )


def cut(image: Floats, rng: Generator) -> Floats:
    """A crop that shows something, flipped and turned by quarters."""
    for _ in range(20):
        y, x = (rng.integers(0, edge - CROP + 1) for edge in image.shape)
        crop = image[y : y + CROP, x : x + CROP]
        if (crop > 0.02).mean() > 0.3:
            break
    return np.rot90(crop[:, :: rng.choice((-1, 1))], int(rng.integers(4)))


def show(name: str, images: Sequence[Floats]) -> None:
    """A Markdown table: the distances of damaged images to others of the same kind."""
    half = len(images) // 2
    reference, others = ImageSet(), images[half:]
    for image in images[:half]:
        reference.add(image[None].astype(np.float32))
    strengths = (0.0, 0.33, 0.67, 1.0)
    print(f"\n| {name}: Fréchet distance at strength | " + " | ".join(map(str, strengths)) + " |")
    print("|---|" + "---|" * len(strengths))
    print(f"| none | {measured(others, reference, None, 0.0):.2f} |" + " |" * (len(strengths) - 1))
    for damage in DAMAGES:
        found = (measured(others, reference, damage, strength) for strength in strengths)
        print(f"| {damage} | " + " | ".join(f"{value:.2f}" for value in found) + " |")


def measured(
    images: Sequence[Floats], reference: ImageSet, damage: str | None, strength: float
) -> float:
    """Fréchet distance of the images, each damaged, to the reference."""
    seen, rng = ImageSet(), np.random.default_rng(1)
    for image in images:
        worse = image if damage is None else damaged(image, damage, rng, strength)
        seen.add(worse[None].astype(np.float32))
    return distances(seen, reference).frechet


if __name__ == "__main__":
    main()
