"""Screen readers and weak eyes: no rule of WCAG 2.2 (A, AA) is broken that axe-core can check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from benchmarks.page import VIEWS

AXE = Path(__file__).parents[2] / "api" / "web" / "node_modules" / "axe-core" / "axe.min.js"
#: What is broken: the rule, and the elements.
CHECK = """async () => (await axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa'] }))
    .violations.map(one => [one.id, ...one.nodes.map(node => node.html.slice(0, 200))])"""


@pytest.mark.parametrize("view", list(VIEWS))
def test_no_rule_is_broken(opened: Callable[..., Page], view: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm ci in api/web")
    page = opened(view)
    if view != "train":  # what that view does is tested elsewhere, and takes long
        VIEWS[view](page)
    page.evaluate(AXE.read_text())
    broken = {}
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        broken[theme] = page.evaluate(CHECK)
    assert broken == {"light": [], "dark": []}
