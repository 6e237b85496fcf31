"""Measures how answers of classification models change, alone or against one another."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.inference import Model
from caps_med.inference.passes import device_of
from caps_med.networks import ClassificationNetwork
from training.data.classified import ClassifiedDataset
from training.evaluation.calibration import Floats
from training.evaluation.classification.evaluate import (
    Difference,
    check_classes,
    confidence_notes,
    inputs_of,
    targets_of,
)
from training.evaluation.robustness import attacks
from training.evaluation.robustness.attacks import Attack, gradient, wanted_classes
from training.evaluation.robustness.families import FAMILIES
from training.evaluation.robustness.predictions import predicted
from training.evaluation.robustness.summary import (
    AttackRates,
    Curve,
    ModelRobustness,
    RobustnessSummary,
)
from training.evaluation.robustness.votes import routes, votes_count_alike
from training.evaluation.statistics import (
    ENOUGH_ANSWERS,
    Estimate,
    estimate,
    independent,
    resamples,
    verdict_of,
)
from training.progress import tracked

#: Images unless another number is given, and largest changes of a pixel.
IMAGES, EPSILONS = 200, (0.02, 0.05, 0.1, 0.2)
#: Name -> attack. `VOTES` is PGD for networks that route; PGD is also tried as a black box.
ATTACKS: Mapping[str, Attack] = {
    "FGSM": attacks.FGSM,
    "targeted FGSM": attacks.FGSM_TARGETED,
    "BIM": attacks.BIM,
    "PGD": attacks.PGD,
}
VOTES = "PGD on votes"


class Trial(NamedTuple):
    """A family or an attack by its name, and the model that an attack is made for, by its number.

    None is the attacked model itself.
    """

    name: str
    source: int | None = None


CLEAN = Trial("clean")


@dataclass
class _Subject:
    """One model with the images as it takes them.

    Attributes:
        pictures: ``[N, C, H, W]`` in [0, 1].
        classes: ``[N]``.
        found: of a family right answers ``[strengths, N]``, of an attack where it succeeds
            ``[ε, N]``.
    """

    model: Model
    pictures: Tensor
    classes: Tensor
    found: dict[Trial, Floats] = field(default_factory=dict)

    @property
    def network(self) -> ClassificationNetwork:
        return self.model.classifier.network

    def right(self, pictures: Tensor) -> Floats:
        """``[N]``, 1 where the answer is the class."""
        found: Floats = (predicted(self.network, pictures) == self.classes).double().cpu().numpy()
        return found


def evaluate_robustness(
    dataset: ClassifiedDataset,
    models: Sequence[Model],
    images: int = IMAGES,
    seed: int = 0,
) -> RobustnessSummary:
    """Perturb the images of a data set's test part, or of all of it, and classify them again.

    All models get the same changes. Attacks are tried on images that are answered right.

    Args:
        models: of the same classes, exactly one of which each image belongs to.
        images: at most so many are taken, at random.
        seed: of that choice, of all changes and of the bootstrap.

    Raises:
        InvalidInput: there are no images, one cannot be read, its class is none of the models', or
            it has several or none.
        InvalidParameter: an image may belong to several classes.
    """
    for model in models:
        if not model.classifier.spec.exclusive:
            raise InvalidParameter(
                f"--robust: {model.bundle.reference} may find several classes in an image; leave "
                "--robust out, or train on data of exclusive classes"
            )
    subjects, groups = _subjects(dataset, models, images, seed)
    weights = resamples(groups, seed)
    for subject in subjects:
        subject.found[CLEAN] = subject.right(subject.pictures)[None]
    for subject, trial in tracked(
        list(itertools.product(subjects, _trials(subjects))), "changing and attacking"
    ):
        found = _tried(subject, subjects, trial, seed)
        if found is not None:
            subject.found[trial] = found
    return RobustnessSummary(
        data=dataset.name,
        cases=len(groups),
        models=tuple(model.bundle.reference for model in models),
        seed=seed,
        notes=(*confidence_notes(groups), *_notes(subjects)),
        epsilons=EPSILONS,
        scores=tuple(_scores(subject, subjects, weights) for subject in subjects),
        comparisons=tuple(_differences(subjects, weights, groups)),
    )


def _trials(subjects: Sequence[_Subject]) -> list[Trial]:
    """Everything that is tried on a model."""
    others = [Trial("PGD", k) for k in range(len(subjects))] if len(subjects) > 1 else []
    return [*map(Trial, (*FAMILIES, *ATTACKS, VOTES)), *others]


def _tried(
    subject: _Subject, subjects: Sequence[_Subject], trial: Trial, seed: int
) -> Floats | None:
    """What a trial finds; None where it does not apply to the model."""
    name, number = trial
    if name in FAMILIES:
        return _changed(subject, name, seed)
    if name == VOTES:
        on_votes = replace(attacks.PGD, bypass=votes_count_alike)
        return _attacked(subject, subject, on_votes, seed) if routes(subject.network) else None
    source = subject if number is None else subjects[number]
    own = number is not None and source is subject
    if own or source.pictures.shape != subject.pictures.shape:
        return None
    return _attacked(subject, source, ATTACKS[name], seed)


def _subjects(
    dataset: ClassifiedDataset, models: Sequence[Model], most: int, seed: int
) -> tuple[list[_Subject], list[str]]:
    """The models with the images chosen, and the group of each image."""
    images = dataset.of("test") or dataset.images
    if dataset.error or not images:
        raise InvalidInput(dataset.error or f"{dataset.root}: contains no images with classes")
    order = np.random.default_rng(seed).permutation(len(images))[:most]
    chosen = [images[k] for k in sorted(order)]
    check_classes(chosen, models)
    names = list(models[0].bundle.card.labels.values())
    classes = torch.from_numpy(targets_of(dataset, chosen, names).argmax(1))
    inputs = [inputs_of(models, dataset, image) for image in chosen]
    found = []
    for model, pictures in zip(models, zip(*inputs, strict=True), strict=True):
        device = device_of(model.classifier.network)
        found.append(_Subject(model, torch.cat(pictures).to(device), classes.to(device)))
    return found, [image.group for image in chosen]


def _changed(subject: _Subject, name: str, seed: int) -> Floats:
    """Right answers ``[strengths, N]`` to a family's changes, the same for every model."""
    family, number = FAMILIES[name], list(FAMILIES).index(name)
    found = []
    for strength in family.strengths:
        draw = np.random.default_rng([seed, number])
        changed = family.change(subject.pictures, subject.classes, strength, draw)
        found.append(subject.right(changed))
    return np.stack(found)


