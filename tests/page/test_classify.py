"""Classify: classes, atoms that are moved, routing, a region, and what a network lacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import FilePayload, Page, Route, expect

import caps_med
from caps_med.images import MedicalImage, Region, cropped, encode_image
from tests.api.serving import Served
from tests.classifiers import CLASSES, NETWORKS, classifier_card, write_classifiers
from tests.conftest import write_tiny
from tests.page.conftest import (
    PATIENCE_MS,
    check_accessible,
    held_requests,
    models_of,
    pixels,
    sample,
    sent,
    settled,
    slide,
)

VIEW = "#classify"
PICTURE = MedicalImage(
    np.random.default_rng(5).integers(0, 255, (1, 40, 56), dtype=np.uint8), format="png"
)


@pytest.fixture(scope="module")
def classifiers(server: Served) -> Path:
    """Tiny classification models beside the built-in ones, one of them for coronal slices."""
    card = classifier_card(NETWORKS["tiny-efficient"], plane="coronal")
    write_tiny(models_of(server), "tiny-coronal", card)
    turned = {label: f"{name} of the left side\u202e" for label, name in CLASSES.items()}
    card = classifier_card(NETWORKS["tiny-efficient"]).model_copy(update={"labels": turned})
    write_tiny(models_of(server), "tiny-turned", card)
    return write_classifiers(models_of(server))


@pytest.fixture
def classified(opened: Callable[..., Page], classifiers: Path) -> Callable[[str], Page]:
    """The view with the picture, as a model sees it."""
    page = opened("classify")

    def look(model: str) -> Page:
        page.locator(f"{VIEW} select.model").select_option(model)
        file = FilePayload(
            name="noise.png", mimeType="image/png", buffer=encode_image(PICTURE, "png")
        )
        page.locator(f"{VIEW} .drop input").set_input_files(file)
        expect(page.locator(f"{VIEW} .title")).to_contain_text(f"by {model}")
        return page

    return look


def bars(page: Page) -> dict[str, str]:
    """Class -> its row's text."""
    rows = page.locator(f"{VIEW} .classes tbody tr")
    return {row.locator("th").inner_text(): row.inner_text() for row in rows.all()}


