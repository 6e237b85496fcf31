"""The exact versions that make and CI install."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PINS = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_they_install_on_the_oldest_python() -> None:
    """Debian 12 has Python 3.11.2."""
    (oldest,) = SpecifierSet(PROJECT["requires-python"])
    installed = {d.name: d.metadata["Requires-Python"] for d in distributions()}
    pinned = {canonicalize_name(name) for name in PINS}
    wanted = {name: SpecifierSet(w) for name, w in installed.items() if w}
    found = {name: w for name, w in wanted.items() if canonicalize_name(name) in pinned}
    assert len(found) > 100
    assert [name for name, w in found.items() if f"{oldest.version}.0" not in w] == []


def test_they_are_above_the_lower_bounds() -> None:
    pins = {canonicalize_name(name): version for name, version in PINS.items()}
    lines = chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    requirements = [Requirement(line) for line in lines]
    known = [one for one in requirements if canonicalize_name(one.name) in pins]
    assert len(known) > 40
    below = [str(one) for one in known if pins[canonicalize_name(one.name)] not in one.specifier]
    assert below == []
