"""Networks trained by the public training code, whose scores on test pictures are watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import PrivateAttr

from benchmarks.robustness.mnist import Bytes, Labels
from caps_med.images import Normalization
from caps_med.networks import CapsuleNetwork, ClassificationNetwork
from caps_med.preprocessing import PicturePreprocessing
from training.data.classified import ClassifiedSource
from training.data.classified.source import Pictures
from training.data.classified.split import hold_out_share
from training.engine.run_folder import RunFolder
from training.evaluation.classification.scores import answers
from training.tasks.classification.recipe import ClassificationRecipe
from training.tasks.classification.train import train_classification

#: Network of the tables -> recipe values. CapsNet's routing is the number after its name.
NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "efficient": {"network": "efficient"},
    "capsnet1": {"network": "capsnet", "iterations": 1},
    "capsnet3": {"network": "capsnet", "iterations": 3},
    "matrix": {"network": "matrix", "batch_size": 64},
    "cnn": {"network": "cnn"},
}
_BATCH = 128
#: Share of the training pictures that the log of a run is scored on; nothing is chosen by it.
_LOGGED = 0.05


class WatchedRecipe(ClassificationRecipe):
    """A recipe that logs accuracies on other pictures after every epoch; they decide nothing."""

    _watched: Mapping[str, Pictures] = PrivateAttr(default_factory=dict)

    def watching(self, pictures: Mapping[str, Pictures]) -> WatchedRecipe:
        """With these pictures, by the name of their accuracy in the log."""
        found = self.model_copy()
        found._watched = pictures
        return found

    def held_out_scores(
        self, network: CapsuleNetwork, source: ClassifiedSource
    ) -> Mapping[str, float]:
        """The accuracies watched, beside the usual scores."""
        assert isinstance(network, ClassificationNetwork)  # noqa: S101 - of this recipe
        watched = {name: accuracy(network, each) for name, each in self._watched.items()}
        return {**super().held_out_scores(network, source), **watched}


def schedule_of(network: str, epochs: int) -> dict[str, Any]:
    """Recipe values of a network, with about the steps of so many epochs in batches of 128."""
    values = dict(NETWORKS[network])
    size = values.get("batch_size", _BATCH)
    return {**values, "epochs": max(1, round(epochs * size / _BATCH))}


@dataclass(frozen=True)
class Learned:
    """A trained network and the scores of its epochs."""

    network: ClassificationNetwork
    epochs: list[dict[str, float]]

    @property
    def parameters(self) -> int:
        """Of the network without its decoder."""
        decoder = self.network.decoder
        drawn = 0 if decoder is None else sum(p.numel() for p in decoder.parameters())
        return sum(p.numel() for p in self.network.parameters()) - drawn


def learned(
    folder: Path,
    source: ClassifiedSource,
    watched: Mapping[str, Pictures],
    values: Mapping[str, Any],
) -> Learned:
    """Train for all epochs of the recipe, from the last checkpoint in the folder if there is one.

    Args:
        values: of the recipe; the weights of the last epoch are kept.
    """
    recipe = WatchedRecipe.model_validate(
        {"data": source.name, "preparation": source.preparation, "keep": "last", **values}
    )
    run = RunFolder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    network, _ = train_classification(
        source, recipe.completed(source).watching(watched), run, run.checkpoint.exists()
    )
    return Learned(network, run.logged())


def source_of(
    name: str,
    pictures: Bytes,
    labels: Labels,
    classes: tuple[str, ...],
    logged: tuple[Bytes, Labels] | None = None,
) -> ClassifiedSource:
    """Pictures ``[N, C, H, W]`` of exclusive classes as training takes them.

    Args:
        logged: pictures and labels that the log of a run is scored on, where all others are to be
            trained on; None takes a share of them.
    """
    if logged is None:
        held_out = hold_out_share(labels, [""] * len(labels), _LOGGED, 0)
    else:
        held_out = np.arange(len(labels) + len(logged[1])) >= len(labels)
        pictures = np.concatenate([pictures, logged[0]])
        labels = np.concatenate([labels, logged[1]])
    preparation = PicturePreprocessing(
        size=pictures.shape[2:],
        channels=pictures.shape[1],
        normalization=Normalization(window=(0, 255)),
    )
    return ClassifiedSource(
        name=name,
        pictures=pictures,
        targets=np.eye(len(classes), dtype=np.uint8)[labels],
        names=[str(number) for number in range(len(labels))],
        groups=[""] * len(labels),
        held_out_indices=np.flatnonzero(held_out),
        classes=classes,
        exclusive=True,
        preparation=preparation,
        description=name,
    )


def watch(pictures: Bytes, labels: Labels, classes: int) -> Pictures:
    """Pictures ``[N, C, H, W]`` whose accuracy is watched."""
    return Pictures(pictures, np.eye(classes, dtype=np.uint8)[labels], np.arange(len(labels)))


def accuracy(network: ClassificationNetwork, pictures: Pictures) -> float:
    """Share of the pictures whose highest score is that of their class."""
    scores = answers(network, pictures)
    return float((scores.argmax(1) == pictures.chosen_targets.argmax(1)).mean())
