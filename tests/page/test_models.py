"""Models: a card each; keys: nothing works without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from api.access.keys import KeyStore
from caps_med.bundles import ModelRepository
from tests.api.serving import Served, serving
from tests.page.conftest import check_accessible, held_requests, sample, sent


def test_cards(opened: Callable[..., Page]) -> None:
    page = opened("models")
    for name in ("brain-t1-tissue", "brain-t1-synthesis"):
        card = page.locator("#models article").filter(has=page.get_by_role("heading", name=name))
        known = ModelRepository(Path("none")).find(name)
        for said in (*known.card.labels.values(), *known.card.scores, known.card.license, "MB"):
            expect(card).to_contain_text(said)
        card.get_by_text("Data", exact=True).click()
        expect(card).to_contain_text("MNI152")
        card.get_by_text("Layers and weights").click()
        expect(card).to_contain_text(known.metadata.weights.sha256)
        card.get_by_role("button", name="Show a sample").click()
        picture = card.locator("img")
        assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") >= 181
    check_accessible(page)
    card.get_by_role("link", name="Use the model").click()
    expect(page.locator("#synthesize select.model")).to_have_value("brain-t1-synthesis")


def test_the_sample_of_one_card_does_not_stop_that_of_another(opened: Callable[..., Page]) -> None:
    page = opened("models")
    held = held_requests(page, "**/v1/samples/*", "GET")
    for number, name in enumerate(("brain-t1-tissue", "axon-segmentation")):
        card = page.locator("#models article").filter(has=page.get_by_role("heading", name=name))
        card.get_by_role("button", name="Show a sample").click()
        sent(page, held, number)
    for route in held:
        route.continue_()
    expect(page.locator("#models article > img")).to_have_count(2)


def test_another_view_begins_at_its_beginning(opened: Callable[..., Page]) -> None:
    """With the focus in it; Back leads to where one was."""
    page = opened("models")
    link = page.locator("#models .use").last
    link.focus()
    expect(page.locator("#models .work").first).to_be_empty()
    before = page.evaluate("scrollY")
    assert before > 1000
    link.press("Enter")
    page.wait_for_function("() => document.activeElement === document.querySelector('#synthesize')")
    assert page.evaluate("scrollY") == 0
    page.go_back()
    expect(page.locator("#models")).to_be_visible()
    expect(page.locator("#models .work").first).to_be_empty()
    page.wait_for_function(f"() => Math.abs(scrollY - {before}) < 5")


class TestKeys:
    @pytest.fixture
    def refusals(self) -> bool:
        return True

    @pytest.fixture
    def guarded(self, preloaded: Path, tmp_path: Path) -> Iterator[tuple[Served, str]]:
        keys = tmp_path / "keys.db"
        _, text = KeyStore(keys).create("page", ["infer"])
        models = tmp_path / "models"
        with serving(tmp_path, models, command=preloaded, keys=str(keys)) as served:
            yield served, text

    def test_nothing_without_one(
        self, opened: Callable[..., Page], guarded: tuple[Served, str]
    ) -> None:
        server, text = guarded
        page = opened("segment", server.address)
        dialog = page.locator("#key")
        expect(dialog).to_be_visible()
        dialog.get_by_role("button", name="Not now").click()
        expect(page.locator("#segment .problem")).to_contain_text("unauthorized")
        expect(page.locator("#segment .sample")).to_have_count(0)
        expect(page.locator("#segment select.model option")).to_have_count(0)
        page.reload()
        dialog.get_by_label("Key").fill(f"{text}x")
        dialog.get_by_role("button", name="Use it").click()
        expect(dialog.locator(".why")).to_have_text("The key is unknown or was revoked.")
        dialog.get_by_label("Key").fill(f"\u201c{text}\u201d")  # no header can hold these
        dialog.get_by_role("button", name="Use it").click()
        said = dialog.get_by_label("Key").evaluate("one => one.validationMessage")
        assert "without quotation marks" in said
        dialog.get_by_label("Key").fill(f" {text} ")
        dialog.get_by_role("button", name="Use it").click()
        sample(page, "segment", "T1 slice")
        expect(page.locator("#segment .answer")).to_be_visible()
        page.get_by_role("button", name="Forget key").click()
        expect(dialog).to_be_visible()
