"""Values that no training can have are refused before it begins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from caps_med.errors import InvalidParameter
from caps_med.networks import SegmentationNetwork, build_network
from training.engine.recipe import Recipe, validated
from training.engine.run_folder import RunFolder
from training.tasks.classification.recipe import ClassificationRecipe
from training.tasks.segmentation import SegmentationRecipe, loss_of
from training.tasks.synthesis.recipe import SynthesisRecipe

BASE = {"data": "x", "seed": 0}


#: Reads the recipe of a run.
_READ = """
import sys
from pathlib import Path
from training.engine.run_folder import RunFolder
from training.tasks.segmentation import SegmentationRecipe

sys.exit(RunFolder(Path(sys.argv[1])).read_recipe(SegmentationRecipe).data != "dat\\xe9n")
"""


def test_a_recipe_is_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    """A path with accents looked like a changed recipe, so that the run was not resumed."""
    recipe = validated(SegmentationRecipe, {**BASE, "data": "dat\xe9n"})
    RunFolder(tmp_path).write(recipe)
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", _READ, str(tmp_path)]
    subprocess.run(command, env={**os.environ, **ascii_only}, check=True)


@pytest.mark.parametrize("kind", [SegmentationRecipe, SynthesisRecipe, ClassificationRecipe])
@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("epochs", 0, "epochs: .* 1"),
        ("steps", -1, "steps: "),
        ("batch_size", 0, "batch_size: .* 1"),
        ("seed", -1, "seed: .* 0"),
        ("seed", 2**32, "seed: .* less than 2147483648"),
        ("learning_rate", -1.0, "learning_rate: must be a number above 0, or auto"),
        ("learning_rate", float("nan"), "learning_rate: must be"),
        ("learning_rate", float("inf"), "learning_rate: must be"),
        ("network", ["capsnet"], "network: Input should be"),
    ],
)
def test_of_every_task(kind: type[Recipe], name: str, value: object, what: str) -> None:
    with pytest.raises(InvalidParameter, match=f"recipe: {what}"):
        validated(kind, {**BASE, name: value})


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (SegmentationRecipe, {"foreground": 2}),
        (SegmentationRecipe, {"class_weights": [1, -1]}),
        (SynthesisRecipe, {"average": 1}),
        (SynthesisRecipe, {"free": 1.5}),
        (SynthesisRecipe, {"l1_weight": float("nan")}),
    ],
)
def test_of_one_task(kind: type[Recipe], values: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match=f"recipe: {next(iter(values))}"):
        validated(kind, {**BASE, **values})


def test_there_is_a_weight_for_each_class() -> None:
    network = build_network("SegCaps", {"atoms": 4, "out_channels": 3})
    assert isinstance(network, SegmentationNetwork)
    values = {**BASE, "loss": "weighted_bce", "class_weights": (1, 2)}
    recipe = SegmentationRecipe.model_validate(values)
    with pytest.raises(InvalidParameter, match="class_weights: 2 for 3 classes; give one each"):
        loss_of(recipe, network)
    plain = recipe.model_copy(update={"loss": "dice_ce"})  # which has none
    assert loss_of(plain, network) is not None