def _attacked(subject: _Subject, source: _Subject, attack: Attack, seed: int) -> Floats:
    """Where an attack made for `source` succeeds on `subject` ``[ε, N]``; NaN where not tried.

    With random starts, a picture that a smaller change fools is not tried again: larger changes
    include that one.
    """
    tried = np.flatnonzero(subject.found[CLEAN][0])
    generator = torch.Generator().manual_seed(seed)
    goal = subject.classes
    if attack.targeted:
        goal = wanted_classes(goal, subject.network.out_channels, generator)
    found = np.full((len(EPSILONS), len(subject.classes)), np.nan)
    for number, epsilon in enumerate(EPSILONS):
        found[number, tried] = 0
        left = tried
        if attack.restarts and number:
            found[number, tried] = found[number - 1, tried]
            left = tried[found[number, tried] == 0]
        if not len(left):
            continue
        at = torch.from_numpy(left).to(goal.device)
        changed = attack(source.network, source.pictures[at], goal[at], epsilon, generator)
        found[number, left] = attack.succeeds(subject.network, changed, goal[at]).cpu().numpy()
    return found


def _scores(subject: _Subject, subjects: Sequence[_Subject], weights: Floats) -> ModelRobustness:
    zero, size = _gradients(subject)
    return ModelRobustness(
        model=subject.model.bundle.reference,
        parameters=sum(p.numel() for p in subject.network.parameters()),
        accuracy=estimate(_share(subject.found[CLEAN], weights)[0]),
        curves=tuple(_curve(name, subject.found[Trial(name)], weights) for name in FAMILIES),
        attacks=tuple(
            _rates(trial, found, subjects, weights)
            for trial, found in subject.found.items()
            if _is_attack(trial)
        ),
        zero_gradients=zero,
        gradient_size=size,
    )


