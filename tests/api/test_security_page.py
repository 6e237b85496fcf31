"""The page about security says what the service does."""

from __future__ import annotations

import re
from pathlib import Path

from api.access.keys import SCOPES
from api.problems import PROBLEMS
from api.settings import Settings
from tests.api.hostile import bad_inputs

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()


def test_every_code_is_listed_as_it_is() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (\d{3}) \| (.+) \|$", PAGE, re.MULTILINE)
    found = {code: (int(status), meaning) for code, status, meaning in listed}
    assert found == {code: tuple(problem) for code, problem in PROBLEMS.items()}
    assert len(listed) == len(PROBLEMS)


def test_every_bad_input_is_answered_as_its_row_says() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| .* \| (.*) \|$", PAGE, re.MULTILINE))
    assert list(map(int, rows)) == list(range(1, 31))  # from 21 on, the tests named beside them
    for bad in bad_inputs():
        answer = rows[str(bad.row)]
        assert str(bad.status) in answer and f"`{bad.code}`" in answer, bad.name


def test_scopes_and_settings_are_those_there_are() -> None:
    for scope in SCOPES:
        assert f"| `{scope}` |" in PAGE
    named = {name.lower() for name in re.findall(r"CAPS_MED_([A-Z_]+)", PAGE)}
    assert named <= set(Settings.model_fields)
