"""A task of another package, of which the page knows nothing: trained, listed, explored."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, Page, expect

from tests.api.jobs import tarred
from tests.api.serving import Served, serving
from tests.fourth_task.package import HERE, install, write_images
from tests.page.conftest import check_accessible


@pytest.fixture
def counting(preloaded: Path, tmp_path: Path) -> Iterator[Served]:
    """A service in whose environment the package is installed."""
    install(HERE, tmp_path / "site-packages")
    places = [str(tmp_path / "site-packages"), str(HERE), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, places))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        with serving(tmp_path, tmp_path / "models", command=preloaded) as served:
            yield served


@pytest.mark.slow
def test_it_is_trained_listed_and_explored(
    opened: Callable[..., Page], counting: Served, tmp_path: Path
) -> None:
    write_images(tmp_path / "data")
    page = opened("train", counting.address)
    form = page.locator("#train form")
    form.locator("[name=task]").select_option("counting")
    expect(form.locator("[name=network] option")).to_have_text(["counting (default)"])
    expect(form.locator("[name=data] option")).to_have_count(0)
    form.locator("[name=name]").fill("cells")
    form.locator("[name=epochs]").fill("2")
    form.locator("[name=archive]").set_input_files(
        FilePayload(name="cells.tgz", mimeType="application/gzip", buffer=tarred(tmp_path / "data"))
    )
    form.locator(".primary").click()
    expect(page.locator("#train .job .state")).to_contain_text("succeeded", timeout=180_000)
    score = page.locator("#train .job .curves figure", has_text="score on held-out data")
    assert len((score.locator("polyline").get_attribute("points") or "").split()) == 2
    expect(page.locator("#train .job .use")).to_have_count(0)  # there is no view of its own
    check_accessible(page)

    page = opened("models", counting.address)
    card = page.locator("#models article").filter(has=page.get_by_role("heading", name="cells"))
    card.get_by_text("Layers and weights").click()
    for said in ("counting, version 1", "24 images", "mean absolute error", "primarycaps"):
        expect(card).to_contain_text(said)
    expect(card.get_by_role("button", name="Show a sample")).to_have_count(0)

    page = opened("capsules", counting.address)  # nothing is preloaded: that of the first sample
    expect(page.locator("#capsules select.model")).to_have_value("brain-t1-tissue")
    page.locator("#capsules select.model").select_option("cells")
    picture = (tmp_path / "data" / "5.png").read_bytes()
    page.locator("#capsules .drop input").set_input_files(
        FilePayload(name="5.png", mimeType="image/png", buffer=picture)
    )
    layers = page.locator("#capsules .network button")
    expect(layers).to_have_count(2)
    layers.filter(has_text="primarycaps").click()
    expect(page.locator("#capsules .layer")).to_contain_text("primarycaps: capsule lengths")
    expect(page.locator("#capsules .lengths .tile")).to_have_count(4)
    expect(page.locator("#capsules .move")).to_be_hidden()
    check_accessible(page)
