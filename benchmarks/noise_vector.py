"""What makes a generator use its noise vector: ``python -m benchmarks.noise_vector``.

Trains one CapsPix2Pix per row on the 8 axon phantoms of `benchmarks.tstr`, all with the same steps,
and measures their images as that benchmark does. Generators are kept in ``--work`` (shared with
`benchmarks.tstr`, whose judge is used), so that an interrupted command continues. It prints the
table and writes it into ``docs/results/noise-vector.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from benchmarks.options import benchmark_parser
from benchmarks.tstr.generators import trained
from benchmarks.tstr.pictures import repeats_of_one
from benchmarks.tstr.quality import Quality, quality_of
from benchmarks.tstr.results import write_page
from benchmarks.tstr.segmenter import judge

ROOT = Path(__file__).parent.parent
#: The text between these lines of the page is replaced.
MARKS = "<!-- noise vector -->", "<!-- end of noise vector -->"
#: As published by Bass et al. 2019 except for the learning rates, so that rows differ in one thing.
PUBLISHED = {"noise_source": "broadcast_conv", "adversarial_weight": 1.0, "structure_weight": 0.0,
             "texture_weight": 0.0, "style_weight": 0.0}  # fmt: skip
ALONE = {**PUBLISHED, "adversarial_weight": 0.03, "structure_weight": 0.25}
#: Row -> title, and differences from the default recipe.
VARIANTS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "published": ("published losses, z broadcast", PUBLISHED),
    "weak": ("the same, weak discriminator, SSIM", ALONE),
    "diverse": ("and a diversity term (0.1)", {**ALONE, "diversity_weight": 0.1}),
    "looks": ("and a style code in z instead", {**ALONE, "style_weight": 0.15}),
    "looks-field": ("style code, field noise, texture", {"adversarial_weight": 0.03}),
}
SAME = {"epochs": 8, "steps": 50, "crop": 64, "batch_size": 4}


def main() -> None:
    """Train what is missing, measure, print and write the table."""
    options = _options()
    torch.set_num_threads(options.threads)
    segmenter = judge(options.work / "judge.safetensors")
    found, models = {}, {}
    for name, (title, changes) in VARIANTS.items():
        settings = [f"{key}={value}" for key, value in {**SAME, **changes}.items()]
        models[title] = trained(f"z-{name}", options.work, 8, settings, options.threads)
        found[title] = quality_of(models[title], segmenter, options.maps)
        print(title, found[title], flush=True)
    lines = "\n".join(_table(found))
    print(lines)
    picture = options.pictures / "noise-vector.png"
    repeats_of_one(models).save(picture, optimize=True)
    write_page(options.docs, MARKS, lines, {picture: "Six seeds per row, below six real repeats"})


def _table(found: Mapping[str, Quality]) -> Iterator[str]:
    yield "| trained with | diversity, absolute | diversity, 1 - SSIM | geometry kept | Fréchet |"
    yield "|---|---|---|---|---|"
    for title, quality in found.items():
        yield (
            f"| {title} | {quality.diversity['l1']:.2f} | {quality.diversity['structure']:.2f} | "
            f"{quality.geometry:.3f} | {quality.frechet:.1f} |"
        )


def _options() -> argparse.Namespace:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--work", type=Path, default=Path("runs/tstr"), help="generators, judge")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "results" / "noise-vector.md")
    parser.add_argument("--maps", type=int, default=24, help="label maps to synthesize")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
