"""A trained generator of whole heads becomes the built-in model `brain-synthesis`.

    python -m benchmarks.whole_head --templates /usr/share/mricron/templates --out HEAD
    caps-med train synthesis --data HEAD --name brain-synthesis --models TRAINED ...
    python -m benchmarks.brain_synthesis_model --trained TRAINED/brain-synthesis/2 --models MODELS

The last adds what a training cannot know: the names of the classes, which further ids of FreeSurfer
and SynthSeg are read as which class, and where the data are from. docs/results/models.md has the
whole command of the training.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.options import benchmark_parser
from benchmarks.whole_head import ALIASES, CONTRASTS, LABELS, STRIPPED
from caps_med.bundles import Bundle, ModelRepository, write_bundle
from caps_med.bundles.weights import load_weights
from caps_med.networks import build_network

DATA = (
    f"Colin27, the average of 27 T1 scans of one head (Holmes et al. 1998, Journal of Computer "
    f"Assisted Tomography 22:324; Copyright (C) 1993-2009 Louis Collins, McConnell Brain Imaging "
    f"Centre, Montreal Neurological Institute, McGill University: may be used, copied, modified "
    f"and distributed with this notice), as it is, in {len(CONTRASTS)} other contrasts computed "
    f"from it, and {len(STRIPPED)} times without skull; deep structures by the AAL atlas "
    f"(Tzourio-Mazoyer et al. 2002, NeuroImage 15:273)."
)

COMMAND = (
    "caps-med train synthesis --data whole-head --name brain-synthesis --crop 96 --batch-size 4 "
    "--epochs 30 --steps 50 --set codes=128 --set transposed_first=0 "
    "--set augmentation.noise=0.03 --set augmentation.field=0.1 --set validated=16, then the same "
    "with --start-from brain-synthesis@1 --epochs 22 --learning-rate 0.004 --set style_weight=0.3"
)


def publish(trained: Path, models: Path) -> Bundle:
    """Write a trained generator into another repository."""
    bundle = ModelRepository(trained.parent.parent).find(f"{trained.parent.name}@{trained.name}")
    own = bundle.card
    card = own.model_copy(
        update={
            "labels": {i: LABELS[i] for i in own.labels},
            "aliases": ALIASES,
            "description": (
                "CapsPix2Pix for axial slices of a head from FreeSurfer's labels, with or without "
                "what surrounds the brain. Contrast, brightness and noise follow from the seed."
            ),
            "input_description": (
                "label maps of an adult head with voxels of about 1 mm, with the ids of FreeSurfer "
                "or of SynthSeg's training label maps"
            ),
            "license": "Apache-2.0",
            "provenance": own.provenance.model_copy(
                update={
                    "data": DATA,
                    "command": COMMAND,
                    "recipe": {**own.provenance.recipe, "data": "whole-head"},
                }
            ),
        }
    )
    network = build_network(card.network.name, card.network.arguments)
    load_weights(network, trained / "models" / "model.safetensors")
    return write_bundle(ModelRepository(models), "brain-synthesis", network, card, half=True)


def main() -> None:
    """Publish."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--trained", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    options = parser.parse_args()
    bundle = publish(options.trained, options.models)
    print(f"{bundle.reference} in {bundle.path}")


if __name__ == "__main__":
    main()