def shows(page: Page, selector: str, image: NDArray[np.float32]) -> None:
    """Wait until a canvas shows an image `[C, H, W]` in [0, 1]."""
    level = np.rint(image[0].clip(0, 1) * 255).astype(int)
    for _ in range(PATIENCE_MS // 50):
        width, height, *rgba = pixels(page, selector)
        found = np.array(rgba).reshape(height, width, 4)[..., 0]
        if found.shape == level.shape and np.abs(found - level).max() <= 1:
            return
        page.wait_for_timeout(50)
    pytest.fail(f"{selector} shows something else")


def test_classes_and_every_layer(classified: Callable[[str], Page], classifiers: Path) -> None:
    page, model = classified("tiny-efficient"), caps_med.load_model("tiny-efficient", classifiers)
    answer, inside = model.classify(PICTURE), model.inspect(PICTURE)
    expect(page.locator(f"{VIEW} .title")).to_contain_text(answer.label)
    for name, text in bars(page).items():
        assert f"{100 * answer.probabilities[name]:.1f} %" in text
    assert list(bars(page)) == [one["name"] for one in answer.numbers()["classes"]]
    for kind, count in (("kernels", 32), ("maps", 32), ("lengths-primarycaps", 16)):
        expect(page.locator(f"{VIEW} .{kind} .tile")).to_have_count(count)
    shows(page, f"{VIEW} canvas.input", inside.input)
    page.locator(f"{VIEW} .kernels .tile").nth(7).click()
    large = page.locator(f"{VIEW} dialog.large")
    expect(large.locator("h2")).to_have_text("First convolution: kernel, 7")
    assert pixels(page, f"{VIEW} dialog.large canvas")[:2] == [5, 5]
    page.keyboard.press("Escape")
    expect(large).to_have_count(0)
    check_accessible(page)


def test_a_sample_is_seen_by_its_built_in_model(
    opened: Callable[..., Page], classifiers: Path
) -> None:
    page = opened("classify")
    expect(page.locator(f"{VIEW} .sample", has_text="T1 slice")).to_have_count(0)  # to segment
    sample(page, "classify", "Handwritten digit")
    expect(page.locator(f"{VIEW} .title")).to_have_text("4 by digits")
    expect(page.locator(f"{VIEW} .sliders input")).to_have_count(16)


def test_all_atoms_are_sliders(classified: Callable[[str], Page], classifiers: Path) -> None:
    page, model = classified("tiny-efficient"), caps_med.load_model("tiny-efficient", classifiers)
    answer, drawing = model.classify(PICTURE), f"{VIEW} canvas.reconstruction"
    capsule = list(answer.lengths).index(answer.label)
    pose = answer.poses[capsule].tolist()
    atoms = page.locator(f"{VIEW} .sliders input")
    expect(atoms).to_have_count(16)
    shows(page, drawing, model.draw(capsule, [pose]).reconstructions[0])
    for atom, value in ((2, 0.4), (9, -0.31)):
        slide(page, f"{VIEW} .sliders label:nth-child({atom + 1}) input", value)
        pose[atom] = value
    shows(page, drawing, model.draw(capsule, [pose]).reconstructions[0])
    expect(page.locator(f"{VIEW} .sliders .changed")).to_have_count(2)
    page.locator(f"{VIEW} .reset").click()
    own = answer.poses[capsule].tolist()
    shows(page, drawing, model.draw(capsule, [own]).reconstructions[0])
    other = (capsule + 1) % 3
    page.locator(f"{VIEW} .class").select_option(str(other))
    own = answer.poses[other].tolist()
    shows(page, drawing, model.draw(other, [own]).reconstructions[0])
    page.locator(f"{VIEW} .sheet summary").click()
    expect(page.locator(f"{VIEW} .shifts .tile")).to_have_count(16 * 11)
    own[1] += 0.25  # the last of the second row; names of columns and rows are cells, too
    wanted = model.draw(other, [own]).reconstructions[0]
    shows(page, f"{VIEW} .shifts .tile:nth-child(36) canvas", wanted)


def test_routing_iteration_by_iteration(
    classified: Callable[[str], Page], classifiers: Path
) -> None:
    page, model = classified("tiny-capsnet"), caps_med.load_model("tiny-capsnet", classifiers)
    expect(page.locator(f"{VIEW} .none")).to_contain_text("trained without a decoder")
    inside = model.inspect(PICTURE)
    lengths = inside.lengths["primarycaps"].reshape(2, -1)
    couplings = inside.couplings["primarycaps"].reshape(3, 2, 3, -1)
    expect(page.locator(f"{VIEW} .lines line")).to_have_count(6)
    page.locator(f"{VIEW} .routing summary").click()
    shares = lengths / lengths.sum(1, keepdims=True)
    for iteration in range(3):
        page.get_by_label(str(iteration + 1), exact=True).check()
        expect(page.locator(f"{VIEW} .most")).to_contain_text(f"Iteration {iteration + 1} of 3")
        cells = page.locator(f"{VIEW} .couplings td").all_inner_texts()
        wanted = np.einsum("ijp,ip->ij", couplings[iteration], shares)
        np.testing.assert_allclose([float(c) for c in cells], wanted.ravel(), atol=0.0051)
    page.locator(f"{VIEW} .counted").select_option("longest")
    cells = page.locator(f"{VIEW} .couplings td").all_inner_texts()
    alone = [couplings[2, i, :, p] for i, p in enumerate(lengths.argmax(1))]
    np.testing.assert_allclose([float(c) for c in cells], np.ravel(alone), atol=0.0051)
    check_accessible(page)


def test_a_region_by_pointer_and_keyboard(
    classified: Callable[[str], Page], classifiers: Path
) -> None:
    page, model = classified("tiny-efficient"), caps_med.load_model("tiny-efficient", classifiers)
    pick = page.locator(f"{VIEW} .pick")
    box = pick.bounding_box()
    assert box is not None
    assert box["width"] / box["height"] == pytest.approx(56 / 40, rel=0.02)  # not squeezed
    x, y = (box["x"] + box["width"] * 10.5 / 56, box["y"] + box["height"] * 4.5 / 40)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + box["width"] * 20 / 56, y + box["height"] * 30 / 40)
    page.mouse.up()
    said = page.locator(f"{VIEW} figcaption", has_text="Rows")
    expect(said).to_have_text("Rows 4 to 34, columns 10 to 30")
    for keys, region in (
        ((), Region(4, 10, 31, 21)),
        (("ArrowUp", "ArrowRight"), Region(2, 13, 31, 21)),
        (("Shift+ArrowLeft",), Region(2, 13, 31, 18)),
    ):
        for key in keys:
            pick.press(key)
        row, column, height, width = region
        expect(said).to_have_text(
            f"Rows {row} to {row + height - 1}, columns {column} to {column + width - 1}"
        )
        settled(page, "classify")
        answer = model.classify(cropped(PICTURE, region))
        for name, text in bars(page).items():
            assert f"{100 * answer.probabilities[name]:.1f} %" in text
    pick.press("Escape")
    expect(said).to_have_count(0)
    settled(page, "classify")
    assert f"{100 * max(model.classify(PICTURE).probabilities.values()):.1f} %" in str(bars(page))

    held: list[Route] = []  # a region is chosen before the image has been classified
    page.route("**/classify*", lambda route: route.continue_() if held else held.append(route))
    again = FilePayload(name="again.png", mimeType="image/png", buffer=encode_image(PICTURE, "png"))
    with page.expect_request("**/classify*"):
        page.locator(f"{VIEW} .drop input").set_input_files(again)
    pick.press("ArrowUp")
    expect(page.locator(f"{VIEW} .title")).to_contain_text("by tiny-efficient")
    expect(said).to_have_text("Rows 10 to 29, columns 14 to 41")


