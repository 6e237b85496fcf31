"""A task of another package, through every face of the program; see ``pyproject.toml`` beside."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import typer
from fastapi.testclient import TestClient
from monai.bundle import ConfigParser
from typer.testing import CliRunner, Result

import caps_med
from api.app import create_app
from api.jobs.check import inspect
from api.jobs.job import Options
from api.settings import Settings
from caps_med.bundles import ModelRepository
from caps_med.cli import models
from caps_med.errors import InvalidBundle, InvalidPlugin, WrongTask
from caps_med.networks import CapsuleNetwork, build_network
from caps_med.networks.single import build_from
from caps_med.plugins import add_plugins
from caps_med.registries import Registry
from tests.fourth_task.package import HERE, install, write_images
from training.cli.train import train

ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with images of discs in ``data``, the package installed, a model trained."""
    folder = tmp_path_factory.mktemp("counting")
    install(HERE, folder / "site-packages")
    write_images(folder / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder / "site-packages"))
        patch.syspath_prepend(str(HERE))
        patch.chdir(folder)
        patch.setenv("CAPS_MED_MODELS", str(folder / "models"))
        yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "counting"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def caps_med_command(workplace: Path) -> Iterator[typer.Typer]:
    command = typer.Typer()
    models.register(command)
    add_plugins(command)
    yield command
    train.registered_commands = [c for c in train.registered_commands if c.name != "counting"]


def run(command: typer.Typer, *arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(command, list(map(str, arguments)))


@pytest.fixture(scope="module")
def trained(caps_med_command: typer.Typer, workplace: Path) -> str:
    """What the training printed."""
    options = ("--data", "data", "--name", "cells", "--epochs", 12, "--seed", 1)
    done = run(caps_med_command, "train", "counting", *options)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_check_of_data_knows_its_layout(caps_med_command: typer.Typer, workplace: Path) -> None:
    found = run(caps_med_command, "data", "check", "data")
    assert found.exit_code == 0, found.output
    assert "images listed in counts.csv" in found.output
    assert re.search(r"most +│ 5\b", found.output)


def test_the_check_of_data_names_what_is_wrong(
    caps_med_command: typer.Typer, workplace: Path, tmp_path: Path
) -> None:
    write_images(tmp_path / "bad", 4)
    with (tmp_path / "bad" / "counts.csv").open("a") as file:
        file.write("9.png,2\n1.png,many\n")
    found = run(caps_med_command, "data", "check", tmp_path / "bad")
    assert found.exit_code == 1 and "2 errors" in found.output
    assert "'many': must be a whole number" in found.output


def test_training_publishes_a_bundle_that_is_read_again(trained: str, workplace: Path) -> None:
    assert "cells@1: held-out mean absolute error" in trained
    model = caps_med.load_model("cells")
    assert (model.task, model.reads) == ("counting", "image")
    assert repr(model) == "<Model cells@1: counting, CountingNetwork>"
    assert "grey 24x24 pixels" in model.provenance.preprocessing
    described = json.loads((model.bundle.path / "configs" / "metadata.json").read_text())
    assert described["network_data_format"]["outputs"]["pred"]["channel_def"] == {"0": "cells"}
    assert described["caps_med"]["details"]["largest"] == 5


def test_a_model_is_called(trained: str, workplace: Path) -> None:
    model = caps_med.load_model("cells")
    none, five = (model(workplace / "data" / f"{n}.png").number for n in (0, 5))
    assert five > none + 2
    lengths = model.features(workplace / "data" / "5.png", layer="primarycaps")
    assert lengths.layers["primarycaps"].shape == (4, 4, 10, 10)
    with pytest.raises(WrongTask, match="cells is a counting model"):
        model.segment(workplace / "data" / "0.png")


def test_monai_builds_its_network(trained: str, workplace: Path) -> None:
    model = caps_med.load_model("cells")
    parser = ConfigParser()
    parser.read_config(model.bundle.path / "configs" / "inference.json")
    network = parser.get_parsed_content("network_def")
    assert isinstance(network, CapsuleNetwork) and type(network) is type(model.network)


def test_models_are_listed_and_shown(
    caps_med_command: typer.Typer, trained: str, workplace: Path
) -> None:
    assert "counting" in run(caps_med_command, "models", "list").output
    shown = run(caps_med_command, "models", "show", "cells").output
    assert "labels: 0 cells" in shown and "primarycaps" in shown


def test_its_own_command_answers(
    caps_med_command: typer.Typer, trained: str, workplace: Path
) -> None:
    said = run(caps_med_command, "count", "data/5.png", "--model", "cells")
    assert said.exit_code == 0, said.output
    assert json.loads(said.output)["number"] == pytest.approx(
        caps_med.load_model("cells")("data/5.png").number
    )


def test_it_is_evaluated(caps_med_command: typer.Typer, trained: str, workplace: Path) -> None:
    options = ("--model", "cells", "--data", "data", "--out", "report", "--json")
    said = run(caps_med_command, "evaluate", *options)
    assert said.exit_code == 0, said.output
    assert json.loads(said.output)["mean_absolute_error"]["cells"] < 1.5
    assert (workplace / "report" / "summary.json").exists()


def test_the_service_answers_and_lists_it(trained: str, workplace: Path) -> None:
    content = (workplace / "data" / "5.png").read_bytes()
    settings = Settings(
        models=workplace / "models", jobs_folder=workplace / "jobs", preload=("cells",)
    )
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        answer = client.post("/v1/models/cells/count", files={"image": content})
        assert answer.status_code == 200, answer.text
        assert answer.headers["Caps-Med-Model"] == "cells"
        assert answer.json()["number"] == pytest.approx(
            caps_med.load_model("cells")(content).number
        )
        refused = client.post("/v1/models/cells/segment", files={"image": content})
        assert refused.json()["code"] == "wrong_task"
        listed = {one["name"]: one for one in client.get("/v1/models").json()["models"]}
        assert (listed["cells"]["task"], listed["cells"]["takes"]) == ("counting", "image")
        assert client.get("/v1/models/cells").json()["layers"][-1]["name"] == "primarycaps"
        assert client.get("/v1/training-jobs").json()["networks"]["counting"] == ["counting"]
        form = {"task": "weighing", "name": "a", "data": "mni152"}
        unknown = client.post("/v1/training-jobs", data=form)
        assert "segmentation, synthesis, classification, counting" in unknown.json()["detail"]


def test_the_service_checks_its_data(workplace: Path) -> None:
    assert inspect(workplace / "data", "counting", Options())["count"] == 0


def test_without_the_package_its_models_are_refused(
    trained: str, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [one for one in sys.path if "counting" not in one])
    with pytest.raises(InvalidBundle, match="must be one of segmentation, synthesis, class"):
        _ = ModelRepository(workplace / "models").find("cells").card


def test_a_package_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = '[project]\nname = "broken"\nversion = "1"\n[project.entry-points."caps_med.x"]\n'
    (tmp_path / "pyproject.toml").write_text(f'{project}weights = "nowhere:WEIGHTS"\nown = "a:b"\n')
    install(tmp_path, tmp_path / "site-packages")
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    registry = Registry("caps_med.x", {"own": 1})
    assert list(registry) == ["own", "weights"] and registry["own"] == 1
    with pytest.raises(InvalidPlugin, match=r"nowhere:WEIGHTS cannot be imported .* broken"):
        _ = registry["weights"]


def test_a_package_whose_commands_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = '[project.entry-points."caps_med.commands"]\nweigh = "nowhere:register"\n'
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "broken"\nversion = "1"\n{commands}'
    )
    install(tmp_path, tmp_path / "site-packages")
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    with pytest.raises(InvalidPlugin, match=r"nowhere:register cannot be imported .* broken"):
        add_plugins(typer.Typer())