def _curve(name: str, found: Floats, weights: Floats) -> Curve:
    family, shares = FAMILIES[name], _share(found, weights)
    return Curve(
        name=name,
        unit=family.unit,
        strengths=family.strengths,
        accuracy=tuple(map(estimate, shares)),
        mean=estimate(shares.mean(0)),
    )


def _is_attack(trial: Trial) -> bool:
    return trial != CLEAN and trial.name not in FAMILIES


def _rates(
    trial: Trial, found: Floats, subjects: Sequence[_Subject], weights: Floats
) -> AttackRates:
    shares, source = _share(found, weights), trial.source
    return AttackRates(
        name=trial.name,
        source="" if source is None else subjects[source].model.bundle.reference,
        images=int(np.isfinite(found[0]).sum()),
        rates=tuple(map(estimate, shares)),
        mean=estimate(shares.mean(0)),
    )


def _share(found: Floats, weights: Floats) -> Floats:
    """``[rows, N]`` as weighted means ``[rows, R]`` over what is not NaN."""
    there = np.isfinite(found)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(there, found, 0) @ weights.T / (there @ weights.T))


def _gradients(subject: _Subject) -> tuple[float | None, float | None]:
    """See `ModelRobustness`."""
    right = torch.from_numpy(subject.found[CLEAN][0] > 0).to(subject.classes.device)
    if not right.any():
        return None, None
    pictures, classes = subject.pictures[right], subject.classes[right]
    slopes = torch.cat(
        [
            gradient(subject.network, x, c)
            for x, c in zip(
                pictures.split(attacks.BATCH), classes.split(attacks.BATCH), strict=True
            )
        ]
    )
    size = slopes.abs().flatten(1).mean(1).median().item()
    return (slopes == 0).double().mean().item(), size


def _differences(
    subjects: Sequence[_Subject], weights: Floats, groups: Sequence[str]
) -> Iterable[Difference]:
    """Of the means, on the same resamples; attacks on the images that both answer right."""
    first, *others = subjects
    for other in others:
        for trial, found in first.found.items():
            theirs = other.found.get(trial)
            if theirs is None:
                continue
            both = np.isfinite(found) & np.isfinite(theirs)
            pair = [np.where(both, each, np.nan) for each in (found, theirs)]
            ours, against = (_share(each, weights).mean(0) for each in pair)
            difference: Estimate = estimate(ours - against, (-1, 1))
            there = independent([*itertools.compress(groups, both[0])])
            source = None if trial.source is None else subjects[trial.source]
            made_for = "" if source is None else f" from {source.model.bundle.reference}"
            yield Difference(
                against=other.model.bundle.reference,
                metric="accuracy" if trial == CLEAN else trial.name + made_for,
                difference=difference,
                verdict=verdict_of(
                    difference.interval, there, not _is_attack(trial), ENOUGH_ANSWERS
                ),
            )


def _notes(subjects: Sequence[_Subject]) -> Iterable[str]:
    for subject in subjects:
        name = subject.model.bundle.reference
        if not subject.found[CLEAN].any():
            yield f"{name} answers no image right: no attack was tried"
        if subject.pictures.shape != subjects[0].pictures.shape:
            yield f"{name} takes pictures of another shape: it is no black box for others"
