"""Painting: the brush below the pointer, downloads, what outlives a reload."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import FilePayload, FloatRect, Page, expect

from caps_med import samples
from caps_med.images import MedicalImage, encode_image, read_image
from tests.page.conftest import held_requests, sample, saved, sent, settled
from training.data import open_dataset

PAINT = "#synthesize canvas[tabindex]"
DRAWN = "() => capsMed.synthesize.drawBitmap.reduce((n, v) => n + (v === 3), 0)"
#: As a browser does that is set to block all cookies.
NO_STORAGE = """Object.defineProperty(window, 'sessionStorage', {
    get() { throw new DOMException('Access is denied for this document.', 'SecurityError'); },
});"""
#: Whether the page asks before it is left.
ASKS = """() => {
    const leaving = new Event('beforeunload', { cancelable: true });
    dispatchEvent(leaving);
    return leaving.defaultPrevented;
}"""


def stroke(page: Page, below: int = 0) -> None:
    """One line in the middle of the picture, which the choice of a brush may have scrolled away.

    Args:
        below: so many pixels below the middle.
    """
    page.locator(PAINT).scroll_into_view_if_needed()
    box = page.locator(PAINT).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 + below
    page.mouse.move(x - 30, y)
    page.mouse.down()
    page.mouse.move(x + 30, y + 30, steps=4)
    page.mouse.up()


def choose_brush(page: Page) -> None:
    """White matter, 15 pixels wide."""
    page.locator("#synthesize .pen", has_text="white matter").click()
    page.locator("#synthesize .size").fill("15")


def stroke_in_no_time(page: Page, below: int = 0) -> None:
    """One line as by `stroke`, and the clock stands still: the page tells of a line after a while.

    A paused clock may not go back: it stops a second from now.
    """
    page.clock.pause_at(page.evaluate("Date.now() / 1000 + 1"))
    stroke(page, below)


def paint(page: Page) -> None:
    """Choose white matter, and paint."""
    choose_brush(page)
    stroke(page)


def painted(page: Page) -> int:
    """Choose white matter, paint, and wait until that is kept; how many pixels there are now."""
    paint(page)
    expect(page.locator("#synthesize .painting")).to_contain_text("Kept in this tab")
    found: int = page.evaluate(DRAWN)
    return found


def begin(page: Page) -> int:
    """The sample; how many pixels of white matter it has."""
    sample(page, "synthesize", "Tissue labels")
    page.locator("#synthesize .gallery canvas").first.wait_for()
    settled(page, "synthesize")  # nothing moves below the pointer any more
    found: int = page.evaluate(DRAWN)
    assert found == int((read_image(samples.TISSUE, kind="labels").array == 3).sum())
    return found


def test_a_browser_that_lets_the_page_keep_nothing(
    opened: Callable[..., Page], quick: Callable[[Page], Page]
) -> None:
    page = quick(opened("synthesize"))
    page.add_init_script(NO_STORAGE)
    page.reload()
    before = begin(page)
    assert not page.evaluate(ASKS)
    paint(page)
    expect(page.locator("#synthesize .painting")).to_contain_text(
        "A reload of the page would lose this"
    )
    assert page.evaluate(DRAWN) > before
    assert page.evaluate(ASKS)


@pytest.mark.slow
def test_what_is_painted_outlives_a_reload(
    opened: Callable[..., Page], quick: Callable[[Page], Page], tmp_path: Path
) -> None:
    page = quick(opened("synthesize"))
    before = begin(page)
    now = painted(page)
    assert now > before
    page.reload()
    expect(page.locator("#synthesize .painting")).to_contain_text("restored")
    page.locator("#synthesize .gallery canvas").first.wait_for()
    assert page.evaluate(DRAWN) == now
    expect(page.locator("#synthesize .original")).to_be_visible()
    sample(page, "synthesize", "Axon labels")  # each image has its own
    settled(page, "synthesize")
    expect(page.locator("#synthesize .painting")).to_be_empty()
    sample(page, "synthesize", "Tissue labels")
    expect(page.locator("#synthesize .painting")).to_contain_text("restored")
    assert page.evaluate(DRAWN) == now

    file = saved(page, "#synthesize .map", tmp_path)
    assert file.name == "tissue-labels.nii.gz"
    labels, source = (read_image(path, kind="labels") for path in (file, samples.TISSUE))
    assert int((labels.array == 3).sum()) == now
    assert labels.spatial_shape == source.spatial_shape
    np.testing.assert_allclose(labels.affine, source.affine)
    with zipfile.ZipFile(saved(page, "#synthesize .training-pair", tmp_path)) as archive:
        archive.extractall(tmp_path / "pair")
    found = open_dataset(tmp_path / "pair")
    assert [finding.code for finding in found.findings] == ["too_few"]
    image = read_image(tmp_path / "pair" / "images" / "tissue.nii.gz")
    np.testing.assert_array_equal(image.array, read_image(samples.T1).array)

    page.locator("#synthesize .over").click()
    expect(page.locator("#synthesize .painting")).to_be_empty()
    page.wait_for_function(f"wanted => ({DRAWN})() === wanted", arg=before)
    page.reload()
    expect(page.locator("#synthesize .sample").first).to_be_visible()
    kept = "() => Object.keys(sessionStorage).filter(slot => slot.startsWith('caps-med-paint'))"
    assert len(page.evaluate(kept)) == 0


def test_a_stroke_just_before_a_reload_or_another_label_map_is_kept(
    opened: Callable[..., Page], quick: Callable[[Page], Page]
) -> None:
    page = quick(opened("synthesize"))
    page.clock.install()  # a stroke is told of a while after it is done
    before = begin(page)
    choose_brush(page)
    stroke_in_no_time(page)
    first = page.evaluate(DRAWN)
    assert first > before
    sample(page, "synthesize", "Tissue labels")
    page.clock.resume()
    expect(page.locator("#synthesize .painting")).to_contain_text("restored")
    settled(page, "synthesize")
    assert page.evaluate(DRAWN) == first

    stroke_in_no_time(page, 40)
    second = page.evaluate(DRAWN)
    assert second > first
    page.reload()
    page.clock.resume()
    expect(page.locator("#synthesize .painting")).to_contain_text("restored")
    page.wait_for_function(f"wanted => ({DRAWN})() === wanted", arg=second)


def test_a_stroke_stops_nothing_that_was_chosen_after_it(
    opened: Callable[..., Page], quick: Callable[[Page], Page]
) -> None:
    """Neither a label map nor a download; there are images of what is painted all the same."""
    page = quick(opened("synthesize"))
    page.clock.install()  # a stroke is told of a while after it is done
    first = begin(page)
    told = page.locator("#synthesize .painting")
    held = held_requests(page, "**/v1/samples/*", "GET")
    choose_brush(page)
    stroke_in_no_time(page)
    sample(page, "synthesize", "Tissue labels")
    sent(page, held, 0)
    page.clock.resume()
    expect(told).to_contain_text("Kept in this tab")
    sent(page, held, 0).continue_()
    sent(page, held, 1).continue_()  # the image that it is of
    expect(told).to_contain_text("restored")
    settled(page, "synthesize")
    second = page.evaluate(DRAWN)
    assert second > first
    page.unroute("**/v1/samples/*")

    downloads = held_requests(page, "**/synthesize?format=zip", "POST")
    stroke_in_no_time(page, 40)
    page.locator("#synthesize .save").click()
    sent(page, downloads, 0)
    with page.expect_request("**/synthesize?format=png"):
        page.clock.resume()
    expect(told).to_contain_text("Kept in this tab")
    with page.expect_download():
        sent(page, downloads, 0).continue_()


def test_a_painting_pairs_with_its_synthetic_image(blank: Page, tmp_path: Path) -> None:
    page = blank
    assert painted(page) > 0
    with zipfile.ZipFile(saved(page, "#synthesize .training-pair", tmp_path)) as archive:
        archive.extractall(tmp_path / "pair")
    found = open_dataset(tmp_path / "pair")
    assert [finding.code for finding in found.findings] == ["too_few"]


def test_a_pair_is_of_what_was_painted_when_it_was_asked_for(blank: Page, tmp_path: Path) -> None:
    page = blank
    before = painted(page)
    settled(page, "synthesize")
    held = held_requests(page, "**/synthesize?format=nifti", "POST")
    page.locator("#synthesize .training-pair").click()
    image = sent(page, held, 0)
    stroke(page, 40)
    assert page.evaluate(DRAWN) > before
    with page.expect_download() as download:
        image.fallback()
    download.value.save_as(tmp_path / "pair.zip")
    with zipfile.ZipFile(tmp_path / "pair.zip") as archive:
        labels = read_image(archive.read("labels/painted.nii.gz"), kind="labels")
    assert int((labels.array == 3).sum()) == before


def test_what_is_painted_from_blank_is_found_again(blank: Page) -> None:
    """Who goes to another label map comes back by the same button, and begins anew by the other."""
    page = blank
    now = painted(page)
    assert now > 0
    no_sides = re.compile(r"^column \d+, row \d+ ")
    expect(page.locator("#synthesize .place")).to_have_text(no_sides)
    page.reload()
    expect(page.locator("#synthesize .painting")).to_contain_text("restored")
    expect(page.locator("#synthesize .place")).to_have_text(no_sides)
    settled(page, "synthesize")
    sample(page, "synthesize", "Tissue labels")
    settled(page, "synthesize")
    page.locator("#synthesize .blank").click()
    expect(page.locator("#synthesize .painting")).to_contain_text("restored")
    assert page.evaluate(DRAWN) == now
    page.locator("#synthesize .over").click()
    expect(page.locator("#synthesize .painting")).to_be_empty()
    page.wait_for_function(f"() => ({DRAWN})() === 0")
    page.locator("#synthesize .undo").click()
    page.wait_for_function(f"wanted => ({DRAWN})() === wanted", arg=now)
    expect(page.locator("#synthesize .painting")).to_contain_text("Kept in this tab")


def ring_in_the_middle(page: Page) -> tuple[FloatRect, FloatRect]:
    """Where the picture is, and the brush's ring with the pointer in the middle of it."""
    box = page.locator(PAINT).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    brush = page.locator("#synthesize i.brush").bounding_box()
    assert brush is not None
    return box, brush


