"""A real server with the built-in models, and a real browser that looks at its page."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Error, Page, Playwright, Route, expect, sync_playwright

import benchmarks.page
from api.routes.page import STATIC
from caps_med import samples
from caps_med.bundles import ModelRepository, NetworkSpec
from caps_med.images import MedicalImage, encode_image, read_image
from tests.api.serving import Served, serving
from tests.conftest import write_tiny

#: Without windows and menus, if there is one: they take half of a whole browser's time.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
#: As where there is no GPU, only WebGL is drawn by GL: in software, that is slow.
FLAGS = (*benchmarks.page.FLAGS, "--disable-gpu-compositing")
PATIENCE_MS = 60_000
#: For each look at a page whose test has failed: it may be stuck.
LOOK_MS = 10_000
expect.set_options(timeout=PATIENCE_MS)

AXE = Path(__file__).parents[2] / "api" / "web" / "node_modules" / "axe-core" / "axe.min.js"
#: What is broken: the rule, and the elements.
BROKEN_RULES = """async () => (await axe.run({
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa'],
})).violations.map(one => [one.id, ...one.nodes.map(node => node.html.slice(0, 200))])"""
#: Labels that name no field: their name goes to the first thing in them that takes one, which an
#: `output` does.
IDLE_LABELS = """() => [...document.querySelectorAll('label')]
    .filter(one => !one.control?.matches('input, select'))
    .map(one => one.outerHTML.slice(0, 200))"""
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
#: The last label map sent to a path, in base64; null if there is none yet.
LAST_LABELS = """async part => {
    const [, blob] = window.sentLabels.filter(([path]) => path.includes(part)).at(-1) ?? [];
    if (!blob) return null;
    const bytes = new Uint8Array(await blob.arrayBuffer());
    return btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join(''));
}"""
#: What a canvas shows, in base64: a browser sends a list of so many numbers slowly.
PIXELS = """canvas => {
    const { width, height } = canvas;
    const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
    return [width, height, btoa(Array.from(data, byte => String.fromCharCode(byte)).join(''))];
}"""

#: How WebGL fares in each viewer.
GRAPHICS = """() => Object.entries(capsMed).map(([name, { gl, volumes, initialized }]) =>
    [name, `lost ${gl?.isContextLost()}`, `begun ${initialized}`, `${volumes.length} volumes`])"""


def missing() -> str | None:
    """Why the page cannot be looked at here."""
    if not (STATIC / "index.html").is_file():
        return "the page is not built: run make page"
    if not AXE.is_file():
        return "axe-core is not installed: run npm ci in api/web"
    return None if CHROMIUM else "there is no chromium in the PATH"


class Browsers:
    """One browser for all tests, and another one after a failure: its graphics may be stuck."""

    def __init__(self, playwright: Playwright) -> None:
        self._type = playwright.chromium
        self._browser: Browser | None = None

    def get(self) -> Browser:
        """The browser, which is started if there is none."""
        if self._browser is None:
            self._browser = self._type.launch(executable_path=CHROMIUM, args=list(FLAGS))
        return self._browser

    def close(self) -> None:
        """End the browser; the next `get` starts another one."""
        if self._browser is not None:
            self._browser.close()
        self._browser = None


@pytest.fixture(scope="session")
def browsers() -> Iterator[Browsers]:
    if why := missing():
        if os.environ.get("CAPS_MED_NEED_PAGE"):
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        browsers = Browsers(playwright)
        yield browsers
        browsers.close()


def models_of(server: Served) -> Path:
    """The folder of the models that a server has beside the built-in ones."""
    return server.temporary.parent / "models"


@pytest.fixture(scope="session")
def server(preloaded: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The built-in models alone; what is trained, or what tests write, comes beside them."""
    folder = tmp_path_factory.mktemp("server")
    loaded = '["brain-t1-tissue", "brain-t1-synthesis"]'
    with serving(folder, folder / "models", command=preloaded, preload=loaded) as served:
        yield served


