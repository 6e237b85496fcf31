"""The recipe of a classification network."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from torch import Tensor

from caps_med.bundles import NetworkSpec
from caps_med.bundles.tasks import Task
from caps_med.errors import InvalidParameter
from caps_med.inference.suitability import own_slices, reconstruction_limit, training_statistics
from caps_med.networks import CapsuleNetwork, ClassificationNetwork
from caps_med.preprocessing import PicturePreprocessing
from caps_med.wording import counted
from training.data.classified import ClassifiedSource
from training.engine import distributed
from training.engine.precision import Precision, chosen_precision
from training.engine.recipe import Count, Fraction, Recipe
from training.evaluation.classification.calibration import fitted
from training.evaluation.classification.scores import (
    Scores,
    answers,
    answers_and_errors,
    classification_scores,
)
from training.tasks.classification.augmentation import PictureAugmentation

#: Epochs of a training, and the optimizer steps that so many take at least: a hundred images are
#: one batch, and twenty steps teach next to nothing (digits: 31 % right, after 100 steps 90 %).
EPOCHS, LEAST_STEPS = 20, 300
#: Evenly spaced training images whose statistics the model's card keeps.
STATISTICS_OF = 1000
Loss = Literal["margin", "spread", "cross_entropy"]
Margin = Literal["linear", "sigmoid"]
Network = Literal["efficient", "capsnet", "matrix", "cnn", "resnet"]

#: Name in the registry of networks.
NETWORKS: Mapping[str, str] = MappingProxyType(
    {
        "efficient": "EfficientCapsNet",
        "capsnet": "CapsNet",
        "matrix": "MatrixCapsules",
        "cnn": "ConvNet",
        "resnet": "ResNet",
    }
)
#: The published weight of the reconstruction, 0.0005 of the summed squared error at 28 x 28
#: pixels, as a factor of the mean squared error, which does not depend on the size.
RECONSTRUCTION = 0.392
#: The smaller of the published networks of matrix capsules, with a fifth of the parameters. Two
#: iterations of EM instead of three: through a third one the gradients of two batches have nothing
#: to do with each other before training (``docs/results/classification.md``).
SMALL_MATRIX_CAPSULES = {"width": 64, "types": [8, 16, 16], "iterations": 2}
#: Arguments of a network that follow from the data and from other values of the recipe.
FOLLOWING = ("in_channels", "out_channels", "image_size", "activation", "decoder")
#: Defaults that depend on the network.
DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "efficient": {
            "loss": "margin", "learning_rate": 4e-3, "reconstruction_weight": RECONSTRUCTION,
        },
        "capsnet": {
            "loss": "margin", "learning_rate": 1e-3, "reconstruction_weight": RECONSTRUCTION,
        },
        "matrix": {
            "loss": "spread", "learning_rate": 3e-3, "arguments": SMALL_MATRIX_CAPSULES,
        },
        "cnn": {"loss": "cross_entropy", "learning_rate": 2e-3, "weight_decay": 1e-2},
        "resnet": {"loss": "cross_entropy", "learning_rate": 1e-3, "weight_decay": 1e-2},
    }
)  # fmt: skip


class ClassificationRecipe(Recipe):
    """Settings of the training of a classification network.

    Attributes:
        network: ``efficient`` (Efficient-CapsNet), ``capsnet`` (Sabour et al. 2017), ``matrix``
            (matrix capsules with EM routing), ``cnn`` (convolutions of equal size) or ``resnet``
            (MONAI's). Defaults below depend on it, see `DEFAULTS`.
        steps: optimizer steps of an epoch; 0 goes once through the training images, or as often as
            it takes to reach `LEAST_STEPS` in `epochs`, or in `EPOCHS` where these are fewer.
        loss: ``margin``, ``spread`` or ``cross_entropy``, of capsules that of their scores scaled
            to add up to 1.
        margin: of the spread loss, which rises from 0.2 to 0.9 over the training: ``linear``, or
            ``sigmoid``, as in the code of Hinton et al.
        reconstruction_weight: of the mean squared error of the reconstruction by the capsules of
            the true classes; 0 trains without a decoder.
        weight_decay: of AdamW.
        weight_average: decay of the running mean of the weights, which is then what is scored and
            published; 0 takes the weights as they are.
        iterations: of routing; None for those of `arguments`, or the network's own.
        arguments: other arguments of the network, such as ``width`` or ``types``.
        precision: of the network's numbers in training; ``bfloat16`` halves the time where the
            processor has it. None chooses by processor and network; EM routing needs ``float32``.
        class_weights: of the loss, for classes of different sizes; None for equal weights.
        score: that chooses the checkpoint: ``accuracy``, ``balanced_accuracy`` or ``auroc``.
        validation: share of the images that is held out where the data have no validation part.
        keep_classes: whether the patients who are held out are chosen so that most classes are left
            to train on; older runs took the first share, even if it held all images of a class.
        augmentation: of the training images.
        preparation: how an image becomes the network's input.
    """

    epochs: Count = EPOCHS
    steps: Annotated[int, Field(ge=0)] = 0
    batch_size: Count = 128
    task: ClassVar[Task] = "classification"
    before: ClassVar[Mapping[str, Any]] = {"keep_classes": False}

    network: Network = "efficient"
    loss: Loss
    margin: Margin = "linear"
    reconstruction_weight: Annotated[float, Field(ge=0)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    weight_average: Fraction = 0.0
    iterations: Annotated[int, Field(ge=1, le=10)] | None = None
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    precision: Precision | None = None
    class_weights: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    score: Literal["accuracy", "balanced_accuracy", "auroc"] = "accuracy"
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.1
    keep_classes: bool = True
    augmentation: PictureAugmentation = PictureAugmentation()
    preparation: PicturePreprocessing = PicturePreprocessing()

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_network(cls, values: Any) -> Any:  # noqa: ANN401 - any input of a validator
        if not isinstance(values, dict):
            return values
        given = {key: value for key, value in values.items() if value is not None}
        defaults = DEFAULTS.get(str(values.get("network", "efficient")), DEFAULTS["efficient"])
        return {**values, **{k: v for k, v in defaults.items() if k not in given}}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        convolutional = not self.has_capsules
        if convolutional and self.loss != "cross_entropy":
            raise ValueError(f"loss {self.loss}: {self.network} is trained with cross_entropy")
        if self.reconstruction_weight and convolutional:
            raise ValueError(f"reconstruction_weight: {self.network} has no capsules")
        if self.iterations and self.network not in ("capsnet", "matrix"):
            raise ValueError(f"iterations: {self.network} does not route in iterations")
        return self

    @property
    def has_capsules(self) -> bool:
        """Whether the network is one of capsules."""
        return self.network not in ("cnn", "resnet")

    def network_spec(self, source: ClassifiedSource) -> NetworkSpec:
        """The network for the images and classes of `source`."""
        arguments: dict[str, Any] = {
            "in_channels": self.preparation.channels,
            "out_channels": len(source.classes),
            "image_size": list(self.preparation.size),
        }
        if not self.has_capsules:
            arguments["activation"] = "softmax" if source.exclusive else "sigmoid"
        else:
            arguments["decoder"] = self.reconstruction_weight > 0
        arguments |= self.arguments
        if self.iterations:
            arguments["iterations"] = self.iterations
        return NetworkSpec(name=NETWORKS[self.network], arguments=arguments)

    @classmethod
    def values_of(cls, spec: NetworkSpec) -> Mapping[str, Any]:
        """Its name here, its arguments, and what pictures it takes."""
        name = next((name for name, known in NETWORKS.items() if known == spec.name), None)
        if name is None:
            return {}
        own = {k: v for k, v in spec.arguments.items() if k not in FOLLOWING}
        taken = {"size": "image_size", "channels": "in_channels"}
        values: dict[str, Any] = {
            "network": name,
            "arguments": own,
            "preparation": {k: spec.arguments[v] for k, v in taken.items() if v in spec.arguments},
        }
        if "decoder" in spec.arguments:
            values["reconstruction_weight"] = RECONSTRUCTION if spec.arguments["decoder"] else 0.0
        return values

    def completed(self, source: ClassifiedSource) -> Self:
        """With the steps of an epoch, and the precision.

        Raises:
            InvalidParameter: the loss is not for images of several classes, or there are more or
                fewer class weights than classes.
        """
        weights, classes = self.class_weights, len(source.classes)
        if weights is not None and len(weights) != classes:
            raise InvalidParameter(
                f"class_weights: {len(weights)} for {counted(classes, 'class', 'classes')}; give "
                "one each"
            )
        if self.has_capsules and self.loss != "margin" and not source.exclusive:
            raise InvalidParameter(
                f"loss={self.loss}: images of several classes need the margin loss: choose it by "
                "--loss margin"
            )
        least = -(-LEAST_STEPS // max(self.epochs, EPOCHS))
        steps = self.steps or max(least, len(source.training) // self.batch_size)
        precision = chosen_precision(
            self.precision, distributed.device(), suits=self.network != "matrix"
        )
        return self.model_copy(update={"steps": steps, "precision": precision})

    def held_out_scores(
        self, network: CapsuleNetwork, source: ClassifiedSource
    ) -> Mapping[str, float]:
        """Accuracy, balanced accuracy and AUROC on the images held out."""
        assert isinstance(network, ClassificationNetwork)  # noqa: S101 - of this recipe
        scores = classification_scores(network, source.validation, source.exclusive)
        return {**scores, "score": scores[self.score]}

    def card_values(self, network: CapsuleNetwork, source: ClassifiedSource) -> Mapping[str, Any]:
        """Classes and preprocessing, and the statistics of the images to train on."""
        shown = (picture[None] for picture in source.some_of_training(STATISTICS_OF))
        own = itertools.chain.from_iterable(map(own_slices, shown))
        return {**source.card_values(), "statistics": training_statistics(own)}

    def calibration(
        self, trained: Sequence[tuple[CapsuleNetwork, ClassifiedSource]]
    ) -> Mapping[str, Any]:
        """The temperature that fits the images held out, and the limit of their reconstructions.

        The temperature of an ensemble fits the answers of each network to what it has not seen; its
        reconstructions are those of the first one.
        """
        found = [_held_out_answers(network, source) for network, source in trained]
        scores = np.concatenate([each for each, _ in found])
        targets = np.concatenate([source.validation.chosen_targets for _, source in trained])
        spec = fitted(trained[0][1].card_values()["classification"], scores, targets)
        errors = found[0][1]
        limit = None if errors is None else reconstruction_limit(errors)
        return {"classification": spec.model_copy(update={"reconstruction_error": limit})}


def _held_out_answers(
    network: CapsuleNetwork, source: ClassifiedSource
) -> tuple[Scores, Tensor | None]:
    """Scores of the images held out, and what their reconstructions lack; None without a decoder.

    Each picture is asked about once.
    """
    assert isinstance(network, ClassificationNetwork)  # noqa: S101 - of this recipe
    if not network.reconstructs:
        return answers(network, source.validation), None
    return answers_and_errors(network, source.validation, source.exclusive)
