"""Commands, options and environment variables that the documentation and ``--help`` name exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from api.cluster.size import Size
from api.settings import Settings
from caps_med.cli.commands import app
from caps_med.plugins import add_plugins
from tests.docs.test_names import PAGES, ROOT

_VARIABLE = re.compile(r"CAPS_MED_[A-Z0-9_]*[A-Z0-9]")
#: A command in a line of text, up to what ends it in a shell; a backslash continues the line.
_COMMAND = re.compile(r"\bcaps-med ((?:\\\n|[^\n`|;>#&])*)")
#: Between the service and the processes of its jobs.
_INTERNAL = {"CAPS_MED_JOB_LOCK"}
_PROGRAMS = (".py", ".yaml", ".cfg", ".lua")
_OPTION = re.compile(r"(?<!\S)(--?[a-z][\w-]*)")


def commands() -> dict[tuple[str, ...], Any]:
    """All commands and groups, by their words after ``caps-med``."""
    add_plugins(app)
    return dict(_below((), typer.main.get_command(app)))


def _below(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401
    yield words, command
    for name, one in getattr(command, "commands", {}).items():
        yield from _below((*words, name), one)


COMMANDS = commands()
HELP = {" ".join(("help", *words)): str(one.help or "") for words, one in COMMANDS.items()}
TEXTS = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES} | HELP


def options(command: Any) -> set[str]:  # noqa: ANN401
    given = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return given | {"--help"}


def unknown(text: str) -> list[str]:
    """Commands in this text that do not exist, and their options that do not."""
    found = []
    for line in _COMMAND.findall(text):
        words: tuple[str, ...] = ()
        for word in line.split():
            if (*words, word) not in COMMANDS:
                break
            words = (*words, word)
        command = COMMANDS[words]
        after = line.split()[len(words) :]
        if hasattr(command, "commands"):  # one of which the text need not name: "train ..."
            wrong = after and re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", after[0])
            found += [f"caps-med {line}"] if words and wrong else []
            continue
        known = options(command)
        found += [f"{' '.join(words)} {o}" for o in _OPTION.findall(line) if o not in known]
    return found


def variables() -> set[str]:
    """The environment variables that the code reads."""
    read = {f"CAPS_MED_{name.upper()}" for name in Settings.model_fields}
    read |= {f"CAPS_MED_CLUSTER_{name.upper()}" for name in Size.model_fields}
    for folder in ("caps_med", "training", "api", "docker"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in _PROGRAMS and "node_modules" not in path.parts:
                read |= set(re.findall(rf"[\"'{{]({_VARIABLE.pattern})\b", path.read_text()))
    return read


@pytest.mark.parametrize("name", TEXTS)
def test_commands_and_options_exist(name: str) -> None:
    assert unknown(TEXTS[name]) == []


def test_variables_exist_and_are_documented() -> None:
    named = {name: set(_VARIABLE.findall(text)) for name, text in TEXTS.items()}
    read = variables()
    assert {name: found - read for name, found in named.items() if found - read} == {}
    assert read - set().union(*named.values()) == _INTERNAL


def test_what_does_not_exist_is_noticed() -> None:
    assert unknown("`caps-med segment --model M x.png --oat y.png`") == ["segment --oat"]
    assert unknown("caps-med models lst --json\n") == ["caps-med models lst --json"]
    assert unknown("caps-med train ... --data DIR; caps-med segment \\\n   --entropy") == []
    assert unknown("caps-med export --model M \\\n   --kind onnx") == ["export --kind"]
