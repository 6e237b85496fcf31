"""Every part that knows the tasks knows the same ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from api.jobs.tasks import TASKS as JOB_OPTIONS
from caps_med.bundles.tasks import TASKS as TRAITS
from caps_med.inference.inferers import INFERERS
from caps_med.registries import Registry
from training.tasks.opening import OPENINGS
from training.tasks.registry import TASKS

KNOWN = tuple(TRAITS.builtin)


@pytest.mark.parametrize("registry", [TRAITS, INFERERS, OPENINGS, TASKS, JOB_OPTIONS])
def test_a_task_is_registered_everywhere(registry: Registry[object]) -> None:
    assert tuple(registry.builtin) == KNOWN


def test_the_page_knows_the_tasks() -> None:
    source = Path(__file__).parent.parent / "api" / "web" / "src" / "tasks.ts"
    assert tuple(re.findall(r"^  (\w+): \{$", source.read_text(), re.MULTILINE)) == KNOWN


@pytest.mark.parametrize("task", KNOWN)
def test_what_a_task_says_of_itself_agrees(task: str) -> None:
    recipe, inferer = TASKS[task].recipe, INFERERS[task]
    assert recipe.task == inferer.task == task
    assert (inferer.reads == "image") == (TRAITS[task].takes.format == "magnitude")
    assert set(JOB_OPTIONS[task].choices["network"]) == set(TASKS[task].networks)
