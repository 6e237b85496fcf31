"""The models that an evaluation compares."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from caps_med.bundles import Bundle, ModelRepository
from caps_med.errors import InvalidInput, InvalidParameter, ModelNotFound, WrongTask
from caps_med.images.labels import same_name
from caps_med.inference import Model
from caps_med.networks import CapsuleNetwork
from caps_med.networks.ensemble import ClassificationEnsemble, Ensemble
from caps_med.wording import as_text
from training.data import ClassifiedDataset, Dataset
from training.data.cases import Instances, files_sha256
from training.evaluation.answers import labels_of


def members_of(model: Model) -> list[Model]:
    """The networks of a cross-validation, each as the model; another model alone."""
    if not isinstance(model.network, Ensemble | ClassificationEnsemble):
        return [model]
    members = []
    for network in model.network.members:
        assert isinstance(network, CapsuleNetwork)  # noqa: S101 - as its constructor has it
        member = copy.copy(model)
        vars(member).pop("inferer", None)  # of the ensemble
        member.network = network
        members.append(member)
    return members


def unseen_by(model: Model, held_out: Sequence[Collection[str]]) -> dict[str, Model]:
    """Group, or image, -> the network of the model that was trained without it.

    Args:
        held_out: of each network what it has not seen.
    """
    pairs = zip(members_of(model), held_out, strict=False)
    return {name: member for member, names in pairs for name in names}


def notes_on_training(model: Model, dataset: Dataset | ClassifiedDataset) -> Iterator[str]:
    """What a reader should know of a model that may have learned from what it is scored on."""
    what = "data" if isinstance(dataset, Dataset) else "images"
    reference, own = model.bundle.reference, _data_of(model)
    learned = has_learned_from(model, dataset)
    if learned:
        yield (
            f"{reference} was trained on these {what}: scores on {what} that it has seen say "
            f"little about new {what}"
        )
    elif learned is None:
        yield (
            f"{reference} was trained with --data {own}, a relative path: if it led to these "
            f"{what}, scores on {what} that it has seen say little about new {what}"
        )


def has_learned_from(model: Model, dataset: Dataset | ClassifiedDataset) -> bool | None:
    """Whether a model was trained on these data, by their files or their path.

    Returns:
        None if only a relative path says so, as the same one may lead to other data.
    """
    own, files = _data_of(model), model.bundle.card.provenance.files_sha256
    if files and files == files_sha256(dataset.fingerprint()):
        return True
    paths = (as_text(str(Path(one).resolve())) for one in (dataset.data, dataset.root))
    if not own or str(Path(own).resolve()) not in paths:
        return False
    return Path(own).is_absolute() or None


def _data_of(model: Model) -> str:
    """What ``--data`` was; empty if the card does not say it."""
    return str(model.bundle.card.provenance.recipe.get("data") or "")


def find_models(
    repository: ModelRepository,
    reference: str,
    against: Sequence[str] = (),
    baselines: Mapping[str, Sequence[str]] = MappingProxyType({}),
    instances: Instances | None = None,
) -> list[Bundle]:
    """A model and those it is compared with; ``unet`` may stand for ``NAME-unet``.

    Args:
        baselines: networks that can be trained for comparison, by task.
        instances: what the ids of the data are taken as, if it is known.

    Raises:
        ModelNotFound: one is missing; for a baseline the message says how to train it.
        WrongTask: one has another task than the first.
        InvalidParameter: one is given twice.
        InvalidInput: their labels differ, or are numbered differently; or one tells exactly one
            class of each image, the other any number.
    """
    first = repository.find(reference)
    bundles = [first, *(_find_other(repository, first, other, baselines) for other in against)]
    for bundle in bundles:
        if bundle.card.task != first.card.task:
            raise WrongTask(
                f"{bundle.name} is a {bundle.card.task} model: models are compared with others of "
                f"their task, {first.card.task}"
            )
    refuse_twice([bundle.reference for bundle in bundles])
    for one, other in itertools.combinations(bundles, 2):
        if _tells_one(one) != _tells_one(other):
            raise InvalidInput(
                f"one of {one.reference} and {other.reference} gives exactly one class per image, "
                "the other any number, so their scores differ in meaning: compare models of one "
                "kind"
            )
        if not same_labels(one, other, instances):
            alike = ", or their foreground, with --binary" * same_labels(one, other, "binary")
            raise InvalidInput(
                f"{one.reference} knows the labels {list_labels(one.card.labels)}, but "
                f"{other.reference} {list_labels(other.card.labels)}: compare models with the same "
                f"labels{alike}"
            )
    return bundles


def refuse_twice(references: Sequence[str]) -> None:
    """Refuse models that are given twice, whose difference would be nothing.

    Raises:
        InvalidParameter: one is.
    """
    for number, reference in enumerate(references):
        if reference in references[:number]:
            raise InvalidParameter(f"models: {reference} is given twice; leave one out")


def _tells_one(bundle: Bundle) -> bool:
    """Whether a classification model tells exactly one class of each image."""
    spec = bundle.card.classification
    return spec is not None and spec.exclusive


def same_labels(one: Bundle, other: Bundle, instances: Instances | None = None) -> bool:
    """Whether two models have the same labels, so that their answers may be compared.

    Those of label maps are matched by number: a name must not have another number. Models of
    classes, whose answers are no label maps, have the same names in the same order.

    Args:
        one, other: the models.
        instances: see `labels_of`.
    """
    labels, others = (labels_of(each.card, instances) for each in (one, other))
    if one.card.classification:
        return list(labels.values()) == list(others.values())
    ids = {same_name(name): i for i, name in labels.items()}
    return list(labels) == list(others) and all(
        ids.get(same_name(name), i) == i for i, name in others.items()
    )


def list_labels(labels: Mapping[int, str]) -> str:
    """``0 background, 1 axon``."""
    return ", ".join(f"{i} {name}" for i, name in labels.items())


def _find_other(
    repository: ModelRepository, first: Bundle, name: str, baselines: Mapping[str, Sequence[str]]
) -> Bundle:
    plain, known = name.partition("@")[0], repository.names()
    suffixed = f"{first.name}-{plain}"
    if plain not in known and suffixed in known:
        return repository.find(f"{first.name}-{name}")
    task = first.card.task
    if plain in baselines.get(task, ()) and plain not in known:
        raise ModelNotFound(
            f"no model {plain!r} or {suffixed!r}; to train it: caps-med train {task} "
            f"--data DIR --name {suffixed} --network {plain}"
        )
    return repository.find(name)
