"""The exact versions that make and CI install."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
_LINES = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
PINS = {canonicalize_name(name): version for name, version in _LINES}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_they_install_on_the_oldest_python() -> None:
    """Debian 12 has Python 3.11.2. Which Python a version needs is known where it is installed."""
    (oldest,) = SpecifierSet(PROJECT["requires-python"])
    pinned = [
        one for one in distributions() if PINS.get(canonicalize_name(one.name)) == one.version
    ]
    if len(pinned) < len(PINS) / 2:
        pytest.skip("other versions are installed")
    pythons = {
        one.name: SpecifierSet(",".join(one.metadata.get_all("Requires-Python", [])))
        for one in pinned
    }
    assert [name for name, those in pythons.items() if f"{oldest.version}.0" not in those] == []


def test_they_are_above_the_lower_bounds() -> None:
    lines = chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    requirements = [Requirement(line) for line in lines]
    known = [one for one in requirements if canonicalize_name(one.name) in PINS]
    assert len(known) > 40
    below = [str(one) for one in known if PINS[canonicalize_name(one.name)] not in one.specifier]
    assert below == []
