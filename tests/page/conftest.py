"""A real server with the built-in models, and a real browser that looks at its page."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from api.routes.page import STATIC
from benchmarks.page import FLAGS
from caps_med.images import MedicalImage, read_image
from tests.api.serving import Served, serving

PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)

AXE = Path(__file__).parents[2] / "api" / "web" / "node_modules" / "axe-core" / "axe.min.js"
#: What is broken: the rule, and the elements.
BROKEN_RULES = """async () => (await axe.run({
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa'],
})).violations.map(one => [one.id, ...one.nodes.map(node => node.html.slice(0, 200))])"""
#: Keeps the label maps that the page sends: a browser tells no test what a file's bytes are.
KEEP_LABELS = """
const send = window.fetch;
window.sentLabels = [];
window.fetch = (path, init) => {
    const labels = init?.body instanceof FormData ? init.body.get('labels') : null;
    if (labels) window.sentLabels.push([path, labels]);
    return send(path, init);
};
"""
#: The last label map sent to a path, in base64.
LAST_LABELS = """async part => {
    const [, blob] = window.sentLabels.filter(([path]) => path.includes(part)).at(-1);
    const bytes = new Uint8Array(await blob.arrayBuffer());
    return btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join(''));
}"""


def missing() -> str | None:
    """Why the page cannot be looked at here."""
    if not (STATIC / "index.html").is_file():
        return "the page is not built: run make page"
    if not AXE.is_file():
        return "axe-core is not installed: run npm ci in api/web"
    return None if shutil.which("chromium") else "there is no chromium in the PATH"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if why := missing():
        if os.environ.get("CAPS_MED_NEED_PAGE"):
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The built-in models alone; what is trained comes beside them."""
    folder = tmp_path_factory.mktemp("server")
    models = folder / "models"
    with serving(folder, models, preload='["brain-t1-tissue", "brain-t1-synthesis"]') as served:
        yield served


@pytest.fixture
def refusals() -> bool:
    """Whether the test makes the service refuse something, which browsers write to the console."""
    return False


@pytest.fixture
def opened(browser: Browser, server: Served, refusals: bool) -> Iterator[Callable[..., Page]]:
    """Opens a view; at the end there was no error in the console and no call to another host."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(KEEP_LABELS)
    errors: list[str] = []
    foreign: list[str] = []

    def said(message: Any) -> None:  # noqa: ANN401
        refused = refusals and "Failed to load resource" in message.text
        if message.type == "error" and not refused:
            errors.append(message.text)

    def open_view(view: str, address: str = server.address) -> Page:
        page = context.new_page()
        ours = (f"{address}/", "blob:", "data:")
        page.on("console", said)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda r: None if r.url.startswith(ours) else foreign.append(r.url))
        page.goto(f"{address}/#{view}")
        return page

    yield open_view
    context.close()
    assert errors == []
    assert foreign == []


def pixels(page: Page, selector: str) -> list[int]:
    """What a canvas shows: width, height, and its RGBA bytes."""
    found: list[int] = page.locator(selector).first.evaluate(
        """canvas => [canvas.width, canvas.height, ...canvas.getContext('2d')
            .getImageData(0, 0, canvas.width, canvas.height).data]"""
    )
    return found


def sent_labels(page: Page, server: Served, part: str) -> MedicalImage:
    """The label map that was last sent to a path, and that the service says it got."""
    content = base64.b64decode(page.evaluate(LAST_LABELS, part))
    arrived = hashlib.sha256(content).hexdigest()
    end = time.monotonic() + PATIENCE_MS / 1000
    while arrived not in server.log.read_text():
        assert time.monotonic() < end, "the service got something else"
        page.wait_for_timeout(50)
    return read_image(content, kind="labels")


def slide(page: Page, selector: str, value: float) -> None:
    """Move a slider, with its events."""
    page.locator(selector).fill(str(value))


def check_accessible(page: Page) -> None:
    """No rule of WCAG 2.2, A and AA, is broken that axe-core can check, light or dark."""
    page.evaluate(AXE.read_text())
    broken = {}
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        broken[theme] = page.evaluate(BROKEN_RULES)
    assert broken == {"light": [], "dark": []}


def sample(page: Page, view: str, title: str) -> None:
    page.locator(f"#{view} .sample", has_text=title).click()


def saved(page: Page, selector: str, folder: Path) -> Path:
    """The file that a button offers."""
    with page.expect_download() as download:
        page.locator(selector).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path
