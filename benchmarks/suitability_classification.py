"""How often classifiers tell that an image is unlike those of their training.

    python -m benchmarks.suitability_classification --data DIR --colin27 TEMPLATES \\
        --hippocampus DIR --out benchmarks/results/suitability-classification.json

``--data`` is that of ``python -m benchmarks.classification``, the others are those of
``python -m benchmarks.suitability``. With ``--write`` the statistics of the training images are
computed first, as ``caps-med train classification`` does, and written into the cards of the
built-in models; else the cards are taken as they are. Of each data set the training part alone
makes the statistics, and pictures of the test part are asked about.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import caps_med
from benchmarks.brain_slices import write_slices
from benchmarks.classification.data import folder_of
from benchmarks.options import benchmark_parser
from benchmarks.suitability import Images, as_image, heads, others, write_into_card
from caps_med.images import MedicalImage
from caps_med.inference import Model
from caps_med.inference.suitability import (
    own_slices,
    reconstruction_limit,
    training_statistics,
    unexplained,
)
from training.data.classified import ClassifiedDataset, open_classified
from training.tasks.classification.recipe import STATISTICS_OF

#: Test images of each data set that are asked about.
ASKED = 1000


def chosen(dataset: ClassifiedDataset, part: str, count: int) -> Iterator[MedicalImage]:
    """At most `count` images of a part, evenly spaced."""
    images = [image for image in dataset.images if image.part == part]
    for place in range(min(count, len(images))):
        yield dataset.read(images[place * len(images) // min(count, len(images))])


def write_statistics(model: Model, dataset: ClassifiedDataset) -> None:
    """Compute the statistics of a model's training images, and write them into its card."""
    pictures = map(model.classifier.prepare, chosen(dataset, "train", STATISTICS_OF))
    found = training_statistics(itertools.chain.from_iterable(map(own_slices, pictures)))
    assert found is not None  # noqa: S101 - the images show something
    write_into_card(model, found.model_dump(mode="json"), "statistics")
    if model.classifier.network.reconstructs:
        write_reconstruction_error(model, dataset)


def write_reconstruction_error(model: Model, dataset: ClassifiedDataset) -> None:
    """Measure what reconstructions of training images lack, and write it into a model's card.

    Not of held-out images as training does: which those were is not kept with the model.
    """
    classifier = model.classifier
    pictures = torch.cat([*map(classifier.prepare, chosen(dataset, "train", STATISTICS_OF))])
    with torch.inference_mode():
        scores, capsules = classifier.network.classify_together(pictures)
        answered = torch.zeros_like(scores).scatter(1, scores.argmax(1, keepdim=True), 1)
        drawn = classifier.network.reconstruct(capsules, answered)
    wanted = classifier.network.reconstruction_target(pictures)
    limit = reconstruction_limit(unexplained(wanted, drawn))
    write_into_card(model, limit, "classification", "reconstruction_error")


def groups_of(data: dict[str, ClassifiedDataset], folders: dict[str, Path]) -> dict[str, Images]:
    """Images by group, those of each data set's test part under the name of its model."""
    found: dict[str, Images] = {
        name: {str(i): image for i, image in enumerate(chosen(dataset, "test", ASKED))}
        for name, dataset in data.items()
    }
    for name in ("digits", "fashion"):
        found[f"inverted {name}"] = {
            title: as_image(255 - image.array[0].astype(np.float32))
            for title, image in itertools.islice(found[name].items(), 100)
        }
    return found | heads(folders["colin27"]) | others(folders["hippocampus"])


def is_told(model: Model, image: MedicalImage) -> bool:
    """Whether the model warns of the image."""
    matched = model.classifier.match_channels(image)
    return len(model.classify(matched).warnings) > len(matched.warnings)


def main() -> None:
    """Count warnings, group by group."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--colin27", type=Path, default=Path("/usr/share/mricron/templates"))
    parser.add_argument("--hippocampus", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        slices = Path(work) / "brain-slices"
        write_slices(options.colin27, slices)
        data = {
            "digits": open_classified(folder_of("mnist10k", options.data, Path(work))),
            "fashion": open_classified(folder_of("fashion", options.data, Path(work))),
            "brain-slices": open_classified(slices / "list.json"),
        }
        groups = groups_of(data, {"colin27": options.colin27, "hippocampus": options.hippocampus})
        result: dict[str, dict[str, dict[str, object]]] = {}
        for name, dataset in data.items():
            if options.write:
                write_statistics(caps_med.load_model(name), dataset)
            model, result[name] = caps_med.load_model(name), {}
            for group, images in groups.items():
                told = sum(is_told(model, image) for image in images.values())
                result[name][group] = {
                    "suits": group == name, "images": len(images), "told": told,
                }  # fmt: skip
                print(f"{name:14s} {group:26s} {told} of {len(images)} told", flush=True)
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