def test_a_region_does_not_stop_the_image_that_was_chosen_after_it(
    classified: Callable[[str], Page],
) -> None:
    """Where the region has moved on while it was classified."""
    page = classified("tiny-efficient")
    settled(page, "classify")
    expect(page.locator(f"{VIEW} .sample img:not([src])")).to_have_count(0)
    regions = held_requests(page, path := "**/classify*", "POST")
    page.locator(f"{VIEW} .pick").press("ArrowUp")
    sent(page, regions, 0)
    page.locator(f"{VIEW} .pick").press("ArrowUp")
    samples = held_requests(page, "**/v1/samples/*", "GET")
    sample(page, "classify", "Handwritten digit")
    chosen = sent(page, samples, 0)
    page.unroute(path)
    page.evaluate("() => new Promise(requestAnimationFrame)")
    chosen.continue_()
    size = "() => document.querySelector('#classify .pick img')?.naturalWidth"
    page.wait_for_function(f"() => ![undefined, 0, 56].includes(({size})())")


def nifti(*shape: int) -> FilePayload:
    """A volume of noise with voxels of 1 mm."""
    noise = np.random.default_rng(5).integers(0, 255, (1, *shape), dtype=np.uint8)
    content = encode_image(MedicalImage(noise, np.eye(4), "nifti"), "nifti")
    return FilePayload(name="noise.nii.gz", mimeType="application/gzip", buffer=content)


def shows_slice(page: Page, view: str, slices: str, size: tuple[int, int]) -> None:
    """Which slice of how many a view says that it shows, and its columns and rows."""
    expect(page.locator(f"#{view} .slices")).to_contain_text(slices)
    settled(page, view)
    picture = page.locator(f"#{view} .pick img")
    assert picture.evaluate("image => [image.naturalWidth, image.naturalHeight]") == [*size]


def test_slices_are_those_of_the_models_plane(classified: Callable[[str], Page]) -> None:
    page = classified("tiny-efficient")
    model = page.locator(f"{VIEW} select.model")
    page.locator(f"{VIEW} .drop input").set_input_files(nifti(8, 12, 40))
    expect(page.locator(f"{VIEW} .slices")).to_contain_text("21 of 40")
    page.locator(f"{VIEW} .slices input").fill("30")
    shows_slice(page, "classify", "31 of 40", (8, 12))
    model.select_option("tiny-cnn")
    expect(page.locator(f"{VIEW} .title")).to_contain_text("by tiny-cnn")
    shows_slice(page, "classify", "31 of 40", (8, 12))
    model.select_option("tiny-coronal")
    expect(page.locator(f"{VIEW} .title")).to_contain_text("by tiny-coronal")
    shows_slice(page, "classify", "7 of 12", (8, 40))

    page.goto(f"{page.url.partition('#')[0]}#capsules")
    page.locator("#capsules select.model").select_option("tiny-coronal")
    page.locator("#capsules .drop input").set_input_files(nifti(8, 12, 40))
    expect(page.locator("#capsules .inside")).to_be_visible()
    shows_slice(page, "capsules", "7 of 12", (8, 40))


#: Whether the letters of an element run from left to right.
RISES = """element => {
    const left = at => {
        const range = document.createRange();
        range.setStart(element.firstChild, at);
        range.setEnd(element.firstChild, at + 1);
        return range.getBoundingClientRect().left;
    };
    return left(0) < left(element.textContent.length - 1);
}"""


#: Whether an SVG shows all of its words.
FITS = """svg => [...svg.querySelectorAll('text')].every(text => {
    const { x, width } = text.getBBox();
    return x >= 0 && x + width <= svg.viewBox.baseVal.width;
})"""