@pytest.fixture(scope="session")
def quick(server: Served) -> Callable[[Page], Page]:
    """Lets a tiny network synthesize in a page, whichever generator it asks.

    Its card is that of ``brain-t1-synthesis``.
    """
    card = ModelRepository(Path("none")).find("brain-t1-synthesis").card
    spec = NetworkSpec(name="CapsPix2Pix", arguments={"atoms": 4, "label_channels": 4})
    write_tiny(models_of(server), "quick-synthesis", card.model_copy(update={"network": spec}))

    def redirect(page: Page) -> Page:
        def to_tiny(route: Route) -> None:
            route.continue_(url=re.sub(r"[\w-]+-synthesis", "quick-synthesis", route.request.url))

        page.route("**/v1/models/*-synthesis/**", to_tiny)
        return page

    return redirect


@pytest.fixture
def blank(opened: Callable[..., Page], quick: Callable[[Page], Page]) -> Page:
    """An empty square to paint on, and its images by a tiny network."""
    page = quick(opened("synthesize"))
    page.locator("#synthesize .blank").click()
    page.locator("#synthesize .gallery canvas").first.wait_for()
    settled(page, "synthesize")
    return page


@pytest.fixture
def refusals() -> bool:
    """Whether the test makes the service refuse something, which browsers write to the console."""
    return False


@pytest.fixture
def without_webgl() -> bool:
    """Whether the test takes WebGL away, of which browser and page warn."""
    return False


@dataclass
class Watched:
    """What a test's pages did, for who looks at a failure."""

    pages: list[Page] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    unanswered: set[str] = field(default_factory=set)
    failed: bool = False

    def watch(self, page: Page) -> None:
        """Note what the page says and asks from now on."""
        self.pages.append(page)
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"page error: {error}"))
        page.on("crash", lambda _: self.said.append("the page crashed"))
        page.on("request", lambda request: self.unanswered.add(request.url))
        for ended in ("requestfinished", "requestfailed"):
            page.on(ended, lambda request: self.unanswered.discard(request.url))

    def report(self, folder: Path) -> str:
        """Console, unanswered requests, state of WebGL, and where a screenshot of each page is."""
        lines = [*self.said, *(f"unanswered: {url}" for url in sorted(self.unanswered))]
        for number, page in enumerate(self.pages):
            file = folder / f"page{number}.png"
            lines += [f"{page.url}: {found}" for found in self._looks(page, file)]
        return "\n".join(lines)

    def _looks(self, page: Page, file: Path) -> Iterator[str]:
        looks: dict[str, Callable[[], object]] = {
            "WebGL": lambda: page.wait_for_function(GRAPHICS, timeout=LOOK_MS).json_value(),
            "text": lambda: page.locator("body").inner_text(timeout=LOOK_MS)[:2000],
            "screenshot": lambda: page.screenshot(path=file, timeout=LOOK_MS) and file,
        }
        for what, look in looks.items():
            try:
                yield f"{what}: {look()}"
            except Error as error:  # a page that answers no more
                yield f"{what}: {error}"


