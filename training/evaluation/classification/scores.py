"""A network's answers to many pictures, and how good they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caps_med.inference.classifier import PRESENT
from caps_med.inference.suitability import unexplained
from caps_med.networks import ClassificationNetwork
from caps_med.preprocessing import unit_pictures
from training.data.classified.source import Pictures
from training.evaluation.classification.measures import Answers, accuracies
from training.progress import SCORING, tracked

#: Pictures of one forward pass, by kind of device.
BATCH = {"cpu": 64, "cuda": 256}

Scores = NDArray[np.float64]


def answers(network: ClassificationNetwork, pictures: Pictures) -> Scores:
    """Scores ``[N, J]`` of the network, whose mode is restored afterwards."""

    def scores(image: Tensor) -> tuple[Tensor]:
        return (network.classify_together(image)[0],)

    (found,) = _of_batches(network, pictures, scores)
    return _as_array(found)


def answers_and_errors(
    network: ClassificationNetwork, pictures: Pictures, exclusive: bool
) -> tuple[Scores, Tensor]:
    """Scores ``[N, J]``, and what reconstructions of the answered classes lack, ``[N]``.

    Each picture is asked about once. For the second, see `unexplained`.

    Args:
        network: has a decoder; its mode is restored afterwards.
    """

    def both(image: Tensor) -> tuple[Tensor, Tensor]:
        scores, capsules = network.classify_together(image)
        best = torch.zeros_like(scores).scatter(1, scores.argmax(1, keepdim=True), 1)
        present = best if exclusive else (scores >= PRESENT).to(scores.dtype)
        drawn = network.reconstruct(capsules, present)
        return scores, unexplained(network.reconstruction_target(image), drawn)

    scores, errors = _of_batches(network, pictures, both)
    return _as_array(scores), errors


def _of_batches(
    network: ClassificationNetwork,
    pictures: Pictures,
    measure: Callable[[Tensor], tuple[Tensor, ...]],
) -> list[Tensor]:
    """Measures of pictures ``[N, C, H, W]`` batch by batch, on the CPU; nothing is trained."""
    device, training = next(network.parameters()).device, network.training
    network.eval()
    found, size = [], BATCH[device.type]
    with torch.inference_mode():
        for start in tracked(range(0, len(pictures), size), SCORING):
            batch, _ = pictures.batch(range(start, min(start + size, len(pictures))))
            measured = measure(unit_pictures(torch.from_numpy(batch).to(device)))
            found.append([one.cpu() for one in measured])
    network.train(training)
    return [torch.cat(parts) for parts in zip(*found, strict=True)]


def _as_array(scores: Tensor) -> Scores:
    array: Scores = scores.double().numpy()
    return array


def classification_scores(
    network: ClassificationNetwork, pictures: Pictures, exclusive: bool
) -> dict[str, float]:
    """``accuracy``, ``balanced_accuracy`` and ``auroc``, see `scores_of`."""
    return scores_of(answers(network, pictures), pictures.chosen_targets, exclusive)


def scores_of(scores: Scores, targets: NDArray[np.uint8], exclusive: bool) -> dict[str, float]:
    """Accuracy, balanced accuracy and area under the ROC curve.

    Args:
        scores: ``[N, J]``, higher for a more likely class.
        targets: ``[N, J]``, 1 for the classes of an image.
        exclusive: whether each image belongs to exactly one class: the answer is the class of the
            highest score. Else it is every class with a score of at least a half, and accuracy is
            the mean over the classes.

    Returns:
        As those of `training.evaluation.classification.measures.measured`. ``auroc`` and, of
        classes that go together, ``balanced_accuracy`` are means over the classes, each against the
        rest, that some but not all images belong to; 0.5 if there are none.
    """
    predicted = Answers(scores, targets, exclusive).predicted
    found = accuracies(predicted, targets > 0, exclusive, np.ones((1, len(targets))))
    accuracy, balanced = (float(found[name][0]) for name in ("accuracy", "balanced_accuracy"))
    return {
        "accuracy": accuracy,
        "balanced_accuracy": balanced if np.isfinite(balanced) else 0.5,
        "auroc": _auroc(scores, targets),
    }


def _auroc(scores: Scores, targets: NDArray[np.uint8]) -> float:
    from sklearn.metrics import roc_auc_score

    possible = [k for k in range(targets.shape[1]) if 0 < targets[:, k].sum() < len(targets)]
    if not possible:
        return 0.5
    return float(np.mean([roc_auc_score(targets[:, k], scores[:, k]) for k in possible]))
