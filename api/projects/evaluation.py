"""Dice of a model on the held-out images of a project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from api.engine import Engine, Segment
from api.projects.annotations import Annotations
from api.projects.images import ProjectImages
from api.projects.records import Image, Project
from api.projects.retrying import retry_while_full
from training.data.reading import unlabelled
from training.evaluation.dice import dice
from training.evaluation.statistics import spread_of
from training.rounding import rounded

#: The mean over the labels, beside the names of these.
MEAN = "mean"


@dataclass(frozen=True)
class Scores:
    """Dice of a model on held-out images.

    Attributes:
        cases: of each image, label name -> Dice; a label in neither map has none.
        groups: the patient or volume of each image, or the image itself.
    """

    cases: Sequence[Mapping[str, float]]
    groups: Sequence[str]

    @property
    def mean(self) -> float:
        """Mean over the images of the mean over their labels; 1 if no image has labels."""
        means = [sum(case.values()) / len(case) for case in self.cases if case]
        return sum(means) / len(means) if means else 1.0

    def as_dict(self, seed: int) -> dict[str, Any]:
        """Label name -> mean and 95 % interval (over the groups), for JSON.

        Args:
            seed: of the intervals.
        """
        scored = [
            (group, {**case, MEAN: sum(case.values()) / len(case)})
            for group, case in zip(self.groups, self.cases, strict=True)
            if case
        ]
        if not scored:
            return {}
        names = dict.fromkeys(name for case in self.cases for name in case)
        return {
            name: _spread([(group, case[name]) for group, case in scored if name in case], seed)
            for name in (*names, MEAN)
        }


def _spread(scored: Sequence[tuple[str, float]], seed: int) -> dict[str, float | None]:
    groups, values = zip(*scored, strict=True)
    found = spread_of(values, groups, seed)
    low, high = (None, None) if found is None or found.interval is None else found.interval
    return {"mean": rounded(sum(values) / len(values)), "low": low, "high": high}


async def scores_of(
    engine: Engine,
    images: ProjectImages,
    annotations: Annotations,
    project: Project,
    reference: str,
    held_out: Mapping[str, Sequence[Image]],
) -> Scores:
    """Segment the held-out images and compare with their corrected label maps.

    Args:
        reference: ``name@version`` of the model.
        held_out: the images by their group.

    Raises:
        CapsMedError: the model is gone, or an image does not suit it.
        Refusal: an image has been deleted.
    """

    async def case(image: Image) -> dict[str, float]:
        model = await engine.load(reference)
        decoded = await images.decoded(image, model)
        answer = await engine.predict(model, Segment(decoded))
        found = answer.array

        def scored() -> dict[str, float]:
            truth = annotations.read(image, annotations.label(image))
            labelled = ~unlabelled(truth, project.ignore_label)
            scores = {
                name: dice((found == i) & labelled, truth.array == i)
                for i, name in project.foreground.items()
            }
            return {name: score for name, score in scores.items() if score is not None}

        return await engine.run("evaluate", scored)

    cases, groups = [], []
    for group, images_of_it in held_out.items():
        for image in images_of_it:
            cases.append(await retry_while_full(engine, partial(case, image)))
            groups.append(group)
    return Scores(cases, groups)


def compared(base: str, before: Scores, model: str, after: Scores) -> tuple[bool, str]:
    """Whether a new model takes the place of the one before: if its mean Dice is not lower.

    It does not if there is nothing to compare them on.
    """
    count = len(after.cases)
    if not count:
        return (
            False,
            f"no held-out image is left to compare {model} with {base}, which stays in use",
        )
    images = f"{count} held-out image{'s' if count != 1 else ''}"
    numbers = f"mean Dice {after.mean:.3f}, before {before.mean:.3f}"
    if after.mean >= before.mean:
        return True, f"{model} is not worse than {base} on {images}: {numbers}"
    return False, f"{model} is worse than {base} on {images}, so {base} stays in use: {numbers}"