@pytest.fixture(scope="session")
def long_head() -> bytes:
    """A volume as NIfTI whose segmentation is not done before a click on *Cancel*."""
    head = read_image(samples.COLIN27)
    return encode_image(MedicalImage(np.repeat(head.array, 8, -1), head.affine), "nifti")


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test of the page says what its pages looked like."""
    report = yield
    watched = getattr(item, "funcargs", {}).get("watched")
    if report.when == "call" and report.failed and watched is not None:
        folder = Path(item.config._tmp_path_factory.mktemp("page"))  # type: ignore[attr-defined]
        watched.failed = True
        report.sections.append(("page", watched.report(folder)))
    return report


@pytest.fixture
def opened(
    browsers: Browsers, server: Served, watched: Watched, refusals: bool, without_webgl: bool
) -> Iterator[Callable[..., Page]]:
    """Opens a view; at the end the console has no error or warning; no other host was called."""
    context = browsers.get().new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(KEEP_LABELS)
    errors: list[str] = []
    foreign: list[str] = []

    def said(message: Any) -> None:  # noqa: ANN401
        refused = refusals and "Failed to load resource" in message.text
        # by `pixels`, and by a browser that draws without GL
        read = re.search("Canvas2D: Multiple readback|GPU stall due to ReadPixels", message.text)
        allowed = refused or read or (without_webgl and message.type == "warning")
        if message.type in ("error", "warning") and not allowed:
            errors.append(message.text)

    def open_view(view: str, address: str = server.address) -> Page:
        page = context.new_page()
        watched.watch(page)
        ours = (f"{address}/", "blob:", "data:")
        page.on("console", said)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda r: None if r.url.startswith(ours) else foreign.append(r.url))
        page.goto(f"{address}/#{view}")
        return page

    yield open_view
    context.close()
    if watched.failed:
        browsers.close()
    assert errors == []
    assert foreign == []


def pixels(page: Page, selector: str) -> list[int]:
    """What a canvas shows: width, height, and its RGBA bytes."""
    width, height, rgba = page.locator(selector).first.evaluate(PIXELS)
    return [width, height, *base64.b64decode(rgba)]


def counts(labels: MedicalImage) -> list[int]:
    """How many voxels have each of the values 0 to 3."""
    return [int((labels.array == label).sum()) for label in range(4)]


def sent_labels(
    page: Page, server: Served, part: str, wanted: Callable[[MedicalImage], bool]
) -> MedicalImage:
    """The label map last sent to a path, once it is the wanted one and the service says it got it.

    A page asks anew after each change, so a request or an answer may still be an older one's.
    """
    end = time.monotonic() + PATIENCE_MS / 1000
    while True:
        content = base64.b64decode(page.evaluate(LAST_LABELS, part) or "")
        arrived = content and hashlib.sha256(content).hexdigest() in server.log.read_text()
        if arrived and wanted(labels := read_image(content, kind="labels")):
            return labels
        assert time.monotonic() < end, f"the service got something else ({len(content)} bytes)"
        page.wait_for_timeout(50)


def settled(page: Page, view: str) -> None:
    """Wait until nothing goes on in a view: what it shows is the answer to what was done last."""
    expect(page.locator(f"#{view} .work").first).to_be_empty()


def slide(page: Page, selector: str, value: float) -> None:
    """Move a slider, with its events."""
    page.locator(selector).fill(str(value))


def held_requests(page: Page, url: str | re.Pattern[str], method: str) -> list[Route]:
    """The requests of a method that the page sends from now on; each waits for a test."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        if route.request.method == method:
            held.append(route)
        else:
            route.continue_()

    page.route(url, hold)
    return held


def sent(page: Page, held: list[Route], number: int) -> Route:
    """The request that is held after so many others."""
    end = time.monotonic() + PATIENCE_MS / 1000
    while len(held) <= number:
        assert time.monotonic() < end, "nothing more is sent"
        page.wait_for_timeout(20)
    return held[number]


def check_accessible(page: Page) -> None:
    """No rule of WCAG 2.2, A and AA, is broken that axe-core can check, light or dark."""
    page.evaluate(AXE.read_text())
    broken = {}
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        broken[theme] = page.evaluate(BROKEN_RULES)
    assert broken == {"light": [], "dark": []}
    assert page.evaluate(IDLE_LABELS) == []


def sample(page: Page, view: str, title: str) -> None:
    page.locator(f"#{view} .sample", has_text=title).click()


def drop(page: Page, selector: str, *paths: Path) -> None:
    """Drop files or folders on an element as a person does."""
    box = page.locator(selector).bounding_box()
    assert box is not None
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    place = {
        "x": box["x"] + min(100, box["width"] / 2),
        "y": box["y"] + min(100, box["height"] / 2),
    }
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})


def saved(page: Page, selector: str, folder: Path) -> Path:
    """The file that a button offers."""
    with page.expect_download() as download:
        page.locator(selector).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path
