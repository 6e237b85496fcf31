"""Which weight the adversarial loss deserves: ``python -m benchmarks.adversarial_weight``.

Trains CapsPix2Pix and its ablation without capsules as `benchmarks.tstr` does, with several weights
of the adversarial loss, and measures their images as that benchmark does, but on phantoms that it
does not use, so that no recipe is chosen by what it is then tested on. For some of them it also
trains the U-Net of that benchmark on the 8 real images and 300 synthetic ones, three times.

Finished parts are kept, in ``--work`` (generators, judge) and ``--out`` (scores), so that an
interrupted command continues. It prints the table and writes it into
``docs/results/train-on-synthetic.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.options import benchmark_parser
from benchmarks.tstr.arms import ARMS, Sizes, samples_of
from benchmarks.tstr.data import CHOICE_NEW, CHOICE_TEST, real_samples
from benchmarks.tstr.generators import trained
from benchmarks.tstr.quality import quality_of
from benchmarks.tstr.results import NAMES, Results, opened, summary, write_page
from benchmarks.tstr.segmenter import STEPS, dice_of_each, judge, train
from caps_med.inference import Model

ROOT = Path(__file__).parent.parent
#: The text between these lines of the page is replaced.
MARKS = "<!-- adversarial weight -->", "<!-- end of adversarial weight -->"
SEEDS = 0, 1, 2


@dataclass(frozen=True)
class Trial:
    """One training of a generator.

    Attributes:
        network: see `training.tasks.synthesis.SynthesisRecipe`.
        weight: of the adversarial loss.
        rate: learning rate.
        seed: of the training.
        used: whether a segmentation is trained on its images, too.
    """

    network: str
    weight: float
    rate: float
    seed: int = 0
    used: bool = False

    @property
    def name(self) -> str:
        """Of the model, in letters that a model's name may have."""
        return f"{self.network}-w{self.weight:g}-r{self.rate:g}-s{self.seed}".replace(".", "p")

    @property
    def settings(self) -> list[str]:
        """What differs from the default recipe."""
        return ["crop=64", f"network={self.network}", f"adversarial_weight={self.weight:g}",
                f"learning_rate={self.rate:g}", f"seed={self.seed}"]  # fmt: skip


TRIALS = (
    Trial("capspix2pix", 0.0, 5e-3),
    Trial("capspix2pix", 0.01, 5e-3),
    Trial("capspix2pix", 0.03, 5e-3, used=True),
    Trial("capspix2pix", 0.03, 5e-3, seed=1),
    Trial("capspix2pix", 0.1, 5e-3, used=True),
    Trial("capspix2pix", 0.1, 5e-3, seed=1),
    Trial("capspix2pix", 0.3, 5e-3),
    Trial("capspix2pix-plain", 0.03, 2e-4, used=True),
    Trial("capspix2pix-plain", 0.1, 2e-4, used=True),
    Trial("capspix2pix-plain", 0.1, 5e-4, used=True),
)


def main() -> None:
    """Do what is missing, then print and write the table."""
    options = _options()
    torch.set_num_threads(options.threads)
    results = opened(options.out, {"steps": str(STEPS)})
    segmenter = judge(options.work / "judge.safetensors")
    sizes = Sizes()
    for trial in TRIALS:
        model = trained(trial.name, options.work, sizes.real, trial.settings, options.threads)
        if trial.name not in results.quality:
            results.quality[trial.name] = quality_of(
                model, segmenter, sizes.tested, CHOICE_NEW, CHOICE_TEST
            )
            results.save(options.out)
        for seed in SEEDS if trial.used else ():
            if seed not in results.dice.get(trial.name, {}):
                results.keep(trial.name, seed, _dice(model, sizes, seed))
                results.save(options.out)
    lines = "\n".join(table(results))
    print(lines)
    write_page(options.docs, MARKS, lines, {})


def table(results: Results) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield (
        "| generator | weight | learning rate | seed | geometry kept | Fréchet | MMD | diversity, "
        "1 - SSIM | Dice of a U-Net beside real images, each seed |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for trial in TRIALS:
        if (quality := results.quality.get(trial.name)) is None:
            continue
        found = summary(results, trial.name)
        dice = ""
        if found is not None:
            spread, means = found
            dice = f"{spread.text(3, interval=True)}; {', '.join(f'{m:.3f}' for m in means)}"
        yield (
            f"| {NAMES[trial.network]} | {trial.weight:g} | {trial.rate:g} | {trial.seed} | "
            f"{quality.geometry:.3f} | {quality.frechet:.1f} | {quality.mmd:.2f} | "
            f"{quality.diversity['structure']:.2f} | {dice} |"
        )


def _dice(model: Model, sizes: Sizes, seed: int) -> list[float]:
    """Of a U-Net that has learned from the real images and from synthetic ones."""
    samples = samples_of(ARMS["real+caps"], sizes, seed, lambda _: model, CHOICE_NEW)
    tested = real_samples(CHOICE_TEST, sizes.tested)
    return dice_of_each(train(samples, seed, STEPS), tested)


def _options() -> argparse.Namespace:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--work", type=Path, default=Path("runs/tstr"), help="generators, judge")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "benchmarks/results/adversarial-weight.json"
    )
    parser.add_argument(
        "--docs", type=Path, default=ROOT / "docs" / "results" / "train-on-synthetic.md"
    )
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
