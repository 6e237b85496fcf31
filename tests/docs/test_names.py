"""Modules, files and headings that the documentation names exist."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest
import yaml

from api.jobs.tasks import TASKS as JOB_OPTIONS
from api.routes.added import ROUTERS
from caps_med import __version__
from caps_med.bundles.tasks import TASKS as TRAITS
from caps_med.inference.inferers import INFERERS
from caps_med.networks import NETWORKS
from caps_med.networks.single import SINGLE_NETWORKS
from training.tasks.opening import OPENINGS
from training.tasks.registry import TASKS

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PACKAGES = "caps_med|training|api|benchmarks|tests"
DOTTED = re.compile(rf"(?<![\w./-])((?:{PACKAGES})(?:\.(?!(?:md|json)\b)[A-Za-z_]\w*)+)")
FILE = re.compile(rf"(?<![\w./-])((?:{PACKAGES}|docs|docker)/[\w./-]*)")
REGISTRIES = (TRAITS, NETWORKS, INFERERS, OPENINGS, TASKS, JOB_OPTIONS, ROUTERS)
#: A logger, and groups of entry points.
NOT_MODULES = {"caps_med.audit", "caps_med.commands", *(one.group for one in REGISTRIES)}


def exists(name: str) -> bool:
    """Whether a dotted name is a module of this repository, or something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
            return _has(".".join(parts[:length]), parts[length:])
    return False


def _has(module: str, names: list[str]) -> bool:
    if module.endswith("__main__"):
        return not names
    found: object = importlib.import_module(module) if names else None
    for name in names:
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_the_code_exist(page: Path) -> None:
    text = page.read_text()
    for name in set(DOTTED.findall(text)) - NOT_MODULES:
        assert exists(name), name
    for name in set(FILE.findall(text)):
        if not name.startswith("api/static"):  # built
            assert (ROOT / name.rstrip("./")).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_import_what_there_is(page: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and re.match(rf"({PACKAGES})\b", node.module or ""):
                module = importlib.import_module(str(node.module))
                for alias in node.names:
                    found = hasattr(module, alias.name) or exists(f"{node.module}.{alias.name}")
                    assert found, f"{node.module}.{alias.name}"


def test_the_readmes_anchors_are_headings() -> None:
    # links between pages of the site are checked when it is built
    for target, anchor in re.findall(
        r"\]\(([^)#:]+\.md)#([^)]+)\)", (ROOT / "README.md").read_text()
    ):
        headings = re.findall(r"^#+ (.+)$", (ROOT / target).read_text(), re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
        assert anchor in slugs, f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_install_from_what_there_is(page: Path) -> None:
    """The package is on no index: its name alone installs nothing where it is not there yet."""
    named = re.findall(r"pip install '?caps-med\b.*", page.read_text())
    assert len(named) == (page.name == "README.md"), named


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "software")
    assert citation["version"] == __version__
    assert citation["message"] and citation["title"] and citation["authors"]
    cited = [reference["notes"] for reference in citation["references"]]
    assert len(set(cited)) == len(cited)
    # of MONAI, and the ablation of Efficient-CapsNet, which is in no paper
    assert set(SINGLE_NETWORKS.builtin) - {"UNet", "ResNet", "ConvNet"} == set(cited)


def test_names_that_do_not_exist_are_noticed() -> None:
    assert exists("caps_med.networks.SegCaps") and exists("benchmarks.tstr")
    assert not exists("caps_med.networks.SegCap") and not exists("training.house")
    assert DOTTED.findall("`training.house.x` and my.caps_med.y") == ["training.house.x"]
    assert FILE.findall("see `training/house.py`, /training/x") == ["training/house.py"]
