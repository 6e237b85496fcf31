"""The learning rate from step to step."""

from __future__ import annotations

import pytest
import torch

from training.engine.loop import schedule
from training.tasks.classification.recipe import ClassificationRecipe


def rates(**values: object) -> list[float]:
    """Of four epochs of five steps, from a peak of 1."""
    settings = {"data": "", "seed": 0, "epochs": 4, "steps": 5, "learning_rate": 1.0, **values}
    recipe = ClassificationRecipe.model_validate(settings)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], recipe.rate)
    steps, found = schedule(optimizer, recipe), []
    for _ in range(recipe.epochs * recipe.steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        steps.step()
    return found


def test_exponential_falls_after_each_epoch() -> None:
    found = rates(schedule="exponential")
    assert found == pytest.approx([0.9**epoch for epoch in range(4) for _ in range(5)])
    assert rates(schedule="exponential", decay=0.5)[-1] == 0.125


def test_cosine_rises_and_falls() -> None:
    found = rates()
    peak = found.index(max(found))
    assert max(found) == 1 and 0 < peak < 3
    assert found[peak:] == sorted(found[peak:], reverse=True) and 0.01 <= found[-1] < 0.05
