"""The web page in a real browser: how fast it responds, and pictures of it.

    python -m benchmarks.page [--volume FILE] [--pictures docs/images]

Needs the page (``make page``), Playwright for Python (extra ``dev``) and Chromium, which renders in
software. Prints one row per figure; with ``--pictures`` writes ``page-*.png`` of each view.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from benchmarks.options import benchmark_parser
from benchmarks.serving import serving
from caps_med.images import MedicalImage, encode_image, read_image
from caps_med.samples import COLIN27_SLICE, T1, TISSUE

#: Software rendering, and no call of the browser's own to anywhere; for the page's tests too.
FLAGS = (
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 120_000
CLI = "from caps_med.cli import main; main()"
#: Runs of a figure; the middle one is told.
RUNS = 5
SEGMENT = "/v1/models/brain-t1-tissue/segment"
#: Moves the slider in every frame for two seconds, and counts the different pictures it shows.
SWEEP = """async () => {
    const slider = document.querySelector('#synthesize .position');
    const canvas = document.querySelector('#synthesize .between');
    let shown = 0, before = '';
    const began = performance.now();
    while (performance.now() - began < 2000) {
        await new Promise(requestAnimationFrame);
        slider.value = Math.abs(((performance.now() - began) / 1000) % 2 - 1);
        slider.dispatchEvent(new Event('input', {bubbles: true}));
        const now = document.querySelector('#synthesize .where').textContent
            + canvas.getContext('2d').getImageData(64, 64, 8, 8).data.join();
        shown += now !== before;
        before = now;
    }
    return 1000 * shown / (performance.now() - began);
}"""


def main() -> None:
    """Measure, then take the pictures."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--volume", type=Path, help="NIfTI; else noise of 197 x 233 x 189.")
    parser.add_argument("--pictures", type=Path, help="Folder to write page-*.png into.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, _browser() as browser:
        folder = Path(name)
        (folder / "models").mkdir()
        with serving(folder / "models", folder / "log", {}) as server:
            _overlay(browser, server.address, folder)
            _slider(browser, server.address, folder)
            if arguments.pictures:
                _pictures(browser, server.address, arguments.pictures)
            # last: what was cancelled ends the slice that it is at
            _volume(browser, server.address, arguments.volume or _noise(folder))


@contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


def _open(
    browser: Browser, address: str, view: str, width: int = 1280, theme: str = "light"
) -> Page:
    page = browser.new_page(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if theme == "dark" else "light",
    )
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{address}/#{view}")
    page.locator(f"#{view}").wait_for()
    return page


def _overlay(browser: Browser, address: str, folder: Path) -> None:
    """From choosing a picture of 256 x 256 to its overlay, beside the service's own time."""
    square = np.zeros((256, 256), np.uint8)
    head = np.asarray(Image.open(COLIN27_SLICE))
    square[: head.shape[0], : head.shape[1]] = head[:256, :256]
    file = folder / "square.png"
    Image.fromarray(square).save(file)
    page = _open(browser, address, "segment")
    page.locator("#segment .sample").first.wait_for()
    whole, alone = [], []
    for _ in range(RUNS):
        start = time.perf_counter()
        httpx.post(address + SEGMENT, files={"image": file.read_bytes()}, timeout=60)
        alone.append(time.perf_counter() - start)
        start = time.perf_counter()
        page.locator("#segment input[type=file]").set_input_files(file)
        page.locator("#segment .busy").wait_for()
        page.locator("#segment .busy").wait_for(state="detached")
        page.evaluate("() => new Promise(requestAnimationFrame)")
        whole.append(time.perf_counter() - start)
    beyond = float(np.median(whole) - np.median(alone))
    _tell("overlay on 256 x 256, beyond the service's own answer", beyond, "s")
    _tell("  the service's own answer", float(np.median(alone)), "s")
    page.close()


def _slider(browser: Browser, address: str, folder: Path) -> None:
    """Images a second under the slider at 128 x 128, and how long until there are any."""
    labels = read_image(TISSUE, kind="labels")
    cut = labels.array[:, 35:163, 50:178]
    file = folder / "cut.nii.gz"
    file.write_bytes(encode_image(MedicalImage(cut, labels.affine, "nifti", "labels"), "nifti"))
    page = _open(browser, address, "synthesize")
    page.locator("#synthesize .sample").first.wait_for()
    start = time.perf_counter()
    page.locator("#synthesize input[type=file]").set_input_files(file)
    frames = page.locator("#synthesize .frames")
    expect(frames).to_contain_text("5 images", timeout=PATIENCE_MS)
    _tell("  until 5 images along the slider", time.perf_counter() - start, "s")
    _settled(page, "synthesize")
    start = time.perf_counter()
    _slide(page, "#synthesize .position", 0)
    expect(frames).to_contain_text("17 images", timeout=PATIENCE_MS)
    _tell("  once it is moved, until 17 images", time.perf_counter() - start, "s")
    _tell("different images a second under the slider, 128 x 128", page.evaluate(SWEEP), "")
    page.close()


def _volume(browser: Browser, address: str, file: Path) -> None:
    """Until a volume can be looked at in three planes and 3-D, while its answer is computed."""
    page = _open(browser, address, "segment")
    page.locator("#segment .sample").first.wait_for()
    start = time.perf_counter()
    page.locator("#segment input[type=file]").set_input_files(file)
    page.locator("#segment fieldset:enabled").wait_for()
    page.evaluate("() => new Promise(requestAnimationFrame)")
    shape = page.evaluate("() => [...capsMed.segment.volumes[0].hdr.dims].slice(1, 4)")
    what = "volume of " + " x ".join(map(str, shape))
    _tell(f"{what} in three planes and 3-D", time.perf_counter() - start, "s")
    page.get_by_role("button", name="Cancel").click()
    page.close()


def _noise(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    array = rng.integers(0, 255, (1, 197, 233, 189)).astype(np.int16)
    file = folder / "noise.nii.gz"
    file.write_bytes(encode_image(MedicalImage(array, np.eye(4), "nifti"), "nifti"))
    return file


def _tell(what: str, value: float, unit: str) -> None:
    print(f"{what:<58} {value:8.2f} {unit}", flush=True)


def _pictures(browser: Browser, address: str, folder: Path) -> None:
    """Each view at work, light and dark in turn; one as wide as a tablet."""
    for i, (view, show) in enumerate(VIEWS.items()):
        page = _open(browser, address, view, theme=("light", "dark")[i % 2])
        show(page)
        _settled(page, view)
        _picture(page, folder / f"page-{view}.png")
        page.close()
    page = _open(browser, address, "synthesize", width=820)
    show_synthesize(page)
    _picture(page, folder / "page-tablet.png")
    page.close()


def show_segment(page: Page) -> None:
    """A volume with its label map."""
    page.locator("#segment .sample", has_text="T1 volume").click()
    page.locator("#segment .answer").wait_for()


def show_synthesize(page: Page) -> None:
    """Seeds, and the middle between two of them."""
    page.locator("#synthesize .sample", has_text="Tissue labels").click()
    expect(page.locator("#synthesize .frames")).to_contain_text("5 images", timeout=PATIENCE_MS)
    _settled(page, "synthesize")
    _slide(page, "#synthesize .position", 0.5)
    expect(page.locator("#synthesize .frames")).to_contain_text("17 images", timeout=PATIENCE_MS)


def show_capsules(page: Page) -> None:
    """The last layer, a point, and an atom that has moved."""
    page.locator("#capsules .sample", has_text="T1 slice").click()
    page.locator("#capsules .inside").wait_for()
    page.locator("#capsules .network button").nth(1).click()
    canvas = page.locator("#capsules .pick")
    canvas.click(position={"x": 90, "y": 90})
    page.locator("#capsules .here").wait_for()
    page.locator("#capsules .move .class").select_option("grey matter")
    page.locator("#capsules .move .atom").select_option("3")
    _settled(page, "capsules")
    _slide(page, "#capsules .delta", 0.25)


def show_classify(page: Page) -> None:
    """A digit, one atom of its capsule moved, and the sheet of all atoms."""
    page.locator("#classify .sample", has_text="Handwritten digit").click()
    page.locator("#classify .sliders input").first.wait_for()
    _slide(page, "#classify .sliders label:nth-child(3) input", 0.3)
    page.locator("#classify .sheet summary").click()
    page.locator("#classify .shifts .tile").first.wait_for()
    _settled(page, "classify")


def show_train(page: Page) -> None:
    """A short training on simulated axons, watched to its end."""
    with tempfile.TemporaryDirectory() as name:
        axons = Path(name) / "axons"
        command = ["data", "phantoms", "--kind", "axons", "--count", "8", "--out", str(axons)]
        subprocess.run([sys.executable, "-c", CLI, *command], check=True, capture_output=True)
        archive = shutil.make_archive(str(axons), "zip", axons)
        page.locator("#train [name=archive]").set_input_files(archive)
        page.locator("#train [name=name]").fill("axons")
        page.locator("#train form summary").click()
        for field, value in {"epochs": 4, "steps": 6, "batch_size": 1, "crop": 96}.items():
            page.locator(f"#train [name={field}]").fill(str(value))
        page.locator("#train form .primary").click()
        state = page.locator("#train .job .state")
        expect(state).to_contain_text("succeeded", timeout=2 * PATIENCE_MS)
    page.locator("#train .pictures img").nth(3).wait_for()


def show_models(page: Page) -> None:
    """The built-in models with their samples."""
    buttons = page.get_by_role("button", name="Show a sample")
    buttons.first.wait_for()
    while buttons.count():
        buttons.first.click()
        expect(page.locator("#models .work")).to_be_empty(timeout=PATIENCE_MS)


def show_annotate(page: Page) -> None:
    """Two slices of a project, one of them with a stroke that is not saved yet."""
    page.locator("#annotate form [name=name]").fill("heads")
    page.locator("#annotate [name=model]").select_option("brain-t1-tissue")
    page.locator("#annotate form .primary").click()
    page.locator("#annotate .drop input").set_input_files([COLIN27_SLICE, T1])
    expect(page.locator("#annotate .images tr")).to_have_count(2, timeout=PATIENCE_MS)
    page.locator("#annotate .author").fill("Anna")
    page.locator("#annotate .images .open").first.click()
    standing = page.locator("#annotate .standing")
    expect(standing).to_contain_text("by the model", timeout=PATIENCE_MS)
    canvas = page.locator("#annotate canvas[tabindex]")
    for key in ("1", "x", *["ArrowDown"] * 20, *["Shift+ArrowRight"] * 12):
        canvas.press(key)
    canvas.press("x")
    expect(standing).to_contain_text("kept in this tab", timeout=PATIENCE_MS)


VIEWS = {
    "segment": show_segment,
    "synthesize": show_synthesize,
    "classify": show_classify,
    "capsules": show_capsules,
    "models": show_models,
    "train": show_train,
    "annotate": show_annotate,
}


def _settled(page: Page, view: str) -> None:
    """Wait until nothing goes on in a view."""
    expect(page.locator(f"#{view} .work:not(:empty)")).to_have_count(0, timeout=PATIENCE_MS)


def _slide(page: Page, selector: str, value: float) -> None:
    page.locator(selector).fill(str(value))


def _picture(page: Page, path: Path) -> None:
    page.mouse.move(0, 0)
    page.screenshot(path=path, full_page=True)
    picture = Image.open(path).convert("RGB")
    # the colours of labels too, of which there are few pixels
    few = picture.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=4, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


if __name__ == "__main__":
    main()
