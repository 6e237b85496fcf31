"""A run of ``benchmarks.brain_tissue`` becomes a model.

python -m benchmarks.brain_tissue_model --run RUN --normalization ranks --models DIR
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.brain_tissue import NORMALIZATIONS, SCHEME
from benchmarks.options import benchmark_parser
from caps_med.bundles import (
    Bundle,
    ModelCard,
    ModelRepository,
    NetworkSpec,
    WeightsProvenance,
    named_scores,
    write_bundle,
)
from caps_med.bundles.weights import load_weights
from caps_med.networks import build_network
from training.data.mni152 import COLORS
from training.randomization import Randomization, scheme_of

DATA = (
    "Images drawn from 10 of 12 label maps of whole heads (FreeSurfer ids with extra-cerebral "
    "classes, 1 mm), 2 held out: training label maps of SynthSeg, https://github.com/BBillot/"
    "SynthSeg, Apache-2.0. Cite: B. Billot, D. N. Greve, O. Puonti, A. Thielscher, K. Van Leemput, "
    "B. Fischl, A. V. Dalca, J. E. Iglesias, SynthSeg: Segmentation of brain MRI scans of any "
    "contrast and resolution without retraining, Medical Image Analysis 86:102789, 2023. No image "
    "of a person was used."
)
#: Where a run lay says nothing to others.
_PATHS = re.compile(r"--(data|out|start) \S+")
INPUT = (
    "MRI of an adult head of any contrast, with or without skull, with pixels of 1 to 3 mm and "
    "slices of up to 6 mm"
)


def held_out(record: dict[str, Any], normalization: str) -> dict[str, float]:
    """Scores of the card: Dice with and without skull under one normalization."""
    return named_scores(
        {
            f"held-out dice {label}, skull {skull}": value
            for skull in ("on", "off")
            for label, value in record["held_out"][f"{normalization}, skull {skull}"].items()
        }
    )


def publish(run: Path, normalization: str, models: Path, name: str) -> Bundle:
    """Write the weights of a run into a model repository."""
    record = json.loads((run / "record.json").read_text())
    spec = NetworkSpec(**record["network"])
    network = build_network(spec.name, spec.arguments)
    load_weights(network, run / "model.safetensors")
    card = ModelCard(
        task="segmentation",
        network=spec,
        labels=scheme_of(SCHEME).names,
        colors=COLORS,
        spacing_mm=(1.0, 1.0),
        normalization=NORMALIZATIONS[normalization],
        scores=held_out(record, normalization),
        description=(
            f"{spec.name} for the tissues of the brain in images of any contrast, trained on "
            "images drawn from label maps alone. Deep grey matter is grey matter. On "
            "skull-stripped T1 images of about 1 mm brain-t1-tissue is more exact."
        ),
        input_description=INPUT,
        license="Apache-2.0",
        provenance=WeightsProvenance(
            command=_PATHS.sub(r"--\1 DIR", record["command"]).replace(" --maps None", ""),
            data=DATA,
            seed=record["seed"],
            recipe={
                "steps": record["steps"],
                "device": record["device"],
                "scheme": scheme_of(SCHEME).model_dump(mode="json"),
                "randomization": Randomization().model_dump(mode="json"),
            },
        ),
    )
    return write_bundle(ModelRepository(models), name, network, card, half=True)


def main() -> None:
    """Publish a run."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--normalization", choices=tuple(NORMALIZATIONS), default="ranks")
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--name", default="brain-tissue")
    options = parser.parse_args()
    bundle = publish(options.run, options.normalization, options.models, options.name)
    print(f"{bundle.reference} in {bundle.path}")


if __name__ == "__main__":
    main()
