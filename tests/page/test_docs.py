"""The list of all calls: Swagger UI, without a call to another host."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.api.serving import Served


def test_a_call_is_tried_out(opened: Callable[..., Page], server: Served) -> None:
    """The service's security policy permits all that the page does; see `opened`."""
    page = opened("models")
    page.goto(f"{server.address}/docs")
    models = page.locator("#operations-models-list_models_v1_models_get")
    models.locator("button").first.click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    expect(models.locator(".live-responses-table")).to_contain_text("brain-t1-tissue")