@pytest.mark.parametrize("name", ["AddedNet", "AddedEnsemble"])  # whatever its name ends in
def test_an_added_network_may_be_a_member_of_an_ensemble(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = (
        '[project]\nname = "added"\nversion = "1"\n[project.entry-points."caps_med.networks"]\n'
    )
    (tmp_path / "pyproject.toml").write_text(f'{project}{name} = "caps_med.networks:UNet"\n')
    install(tmp_path, tmp_path / "site-packages")
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    members = {"network": name, "members": 2, "arguments": {"features": [4] * 6}}
    network = build_network("Ensemble", members)
    assert network(torch.rand(1, 1, 32, 32)).shape == (1, 1, 32, 32)


class Untyped(CapsuleNetwork):
    def __init__(self, width=8) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - as it is not to be
        super().__init__()


class Open(CapsuleNetwork):
    def __init__(self, **arguments: int) -> None:
        super().__init__()


@pytest.mark.parametrize(("network", "argument"), [(Untyped, "width"), (Open, "arguments")])
def test_a_network_whose_arguments_have_no_types_is_refused(
    network: type[CapsuleNetwork], argument: str
) -> None:
    with pytest.raises(
        InvalidPlugin, match=f"{network.__name__}: argument '{argument}' of its __i"
    ):
        build_from({"Net": network}, "Net", {"width": 4})


def test_nothing_outside_its_folder_knows_it() -> None:
    folders = ("caps_med", "training", "api", "benchmarks", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    outside = [path for path in files if HERE not in path.parents]
    assert len(outside) > 500
    assert [path for path in outside if "CountingNetwork" in path.read_text()] == []
