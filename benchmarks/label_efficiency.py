"""Label efficiency: networks trained on 1 to 16 labelled images.

``python -m benchmarks.label_efficiency`` trains them on 1, 2, 4, 8 and 16 labelled images, with the
same steps, crops and augmentation and three seeds each, on two data sets:

- **axons**: axon phantoms of 128 x 128 pixels; tested on 40 others;
- **head**: axial slices of the MNI152 template (four classes); tested on its held-out slices with
  the intensities of a simulated other scanner: gamma, bias field, blur and noise.

``--data axons-partly head-partly``: with labels in every 16th of the blocks of 8 x 8 pixels alone,
so that 16 images have as many labelled pixels as one that is labelled as a whole. ``axons-boxes
head-boxes``: with about as many in one box, and ``axons-strokes head-strokes``: along strokes, as
people draw them.

The weights after the last step are tested: nothing is selected on the test images. Every finished
run is kept in ``benchmarks/results/label-efficiency-*.json``, so a stopped command continues; it
ends with the tables and ``docs/images/label-efficiency.png``. Runs of other ``--steps`` than 200
are kept beside these, in files and tables of their own, and are not drawn.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from skimage.morphology import skeletonize

from benchmarks.options import benchmark_parser
from caps_med.images import Normalization
from training.atomic import write_text
from training.data import Sample, Source
from training.data.mni152 import load_mni152
from training.data.samples import UNLABELLED
from training.engine.run_folder import RunFolder
from training.evaluation.validation import dice_scores
from training.labelmaps.phantoms import LABELS, axon_phantom
from training.tasks.segmentation import SegmentationRecipe, train_segmentation

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "label-efficiency.png"
COUNTS, SEEDS, TESTED, STEPS = (1, 2, 4, 8, 16), (0, 1, 2), 40, 200
#: Of partly labelled images every `SHARE`-th pixel is labelled.
SHARE = 16
#: Edge of a labelled block, length and width of a stroke, in pixels.
BLOCK, STROKE, WIDTH = 8, 24, 3

#: Classes ``[H, W]`` of an image, and which of them are labelled.
Classes = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]
#: What is labelled of an image.
Marked = Callable[[Classes, np.random.Generator], Mask]


#: Samples for training and for testing, and the other arguments of their `Source`.
Data = tuple[list[Sample], list[Sample], dict[str, Any]]


#: Recipe values that `caps-med train` planned for slices of a head on a processor, until trainings
#: became longer.
PLANNED = {"epochs": 25, "steps": 25, "crop": 128}


class Variant(NamedTuple):
    """What is trained: a network, its title in the tables, and recipe values of its own."""

    network: str
    title: str
    recipe: Mapping[str, Any] = {}


#: Of the U-Net two learning rates. ``flipped``: crops are flipped but not augmented otherwise.
INSIDE: Mapping[str, Variant] = {
    "segcaps": Variant("segcaps", "SegCaps"),
    "unet": Variant("unet", "BasicUNet", {"learning_rate": 1e-3}),
    "unet-2e-3": Variant("unet", "BasicUNet, 2e-3", {"learning_rate": 2e-3}),
    "convcaps": Variant("convcaps", "ConvCaps"),
    "convcaps-plain": Variant("convcaps-plain", "ConvCaps without capsules"),
    "onlycaps": Variant("onlycaps", "OnlyCaps"),
    "onlycaps-plain": Variant("onlycaps-plain", "OnlyCaps without capsules"),
    "segcaps-plain": Variant("segcaps-plain", "SegCaps without capsules"),
    "segcaps-reconstruction": Variant(
        "segcaps", "SegCaps, reconstruction first", {"reconstruct_first": 0.2}
    ),
    "unet-flipped": Variant(
        "unet", "BasicUNet, 2e-3, only flipped", {"learning_rate": 2e-3, "plain": 1.0}
    ),
    "convcaps-flipped": Variant("convcaps", "ConvCaps, only flipped", {"plain": 1.0}),
    "convcaps-plain-flipped": Variant(
        "convcaps-plain", "ConvCaps without capsules, only flipped", {"plain": 1.0}
    ),
    "convcaps-planned": Variant("convcaps", "ConvCaps, planned", PLANNED),
}
#: The same with crops that lie anywhere in the image, the default by now; those above lie inside.
NETWORKS: Mapping[str, Variant] = {
    **INSIDE,
    **{
        f"{name}-anywhere": each._replace(
            title=f"{each.title}, anywhere", recipe={**each.recipe, "crops": "anywhere"}
        )
        for name, each in INSIDE.items()
    },
}


def main() -> None:
    """Run what is missing, then print and plot all results."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only-show", action="store_true", help="train nothing")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(PLOTTED))
    parser.add_argument("--networks", nargs="+", default=list(INSIDE))
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for data in options.data if not options.only_show else ():
        keys = itertools.product(options.seeds, options.counts, options.networks)
        run_all(data, options.steps, list(keys))
    kept_by_data = (kept(file_of(data, options.steps)) for data in DATA)
    results = {key: score for scores in kept_by_data for key, score in scores.items()}
    show(results)
    if options.steps == STEPS:
        plot(results)


