"""What is not installed says how to install it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from caps_med.errors import MissingExtra
from caps_med.extras import EXTRAS, require_extra

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
#: Extras for those who work on this project; no code asks for them.
FOR_DEVELOPERS = {"dev", "docs", "scale-dev"}


def without(modules: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    """``caps-med`` where these modules cannot be imported."""
    code = f"""
import sys
sys.modules.update(dict.fromkeys({modules}))
from caps_med.cli import main
main()
"""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_modules_of_an_extra_are_those_it_installs() -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    extras, always = project["optional-dependencies"], _names(project["dependencies"])
    assert set(extras) - FOR_DEVELOPERS == set(EXTRAS)
    found = packages_distributions()
    for extra, modules in EXTRAS.items():
        declared = _names(extras[extra]) - always  # an extra may need a later version
        for module in modules:
            installed = {name.lower().replace("_", "-") for name in found.get(module, ())}
            assert not installed or installed & declared, module
            declared -= installed
        assert not declared & {name.lower() for names in found.values() for name in names}, extra


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}


def test_require_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    require_extra("data", "--data mni152")
    monkeypatch.setitem(sys.modules, "nilearn", None)
    message = r"^--data mni152 needs more packages: pip install 'caps-med\[data\]'$"
    with pytest.raises(MissingExtra, match=message):
        require_extra("data", "--data mni152")


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        ("train segmentation --data x", "ignite", "train"),
        ("data check x", "jinja2", "train"),
        ("evaluate --model x", "yaml", "train"),
        ("augment --data x --out y --count 1", "scipy", "train"),
        ("evaluate --model x", "sklearn", "train"),
        ("serve --port 1", "fastapi", "api"),
        ("keys list", "uvicorn", "api"),
    ],
)
def test_a_command_without_its_extra(command: str, module: str, extra: str) -> None:
    answer = without((module,), *command.split())
    name, install = command.split()[0], f"pip install 'caps-med[{extra}]'"
    assert answer.returncode == 2
    assert answer.stderr == f"missing_extra: {name} needs more packages: {install}\n"


def test_help_without_extras() -> None:
    shown = without(("ignite", "fastapi"), "--help").stdout
    for command, extra in {"train": "train", "augment": "train", "keys": "api"}.items():
        assert re.search(rf"{command} +Not installed: pip install 'caps-med\[{extra}\]'", shown)
    assert re.search("segment +Segment an image", shown)
