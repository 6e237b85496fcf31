"""The U-Net that is trained for every arm, with the same steps, crops and augmentation."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from monai.networks.utils import eval_mode

from benchmarks.tstr.data import MORE, real_samples, source
from benchmarks.tstr.locks import locked
from caps_med.bundles.weights import load_weights, save_weights
from caps_med.networks import SegmentationNetwork, UNet, predicted_classes
from training.data import Sample
from training.engine.run_folder import RunFolder
from training.evaluation.dice import mean_dice
from training.tasks.segmentation import SegmentationRecipe, train_segmentation

#: MONAI's BasicUNet with half of its channels, 0.65 million parameters.
FEATURES = (16, 16, 32, 64, 128, 16)
#: Steps of its training; and of the judge's, with the number of its images.
STEPS, JUDGE_STEPS, JUDGE_IMAGES = 600, 2000, 200


def train(
    samples: Sequence[Sample], seed: int, steps: int, features: Sequence[int] | None = FEATURES
) -> SegmentationNetwork:
    """The network after the last step; nothing is chosen by any score."""
    recipe = SegmentationRecipe.model_validate(
        {
            "data": "axons", "network": "unet", "features": features, "seed": seed, "epochs": 1,
            "steps": steps, "batch_size": 4, "crop": 64, "augmentation": {"flip_rows": 0.5},
        }
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        network, _ = train_segmentation(
            source(samples), recipe, RunFolder(Path(folder)), resume=False
        )
    return network


def dice_of_each(network: SegmentationNetwork, samples: Sequence[Sample]) -> list[float]:
    """Dice of the axons in every image."""
    found = []
    with eval_mode(network):
        for sample in samples:
            image, label = (torch.from_numpy(sample[k]).float()[None] for k in ("image", "label"))
            answer = predicted_classes(network(image))
            found.append(mean_dice(answer.numpy(), label.numpy(), [1]))
    return found


def judge(file: Path, steps: int = JUDGE_STEPS, count: int = JUDGE_IMAGES) -> SegmentationNetwork:
    """A good segmenter, to see whether synthetic images kept their geometry; kept in `file`.

    MONAI's BasicUNet, trained on `count` real phantoms that no arm is tested on.
    """
    with locked(file):
        if not file.exists():
            save_weights(train(real_samples(MORE, count), 0, steps, None), file)
    kept = UNet()
    load_weights(kept, file)
    return kept.eval()
