"""Trainings on the hippocampi of the Medical Segmentation Decathlon become built-in models.

``segmentation`` publishes a cell of ``benchmarks.segmentation`` that was run with ``--weights``::

    python -m benchmarks.segmentation --data DIR --networks convcaps --steps 1500 --batch 8 \
        --weights --device cpu --out RUNS
    python -m benchmarks.hippocampus_model segmentation --data DIR --models MODELS \
        --cell RUNS/convcaps-fold0-nall-seed0-usual-1500x8.json

``synthesis`` publishes a generator of ``caps-med train synthesis`` with what its training could not
know, the names of those to cite::

    python -m benchmarks.tstr.volumes.surroundings --data DIR --out LABELS --names \
        "anterior hippocampus" "posterior hippocampus"
    caps-med train synthesis --data LABELS/cases.json --dims 3d --name hippocampus-synthesis \
        --epochs 5 --steps 200 --set batch_size=8 --models TRAINED
    python -m benchmarks.hippocampus_model synthesis --models MODELS \
        --trained TRAINED/hippocampus-synthesis/1
"""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.options import benchmark_parser
from benchmarks.segmentation import hippocampus
from benchmarks.segmentation.cells import Cell, recipe_of
from caps_med.bundles import (
    Bundle,
    ModelCard,
    ModelRepository,
    WeightsProvenance,
    named_scores,
    write_bundle,
)
from caps_med.bundles.weights import load_weights
from caps_med.networks import build_network
from training.data import Source

LABELS = {0: "background", 1: "anterior hippocampus", 2: "posterior hippocampus"}
LICENSE = "CC-BY-SA-4.0"
DATA = (
    "T1 MRI of adults, cropped around one hippocampus, drawn by hand (Vanderbilt University "
    "Medical Center): Medical Segmentation Decathlon, Task04, http://medicaldecathlon.com, "
    "CC BY-SA 4.0. Cite: M. Antonelli, A. Reinke, S. Bakas et al., The Medical Segmentation "
    "Decathlon, Nature Communications 13:4128, 2022."
)
#: Of the first version; what `benchmarks.segmentation` trains now needs no such step.
TURNED = (
    " The volumes were turned by 180 degrees about the superior axis, and the kernels turned back "
    "afterwards."
)
INPUT = (
    "T1 MRI of an adult head with voxels of about 1 mm, cropped around one hippocampus (about 36 x "
    "50 x 35 voxels)"
)


def publish_segmentation(data: Path, file: Path, models: Path) -> Bundle:
    """Write the network of a cell into a model repository as `hippocampus`."""
    result = json.loads(file.read_text())
    cell = Cell(**{name: result[name] for name in Cell.__dataclass_fields__})
    recipe, source = recipe_of(cell), _source(data, cell)
    spec = recipe.network_spec(source)
    network = build_network(spec.name, spec.arguments)
    load_weights(network, file.with_suffix(".safetensors"))
    means = np.nanmean(np.asarray(result["dice"]["as it is"], float), axis=0)
    values = {
        **recipe.card_values(network, source),
        **recipe.calibration([(network, source)]),
        "labels": LABELS,
    }
    card = ModelCard.model_validate(
        {
            "task": "segmentation",
            "network": spec,
            "scores": named_scores(
                {f"held-out dice {LABELS[k]}": float(d) for k, d in enumerate(means, 1)}
            ),
            "description": (
                f"{spec.name} for the anterior and the posterior part of a hippocampus, trained on "
                f"{result['training_cases']} volumes and tested on {len(result['cases'])} others."
            ),
            "input_description": INPUT,
            "license": LICENSE,
            "provenance": WeightsProvenance(
                command=(
                    f"python -m benchmarks.segmentation --data DIR --networks {cell.network} "
                    f"--folds {cell.fold} --steps {cell.steps} --batch {cell.batch} --weights "
                    "--device cpu"
                ),
                data=f"{result['training_cases']} volumes. {DATA}{TURNED}",
                seed=cell.seed,
                recipe=recipe.model_dump(mode="json"),
            ),
            **values,
        }
    )
    return write_bundle(ModelRepository(models), "hippocampus", network, card, half=True)


def _source(data: Path, cell: Cell) -> Source:
    """The cases of a cell; those that were scored are held out."""
    samples = hippocampus.read(data)
    chosen = hippocampus.split(list(samples), cell.fold, cell.count, cell.seed, cell.choosing)
    names = [*chosen.training, *chosen.scored]
    return replace(
        hippocampus.source(list(samples.values())),
        samples=[samples[name] for name in names],
        groups=names,
        held_out=frozenset(chosen.scored),
    )


def publish_synthesis(trained: Path, models: Path) -> Bundle:
    """Write a trained generator into another repository as `hippocampus-synthesis`."""
    bundle = ModelRepository(trained.parent.parent).find(f"{trained.parent.name}@{trained.name}")
    volumes = bundle.card.provenance.data.split(" ", 1)[0]
    card = bundle.card.model_copy(
        update={
            "description": (
                "CapsPix2Pix in 3-D for T1 volumes around a hippocampus. Best given label maps "
                "that also say where the surroundings are dark, grey and bright."
            ),
            "input_description": (
                "label maps of a hippocampus with voxels of about 1 mm, with or without three "
                "classes of its surroundings"
            ),
            "license": LICENSE,
            "provenance": bundle.card.provenance.model_copy(
                update={
                    "data": f"{volumes} pairs, each volume with two label maps. {DATA}",
                }
            ),
        }
    )
    spec = card.network
    network = build_network(spec.name, spec.arguments)
    load_weights(network, trained / "models" / "model.safetensors")
    repository = ModelRepository(models)
    return write_bundle(repository, "hippocampus-synthesis", network, card, half=True)


def main() -> None:
    """Publish one of them."""
    options = _options()
    if options.work == "segmentation":
        bundle = publish_segmentation(options.data, options.cell, options.models)
    else:
        bundle = publish_synthesis(options.trained, options.models)
    print(f"{bundle.reference} in {bundle.path}")


def _options() -> Namespace:
    parser = benchmark_parser(__doc__)
    works = parser.add_subparsers(dest="work", required=True)
    segmentation = works.add_parser("segmentation")
    segmentation.add_argument("--data", type=Path, required=True)
    segmentation.add_argument("--cell", type=Path, required=True, help="its JSON file")
    synthesis = works.add_parser("synthesis")
    synthesis.add_argument("--trained", type=Path, required=True, help="folder of the version")
    for work in (segmentation, synthesis):
        work.add_argument("--models", type=Path, required=True, help="repository to write to")
    return parser.parse_args()


if __name__ == "__main__":
    main()
