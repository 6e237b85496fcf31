"""A service that is busy for a while: the page tries again as it is told, and says so."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from tests.page.conftest import sample


class Busy:
    """Answers as a service that cannot read its keys, for as long as it is busy.

    Attributes:
        refused: the paths that were asked for meanwhile.
    """

    def __init__(self) -> None:
        self.now = True
        self.refused: set[str] = set()

    def __call__(self, route: Route) -> None:
        if not self.now:
            route.continue_()
            return
        self.refused.add(route.request.url.split("/v1/")[1])
        problem = '{"title": "Storage Unavailable", "code": "storage_unavailable"}'
        route.fulfill(status=503, body=problem, headers={"Retry-After": "1"})


@pytest.fixture
def refusals() -> bool:
    return True


def test_a_busy_service_is_asked_again(opened: Callable[..., Page]) -> None:
    page = opened("models")
    busy = Busy()
    page.context.route("**/v1/**", busy)
    page.goto(page.url.replace("#models", "#segment"))
    page.reload()
    said = page.locator(".busy-service")
    expect(said).to_have_text("The service is busy; trying again.")
    busy.now = False
    page.locator("#segment .sample img[src]").last.wait_for()
    expect(said).to_have_count(0)
    busy.now = True
    sample(page, "segment", "T1 slice")
    expect(said).to_have_text("The service is busy; trying again.")
    busy.now = False
    expect(page.locator("#segment .answer")).to_be_visible()
    expect(said).to_have_count(0)
    assert "models" in busy.refused


def test_a_silent_service_is_found_again(opened: Callable[..., Page]) -> None:
    """It starts again while somebody opens the page."""
    page = opened("models")
    page.clock.install()
    page.context.route(re.compile("/(v1|healthz)"), lambda route: route.abort())
    page.goto(page.url.replace("#models", "#segment"))
    page.reload()
    said = page.locator("header .service")
    expect(said).to_have_text("The service is not responding.")
    expect(page.locator("#segment .problem")).to_contain_text("no answer")
    page.context.unroute_all()
    page.clock.fast_forward(5000)
    page.locator("#segment .sample img[src]").last.wait_for()
    expect(said).to_contain_text("research only")
    expect(page.locator("#segment .problem")).to_have_count(0)
