"""What a segmentation model answers, as it is scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from caps_med.bundles import ModelCard
from caps_med.images import MedicalImage
from caps_med.inference import Model, Segmentation
from caps_med.inference.uncertainty_maps import shares_of
from training.data.cases import Instances
from training.data.instances import BORDER
from training.evaluation.metrics.objects import divided


def labels_of(card: ModelCard, instances: Instances | None) -> Mapping[int, str]:
    """Id -> name of what a model is scored on.

    Args:
        card: of the model.
        instances: what the ids of the data are taken as. Where all are foreground, so are the
            objects and borders of a model that tells touching objects apart.
    """
    if instances == "binary" and card.instances == "borders":
        return {i: name for i, name in card.labels.items() if i < BORDER}
    return card.labels


def answered(
    model: Model, image: MedicalImage, instances: Instances | None
) -> tuple[Segmentation, MedicalImage | None]:
    """The answer with the labels of `labels_of`.

    Returns:
        The answer, and the ids of its objects ``[1, *S]`` where these labels do not say them.
    """
    answer, labels = model.segment(image), labels_of(model.bundle.card, instances)
    if len(labels) == len(answer.names):
        return answer, None
    ids = divided(answer.array[0] == 1, answer.array[0] == BORDER)
    foreground = shares_of(answer.probabilities.array)[1:].sum(0, keepdims=True)
    joined = replace(
        answer,
        array=(answer.array > 0).astype(np.uint8),
        names=labels,
        maps={"probabilities": answer.probabilities.with_array(foreground, kind="image")},
    )
    return joined, answer.with_array(ids[None])
