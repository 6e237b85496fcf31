"""The list of all calls: Swagger UI, without a call to another host."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, Route, expect

from tests.api.serving import Served


def test_a_call_is_tried_out(opened: Callable[..., Page], server: Served) -> None:
    """The service's security policy permits all that the page does; see `opened`."""
    page = opened("models")
    try_out(page, f"{server.address}/docs")


def test_below_a_path_of_a_proxy_calls_go_there_too(
    opened: Callable[..., Page], server: Served
) -> None:
    """The proxy takes the path away, as docs/service.md has it."""
    page = opened("models")
    page.goto("about:blank")  # what that view still asks for goes elsewhere
    asked: list[str] = []

    def forwarded(route: Route) -> None:
        asked.append(route.request.url)
        url = route.request.url.replace("/below/it/", "/")
        route.fulfill(response=route.fetch(url=url))

    page.route(f"{server.address}/**", forwarded)
    try_out(page, f"{server.address}/below/it/docs")
    assert all(url.startswith(f"{server.address}/below/it/") for url in asked), asked
    assert f"{server.address}/below/it/v1/models" in asked


def try_out(page: Page, address: str) -> None:
    """Call the first route from the list."""
    page.goto(address)
    models = page.locator("#operations-models-list_models_v1_models_get")
    models.locator("button").first.click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    expect(models.locator(".live-responses-table")).to_contain_text("brain-t1-tissue")