def test_a_name_turns_no_words_around_it_and_has_room(classified: Callable[[str], Page]) -> None:
    page = classified("tiny-turned")  # whose names end with the mark to write from right to left
    assert page.locator(f"{VIEW} .title .note").evaluate(RISES)
    assert page.locator(f"{VIEW} .lines").evaluate(FITS)


def test_a_single_slice_is_a_picture_in_any_plane(classified: Callable[[str], Page]) -> None:
    page = classified("tiny-efficient")
    with page.expect_response("**/classify?format=npz"):
        page.locator(f"{VIEW} .drop input").set_input_files(nifti(1, 30, 20))
    expect(page.locator(f"{VIEW} .title")).to_contain_text("by tiny-efficient")
    expect(page.locator(f"{VIEW} .slices")).to_have_count(0)
    picture = page.locator(f"{VIEW} .pick img")
    assert picture.evaluate("image => [image.naturalWidth, image.naturalHeight]") == [30, 20]


class TestUnreadable:
    @pytest.fixture
    def refusals(self) -> bool:
        return True

    def test_the_image_before_goes(self, classified: Callable[[str], Page]) -> None:
        page = classified("tiny-efficient")
        shown, problem = page.locator(f"{VIEW} .pick img"), page.locator(f"{VIEW} .problem")
        expect(shown).to_have_count(1)
        stack = MedicalImage(np.zeros((1, 32, 32, 3), np.uint8), np.eye(4), "nifti")
        content = encode_image(stack, "nifti")
        file = FilePayload(name="stack.nii.gz", mimeType="application/gzip", buffer=content)
        page.locator(f"{VIEW} .drop input").set_input_files(file)
        expect(page.locator(f"{VIEW} .slices")).to_contain_text("2 of 3")
        settled(page, "classify")
        cut = encode_image(PICTURE, "png")[:60]
        file = FilePayload(name="cut.png", mimeType="image/png", buffer=cut)
        page.locator(f"{VIEW} .drop input").set_input_files(file)
        expect(problem).to_contain_text("the file is cut")
        expect(shown).to_have_count(0)
        expect(page.locator(f"{VIEW} .slices")).to_have_count(0)
        expect(page.locator(f"{VIEW} .title")).to_have_count(0)


def test_on_a_narrow_screen_the_next_image_is_chosen_above_the_answer(
    classified: Callable[[str], Page],
) -> None:
    page = classified("tiny-efficient")
    page.set_viewport_size({"width": 390, "height": 844})
    chooser, title, table = (
        page.locator(f"{VIEW} {what}").bounding_box() for what in (".drop", ".title", ".classes")
    )
    assert chooser and title and table and chooser["y"] < title["y"]
    assert table["x"] + table["width"] <= 390
    for cell in page.locator(f"{VIEW} .classes td", has_text="%").all():
        assert (cell.bounding_box() or {"height": 99})["height"] < 48  # one line


def test_what_other_networks_have_and_lack(classified: Callable[[str], Page]) -> None:
    page = classified("tiny-cnn")
    expect(page.locator(f"{VIEW} .none")).to_contain_text("convolutional network: it has no caps")
    expect(page.locator(f"{VIEW} .kernels .tile")).to_have_count(32)
    expect(page.locator(f"{VIEW} .routing")).to_have_count(0)
    classified("tiny-matrix")
    expect(page.locator(f"{VIEW} .routing h2, {VIEW} .lines")).to_have_count(1)
    expect(page.locator(f"{VIEW} .sliders input")).to_have_count(16)
    classified("tiny-colours")
    expect(page.locator(f"{VIEW} canvas.input")).to_have_count(1)
    page.goto(f"{page.url.partition('#')[0]}#capsules")
    page.locator("#capsules select.model").select_option("tiny-cnn")
    content = encode_image(PICTURE, "png")
    file = FilePayload(name="noise.png", mimeType="image/png", buffer=content)
    page.locator("#capsules .drop input").set_input_files(file)
    expect(page.locator("#capsules .none")).to_contain_text("no capsules to show")
    page.locator("#capsules select.model").select_option("tiny-matrix")
    page.locator("#capsules .network button", has_text="primarycaps").click()
    settled(page, "capsules")
    page.locator("#capsules .pick").click()
    expect(page.locator("#capsules .here")).to_contain_text("to convcaps1 are not available")
    page.locator("#capsules .network button", has_text="convcaps2").click()
    expect(page.locator("#capsules .couplings td").first).to_be_visible()
