"""Which options of ``caps-med train`` go together, and what is said where Ray is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from caps_med.errors import CapsMedError
from training.cli.train import train


def refused(discs: Path, *options: str) -> str:
    """The code and message with which the command ends."""
    given = ["segmentation", "--data", str(discs), "--name", "x", *options]
    error = CliRunner().invoke(train, given).exception
    assert isinstance(error, CapsMedError), error
    return f"{error.code}: {error}"


def test_options_that_do_not_go_together(discs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "exclude each other: tune first" in refused(discs, "--tune", "4", "--folds", "2")
    assert "add --folds or --tune" in refused(discs, "--cluster", "local")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "leave out torchrun" in refused(discs, "--tune", "4")


@pytest.mark.parametrize(
    ("name", "options"),
    [("--tune", ["--tune", "4"]), ("--cluster", ["--folds", "2", "--cluster", "auto"])],
)
def test_without_ray_the_command_that_installs_it_is_shown(
    discs: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: list[str]
) -> None:
    monkeypatch.setattr("caps_med.extras.find_spec", lambda _: None)
    wanted = f"missing_extra: {name} needs more packages: pip install 'caps-med[scale]'"
    assert refused(discs, *options) == wanted
