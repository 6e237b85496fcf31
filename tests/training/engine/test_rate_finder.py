"""A learning rate from a range test: where it lies, that it is kept, and by every task."""

from __future__ import annotations

import csv
import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from rich.console import Console
from typer.testing import CliRunner

from caps_med.bundles import ModelRepository
from caps_med.errors import InvalidParameter
from tests.training.data.classified_files import digits, idx
from training.cli.train import train as train_app
from training.data import Source, load_source, open_dataset
from training.engine import collapse, rate_finder
from training.engine.rate_finder import FEWEST, HIGHEST, LOWEST, MARGIN, chosen_rate, steps_of
from training.engine.run_folder import RunFolder
from training.tasks.opening import Understanding, open_data
from training.tasks.pipeline import TrainRequest, train
from training.tasks.segmentation import SegmentationRecipe, train_segmentation

TINY = {"epochs": 1, "steps": 2, "batch_size": 1, "crop": 32, "atoms": 1, "seed": 3}


@pytest.fixture(scope="module")
def source(discs: Path, tmp_path_factory: pytest.TempPathFactory) -> Source:
    return load_source(open_dataset(discs), tmp_path_factory.mktemp("store"))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_finder, "FEWEST", 8)


def recipe(**changes: object) -> SegmentationRecipe:
    return SegmentationRecipe.model_validate(
        {"data": "discs", **TINY, "learning_rate": "auto", **changes}
    )


def weights(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([one.flatten() for one in network.state_dict().values()])


def test_the_rate_lies_a_margin_below_the_one_with_the_lowest_loss() -> None:
    """A bowl with noise: between two batches losses differ more than between two rates."""
    rates = [10 ** (-5 + 5 * i / 99) for i in range(100)]
    generator = torch.Generator().manual_seed(0)
    noise = (0.1 * torch.randn(100, generator=generator)).tolist()
    losses = [(math.log10(r) + 2) ** 2 + n for r, n in zip(rates, noise, strict=True)]
    assert chosen_rate(rates, losses) == pytest.approx(1e-2 / MARGIN, rel=0.3)


@pytest.mark.parametrize("losses", [[], [1.0], [1.0, 1.1, 1.2, 1.3] * 5, list(range(40))])
def test_a_loss_that_does_not_fall_is_told(losses: list[float]) -> None:
    losses = sorted(losses)
    rates = [10.0 ** -(5 - i / 10) for i in range(len(losses))]
    with pytest.raises(InvalidParameter, match="auto: no rate from 1e-05 to 1 makes the loss"):
        chosen_rate(rates, losses)


def test_a_fifth_of_the_steps_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_finder, "FEWEST", FEWEST)
    steps = [steps_of(recipe(epochs=1, steps=count)) for count in (5, 300, 5000)]
    assert steps == [40, 60, 100]