def run_all(data: str, steps: int, keys: Sequence[tuple[int, int, str]]) -> None:
    """Every run on one data set that has no score yet: seeds, counts, networks."""
    pool, test, template = DATA[data]()
    file = file_of(data, steps)
    results = kept(file)
    for seed, count, network in keys:
        key = f"{data}/{network}/{count}/{seed}"
        if key not in results:
            started = time.process_time()
            found = score(template, pool, test, network, count, seed, steps)
            results = {**kept(file), key: found}  # another process may have added some
            seconds = time.process_time() - started
            print(f"{key}: Dice {found:.4f}, CPU time {seconds:.0f} s", flush=True)
            write_text(file, json.dumps(results, indent=1) + "\n")


def file_of(data: str, steps: int) -> Path:
    """Where the scores on a data set after so many steps are kept."""
    length = "" if steps == STEPS else f"-{steps}-steps"
    return ROOT / "benchmarks" / "results" / f"label-efficiency-{data}{length}.json"


def kept(file: Path) -> dict[str, float]:
    """Key of a run -> score, of the finished runs."""
    scores: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    return scores


def score(
    template: Mapping[str, Any],
    pool: Sequence[Sample],
    test: Sequence[Sample],
    network: str,
    count: int,
    seed: int,
    steps: int,
) -> float:
    """Mean Dice on the test images after training from `count` of the pool."""
    chosen = np.random.default_rng([seed, 7]).permutation(len(pool))[:count]
    samples = [pool[i] for i in chosen]
    groups = [f"image {i}" for i in range(count)]
    source = Source(
        samples=[*samples, samples[0]],
        groups=[*groups, "seen"],
        held_out=frozenset({"seen"}),
        **template,
    )
    variant = NETWORKS[network]
    recipe = SegmentationRecipe.model_validate(
        {
            "data": template["name"], "network": variant.network, "seed": seed, "epochs": 1,
            "steps": steps, "batch_size": 4, "crop": 64, "crops": "inside",
            "augmentation": {"flip_rows": 0.5 if template["plane"] is None else 0.0},
            **variant.recipe,
        }
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        trained, _ = train_segmentation(source, recipe, RunFolder(Path(folder)), resume=False)
    return dice_scores(trained, test, source.labels)["score"]


def axons() -> Data:
    """Phantoms for training and for testing."""
    scale = Normalization()

    def sample(seed: int, case: int) -> Sample:
        phantom = axon_phantom(seed, case)
        return {"image": scale.apply(phantom.image), "label": phantom.label}

    template = {
        "name": "axons", "labels": LABELS, "plane": None, "spacing_mm": None,
        "normalization": scale, "description": "axon phantoms",
    }  # fmt: skip
    pool = [sample(1, case) for case in range(max(COUNTS))]
    return pool, [sample(2, case) for case in range(TESTED)], template


def head() -> Data:
    """Template slices for training, and the held-out ones as from another scanner."""
    source = load_mni152()
    slices = [{k: s[k] for k in ("image", "label")} for s in source.training]
    places = np.linspace(0.15, 0.85, max(COUNTS)) * len(slices)
    template = {
        "name": "mni152", "labels": source.labels, "plane": source.plane,
        "spacing_mm": source.spacing_mm, "normalization": source.normalization,
        "description": source.description,
    }  # fmt: skip
    test = [another_scanner(s, i) for i, s in enumerate(source.validation)]
    return [slices[int(p)] for p in places], test, template


def another_scanner(sample: Sample, number: int) -> Sample:
    """The slice with another gamma, a bias field, blur and noise; the background stays zero."""
    rng = np.random.default_rng([3, number])
    image = np.asarray(sample["image"], dtype=np.float64)
    inside = image > 0
    rows, columns = np.mgrid[-1 : 1 : image.shape[1] * 1j, -1 : 1 : image.shape[2] * 1j]
    slope = rng.uniform(-0.15, 0.15, 2)
    field = 1 + slope[0] * rows + slope[1] * columns
    shifted = image ** rng.uniform(0.7, 1.4) * field
    shifted = ndimage.gaussian_filter(shifted, (0, *2 * (rng.uniform(0.3, 0.8),)))
    shifted = shifted + rng.normal(0, 0.03, image.shape)
    seen = np.clip(shifted, 0.01, 1) * inside
    return {"image": seen.astype(np.float32), "label": sample["label"]}


def partly(data: Callable[[], Data], marked: Marked) -> Data:
    """The data with labels in a part of each image for training."""
    pool, test, template = data()
    some: list[Sample] = [
        {**sample, "label": np.where(shown, sample["label"], np.uint8(UNLABELLED))}
        for number, sample in enumerate(pool)
        for shown in [marked(sample["label"][0], np.random.default_rng([4, number]))]
    ]
    return some, test, {**template, "partly_labelled": True}


def in_blocks(label: Classes, rng: np.random.Generator) -> Mask:
    """Random blocks of 8 x 8 pixels, one in 16."""
    rows, columns = (-(-size // BLOCK) for size in label.shape)
    blocks = np.arange(rows * columns).reshape(rows, columns)
    chosen = rng.permutation(blocks.size)[: blocks.size // SHARE]
    shown = np.isin(blocks, chosen).repeat(BLOCK, 0).repeat(BLOCK, 1)
    return shown[: label.shape[0], : label.shape[1]]


def in_box(label: Classes, rng: np.random.Generator) -> Mask:
    """A square that covers a 16th of the image, around a random pixel that is not background."""
    edge = round((label.size / SHARE) ** 0.5)
    center = rng.permutation(np.argwhere(label))[0]
    first = np.clip(center - edge // 2, 0, np.array(label.shape) - edge)
    shown = np.zeros(label.shape, bool)
    shown[first[0] : first[0] + edge, first[1] : first[1] + edge] = True
    return shown


def in_strokes(label: Classes, rng: np.random.Generator) -> Mask:
    """Strokes along the centre lines of each class, background included, that cover a 16th of the
    image: each class the same part of it, or what its lines cover.
    """
    classes = np.unique(label)
    pixels = label.size // SHARE // len(classes)
    shown = np.zeros(label.shape, bool)
    for one in classes:
        shown |= strokes(label == one, pixels, rng)
    return shown


def strokes(region: Mask, pixels: int, rng: np.random.Generator) -> Mask:
    """Random pieces of a region's centre lines that cover at least `pixels`, if all do."""
    lines, drawn = skeletonize(region), np.zeros_like(region)
    places = np.argwhere(lines)
    for row, column in rng.permutation(places):
        if np.count_nonzero(drawn) >= pixels:
            break
        near = np.hypot(*(places - (row, column)).T) <= STROKE / 2
        line = np.zeros_like(region)
        line[tuple(places[near].T)] = True
        pieces = ndimage.label(line, np.ones((3, 3)))[0]
        drawn |= ndimage.binary_dilation(pieces == pieces[row, column], np.ones((WIDTH, WIDTH)))
        drawn &= region
    return drawn


PLOTTED: Mapping[str, Callable[[], Data]] = {"axons": axons, "head": head}
MARKED: Mapping[str, Marked] = {"partly": in_blocks, "boxes": in_box, "strokes": in_strokes}
DATA: Mapping[str, Callable[[], Data]] = {
    **PLOTTED,
    **{
        f"{name}-{kind}": partial(partly, data, marked)
        for kind, marked in MARKED.items()
        for name, data in PLOTTED.items()
    },
}


def show(results: Mapping[str, float]) -> None:
    """A Markdown table: mean and range over the seeds."""
    for data in DATA:
        titles = [variant.title for variant in NETWORKS.values()]
        print(f"\n| {data}: labelled images | " + " | ".join(titles) + " |")
        print("|---|" + "---|" * len(NETWORKS))
        for count in COUNTS:
            cells = []
            for network in NETWORKS:
                found = scores_of(results, data, network, count)
                low_high = f"{min(found):.3f} to {max(found):.3f}" if found else ""
                cells.append(f"{statistics.mean(found):.3f} ({low_high})" if found else "")
            print(f"| {count} | " + " | ".join(cells) + " |")


def scores_of(results: Mapping[str, float], data: str, network: str, count: int) -> list[float]:
    """The scores of the finished seeds."""
    keys = (f"{data}/{network}/{count}/{seed}" for seed in SEEDS)
    return [results[key] for key in keys if key in results]


def plot(results: Mapping[str, float]) -> None:
    """Dice over the number of labelled images, one panel per data set, of networks with all."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=False)
    for axis, data in zip(axes, PLOTTED, strict=True):
        for network, variant in NETWORKS.items():
            found = {c: scores_of(results, data, network, c) for c in COUNTS}
            done = {c: s for c, s in found.items() if s}
            if len(done) < len(COUNTS):
                continue
            means = [statistics.mean(s) for s in done.values()]
            line = axis.plot(list(done), means, marker="o", label=variant.title)[0]
            lows, highs = [min(s) for s in done.values()], [max(s) for s in done.values()]
            axis.fill_between(list(done), lows, highs, alpha=0.2, color=line.get_color())
        axis.set(title=data, xlabel="labelled images", ylabel="Dice on test images", xscale="log")
        axis.set_xticks(COUNTS, [str(c) for c in COUNTS])
        axis.legend()
    figure.tight_layout()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
