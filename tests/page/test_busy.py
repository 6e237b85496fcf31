"""A busy service: the page tries again as it is told, says so, and leaves it the processor."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from tests.api.serving import Served
from tests.page.conftest import Browsers, held_requests, sample


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


@pytest.mark.parametrize("status", [None, 502], ids=["alone", "behind a proxy"])
def test_a_silent_service_is_found_again(opened: Callable[..., Page], status: int | None) -> None:
    """It starts again while somebody opens the page."""

    def away(route: Route) -> None:
        route.fulfill(status=status, body="<html>") if status else route.abort()

    page = opened("models")
    page.clock.install()
    page.context.route(re.compile("/(v1|healthz)"), away)
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


def test_a_model_is_used_whose_service_is_silent(opened: Callable[..., Page]) -> None:
    """It is chosen: the page knows it from before."""
    page = opened("models")
    use = page.locator("#models article", has_text="axon-segmentation").locator(".use")
    use.wait_for()
    page.context.route(re.compile("/v1/models$"), lambda route: route.abort())
    use.click()
    expect(page.locator("#segment select.model")).to_have_value("axon-segmentation")


def test_a_page_that_is_not_there_yet(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    loading = page.get_by_text("caps_med is loading.")
    expect(loading).to_have_count(0)
    held = held_requests(page, re.compile(r"/assets/index-.*\.js$"), "GET")
    page.reload(wait_until="commit")
    expect(loading).to_be_visible()
    expect(page.get_by_text("JavaScript")).to_have_count(0)
    held[0].continue_()
    expect(page.locator("#segment .drop")).to_be_visible()
    expect(loading).to_have_count(0)


def test_a_browser_without_javascript_is_told(browsers: Browsers, server: Served) -> None:
    context = browsers.get().new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(server.address)
    expect(page.locator(".loading noscript")).to_be_visible()
    context.close()


def test_waiting_draws_as_often_as_its_clock_moves(opened: Callable[..., Page]) -> None:
    """Without a GPU, each frame takes the time of the processor that the answer waits for."""
    page = opened("segment")
    held = held_requests(page, re.compile("/segment"), "POST")
    sample(page, "segment", "T1 slice")
    busy, browser = page.locator("#segment .busy"), page.context.browser
    assert browser is not None
    expect(busy).to_contain_text("3 s")
    expect(page.locator("#segment progress:indeterminate")).to_be_visible()
    browser.start_tracing(page=page, categories=["disabled-by-default-devtools.timeline.frame"])
    expect(busy).to_contain_text("7 s")
    events = json.loads(browser.stop_tracing())["traceEvents"]
    drawn = [event for event in events if event["name"] == "DrawFrame"]
    assert 2 <= len(drawn) <= 40  # 200 and more where something moves in every frame
    for route in held:
        route.continue_()
    expect(page.locator("#segment .answer")).to_be_visible()


@pytest.mark.parametrize(
    ("view", "what"),
    [("annotate", "project"), ("train", "training job")],
    ids=["annotate", "train"],
)
def test_an_address_that_leads_nowhere(opened: Callable[..., Page], view: str, what: str) -> None:
    page = opened(f"{view}/xyz")
    told = page.locator(f"#{view} .problem")
    expect(told).to_contain_text(f"The {what} in the address of this page does not exist.")