def test_a_found_rate_trains_as_if_it_were_given_and_a_resumed_run_does_not_look_again(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "found")
    found, _ = train_segmentation(source, recipe(), folder, resume=False)
    saved = folder.read_recipe(SegmentationRecipe)
    assert LOWEST / MARGIN <= saved.rate <= HIGHEST / MARGIN
    again = RunFolder(tmp_path / "again")
    train_segmentation(source, recipe(), again, resume=False)
    assert again.read_recipe(SegmentationRecipe) == saved
    given, _ = train_segmentation(source, saved, RunFolder(tmp_path / "given"), resume=False)
    assert torch.equal(weights(found), weights(given))
    with folder.rates.open() as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == ["learning_rate", "loss", "smoothed_loss"]
    assert float(rows[0]["learning_rate"]) == pytest.approx(LOWEST) and len(rows) <= 8
    assert folder.rates_plot.read_bytes()[:4] == b"\x89PNG"
    lines = (folder.path / "progress.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["phase"] == "finding the learning rate"

    monkeypatch.setattr(rate_finder, "range_test", None)
    kept = folder.saved(SegmentationRecipe, {"learning_rate": "auto", "seed": 3})
    assert kept == saved
    train_segmentation(source, kept, folder, resume=True)
    given_folder = RunFolder(tmp_path / "given")
    with pytest.raises(InvalidParameter, match=r"another recipe \(learning_rate: .* -> auto\)"):
        given_folder.saved(SegmentationRecipe, {"learning_rate": "auto"})


def test_ctrl_c_ends_it_between_two_steps(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []

    def press(_: object, engine: Engine) -> None:
        signal.raise_signal(signal.SIGINT)
        done.append(engine.state.iteration)

    monkeypatch.setattr(rate_finder._Shown, "report", press)
    with pytest.raises(KeyboardInterrupt):
        train_segmentation(source, recipe(), RunFolder(tmp_path), resume=False)
    assert done == [1]


def test_a_test_without_end_stops_where_the_loss_is_no_number(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_finder, "HIGHEST", 1e30)
    folder = RunFolder(tmp_path / "run")
    train_segmentation(source, recipe(), folder, resume=False)
    assert 3 <= len(folder.rates.read_text().splitlines()) - 1 < 8


def test_memory_that_runs_out_while_looking_halves_the_batch(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []

    def crowded(trainer: object, run: object) -> tuple[list[float], list[float]]:
        looked.append(run.recipe.batch_size)  # type: ignore[attr-defined]
        if len(looked) == 1:
            raise MemoryError
        return [1e-4, 1e-3, 1e-2, 1e-1], [3.0, 2.0, 1.0, 2.0]

    monkeypatch.setattr(rate_finder, "range_test", crowded)
    folder = RunFolder(tmp_path / "run")
    chosen = recipe(batch_size=2, network="convcaps-plain")
    train_segmentation(source, chosen, folder, resume=False)
    saved = folder.read_recipe(SegmentationRecipe)
    assert looked == [2, 1]
    assert (saved.batch_size, saved.learning_rate) == (1, 1e-2 / MARGIN)


@pytest.mark.parametrize("task", ["synthesis", "classification"])
def test_the_other_tasks_find_their_rate_and_the_model_says_it(
    task: str, discs: Path, tmp_path: Path
) -> None:
    values: dict[str, Any] = {"epochs": 1, "steps": 2, "seed": 0, "learning_rate": "auto"}
    if task == "synthesis":
        data, small = discs, {"crop": 64, "atoms": 1, "discriminator_width": 8, "batch_size": 1}
    else:
        data, small = tmp_path / "digits", {"batch_size": 8}
        data.mkdir()
        idx(data, digits(60), digits(10, start=60))
    dataset = open_data(task, str(data), Understanding())
    request = TrainRequest(
        task, dataset, task, {**values, **small}, models=tmp_path / "models", runs=tmp_path
    )
    bundle = train(request, Console(quiet=True))
    assert bundle is not None
    saved = json.loads(request.first_folder.recipe.read_text())
    assert isinstance(saved["learning_rate"], float)
    assert bundle.card.provenance.recipe == saved


@pytest.mark.parametrize("given", ["fast", "0", "nan", "inf", "-1"])
def test_what_is_no_rate_is_refused_by_the_command(given: str) -> None:
    arguments = ["segmentation", "--data=x", "--name=x", f"--learning-rate={given}"]
    answer = CliRunner().invoke(train_app, arguments)
    assert answer.exit_code == 2
    told = " ".join(answer.output.replace("│", " ").split())
    assert "must be auto or a number of at least 1e-7" in told


def test_the_command_takes_auto(discs: Path, tmp_path: Path) -> None:
    """A cross-validation: each fold finds its own rate, the model says the first one's."""
    arguments = [
        "segmentation", f"--data={discs}", "--name=folds", "--learning-rate=auto", "--folds=2",
        "--set=batch_size=1", "--set=crop=32", "--atoms=1", "--epochs=1", "--steps=2",
        f"--models={tmp_path / 'models'}", f"--runs={tmp_path}",
    ]  # fmt: skip
    answer = CliRunner().invoke(train_app, arguments)
    assert answer.exit_code == 0, answer.output
    rates = [
        json.loads((tmp_path / "folds" / f"fold-{number}" / "recipe.json").read_text())
        for number in (1, 2)
    ]
    assert all(isinstance(each["learning_rate"], float) for each in rates)
    card = ModelRepository(tmp_path / "models").find("folds").card
    assert card.provenance.recipe == rates[0]


def test_a_restarted_training_is_published_as_what_it_became(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SegCaps starts again with normalized votes: another network than the one of the plan."""
    monkeypatch.setattr(collapse, "MIN_STEPS", 1)
    monkeypatch.setattr(
        collapse.CollapseWatch, "collapsed", lambda self, step, *_: step == self.deadline
    )
    data, models = open_dataset(discs), tmp_path / "models"
    given = {**TINY, "network": "segcaps", "steps": 5, "atoms": 2}
    request = TrainRequest(
        "segmentation", data, "restarted", given, models=models, runs=tmp_path / "runs"
    )
    bundle = train(request, Console(quiet=True))
    assert bundle is not None
    assert bundle.card.network.arguments["normalize"] is True
    assert bundle.card.provenance.recipe["restarts"] == 2
    ModelRepository(models).find("restarted").load_network()