def test_the_brush_is_as_large_as_what_it_paints(
    opened: Callable[..., Page], quick: Callable[[Page], Page]
) -> None:
    page = quick(opened("synthesize"))
    begin(page)
    choose_brush(page)
    expect(page.locator("#synthesize .brush-box")).to_contain_text("15 pixels, 15 mm")
    box, brush = ring_in_the_middle(page)
    assert abs(brush["x"] + brush["width"] / 2 - box["x"] - box["width"] / 2) <= 1
    assert brush["width"] == brush["height"]
    # the slice of 197 x 233 mm fills the height of the square
    assert abs(brush["width"] - 15 * box["height"] / 233) < 2
    page.locator(PAINT).press("[")
    expect(page.locator("#synthesize .brush-box")).to_contain_text("13 pixels, 13 mm")
    page.mouse.move(0, 0)
    expect(page.locator("#synthesize i.brush")).to_have_count(0)


def test_the_brush_is_as_high_as_what_it_paints_where_pixels_are_no_squares(
    opened: Callable[..., Page], quick: Callable[[Page], Page]
) -> None:
    page = quick(opened("synthesize"))
    labels = MedicalImage(np.zeros((1, 96, 32, 1), np.uint8), np.diag([1.0, 3.0, 1.0, 1.0]))
    content = encode_image(labels, "nifti")
    file = FilePayload(name="flat.nii.gz", mimeType="application/gzip", buffer=content)
    page.locator("#synthesize input[type=file]").set_input_files(file)
    page.locator("#synthesize .gallery canvas").first.wait_for()
    page.locator("#synthesize .pen", has_text="white matter").click()
    page.locator("#synthesize .size").fill("9")
    expect(page.locator("#synthesize .brush-box")).to_contain_text("9 pixels, 9 to 27 mm")
    _, brush = ring_in_the_middle(page)
    assert brush["height"] == pytest.approx(3 * brush["width"], rel=0.1)
