"""Synthesize: a label map in, seeds and what lies between them out."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import caps_med
from caps_med import samples
from caps_med.bundles import ModelRepository, NetworkSpec
from caps_med.images import MedicalImage, encode_image, one_slice, read_image
from tests.api.serving import Served
from tests.conftest import write_tiny
from tests.page.conftest import (
    check_accessible,
    counts,
    held_requests,
    models_of,
    pixels,
    sample,
    saved,
    sent,
    sent_labels,
    settled,
    slide,
)

BETWEEN, POSITION = "#synthesize .between", "#synthesize .position"
PAINT = "#synthesize canvas[tabindex]"


#: The different colours of a picture.
COLOURS = """async image => {
    await image.decode();
    const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
    const context = canvas.getContext('2d');
    context.drawImage(image, 0, 0);
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    const found = new Set();
    for (let i = 0; i < data.length; i += 4) found.add(data.slice(i, i + 3).join());
    return [...found].map(text => text.split(',').map(Number));
}"""
#: How many pixels of each label there are in what is painted.
STROKES = "() => [0, 1, 2, 3].map(id => capsMed.synthesize.drawBitmap.filter(v => v === id).length)"
#: What is cut from the sample: ventricles and what is around them.
CUT = (..., slice(52, 132), slice(92, 188), slice(None))
HEIGHT, WIDTH = 96, 80


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the sample's label map."""
    labels = read_image(samples.TISSUE, kind="labels")
    file = tmp_path_factory.mktemp("cut") / "cut.nii.gz"
    part = MedicalImage(labels.array[CUT], labels.affine, "nifti", kind="labels")
    file.write_bytes(encode_image(part, "nifti"))
    return file


def finest(page: Page) -> None:
    """All images along the slider, of which most come once it is used."""
    settled(page, "synthesize")
    frames = page.locator("#synthesize .frames")
    expect(frames).to_have_text("5 images along the slider, 17 once you move it.")
    slide(page, POSITION, 0)
    expect(frames).to_have_text("17 images along the slider.")
    settled(page, "synthesize")


def strokes(page: Page) -> list[int]:
    """How many pixels of each label there are in what is painted."""
    found: list[int] = page.evaluate(STROKES)
    return found


def sent_drawing(page: Page, server: Served) -> MedicalImage:
    """What is painted now, as the service got it."""
    drawn = strokes(page)
    return sent_labels(page, server, "/synthesize", lambda sent: counts(sent) == drawn)


def tile(seed: int) -> str:
    return f"#synthesize .gallery canvas[aria-label='Seed {seed}']"


def begin_with(page: Page, seed: int) -> None:
    """Another first seed."""
    page.locator("#synthesize .seed").fill(str(seed))
    page.locator("#synthesize .seed").blur()


@pytest.mark.slow
def test_the_sample(opened: Callable[..., Page]) -> None:
    page = opened("synthesize")
    sample(page, "synthesize", "Tissue labels")
    expect(page.locator("#synthesize .gallery figure")).to_have_count(6)
    assert pixels(page, tile(1))[:2] == [197, 233]
    assert pixels(page, tile(1)) != pixels(page, tile(2))
    thumbnail = page.locator("#synthesize .sample img").first.evaluate(COLOURS)
    colours = ModelRepository(Path("none")).find("brain-t1-synthesis").card.shown_colors
    assert {tuple(colour) for colour in thumbnail} == set(colours.values())
    picture = page.locator("#synthesize .original img")
    assert picture.evaluate("image => image.decode().then(() => image.naturalHeight)") == 233
    check_accessible(page)


def test_between_two_seeds(
    opened: Callable[..., Page],
    quick: Callable[[Page], Page],
    server: Served,
    cut: Path,
    tmp_path: Path,
) -> None:
    page = quick(opened("synthesize"))
    page.locator("#synthesize input[type=file]").set_input_files(cut)
    finest(page)
    expect(page.locator("#synthesize .gallery figure")).to_have_count(6)
    assert pixels(page, tile(1))[:2] == [WIDTH, HEIGHT]
    slide(page, POSITION, 0)
    first = pixels(page, BETWEEN)
    assert first == pixels(page, tile(1))
    slide(page, POSITION, 1)
    assert pixels(page, BETWEEN) == pixels(page, tile(2)) != first
    slide(page, POSITION, 0.5)
    assert pixels(page, BETWEEN) not in (first, pixels(page, tile(2)))
    page.get_by_label("to seed 4").click()
    finest(page)
    slide(page, POSITION, 1)
    assert pixels(page, BETWEEN) == pixels(page, tile(4))
    expect(page.get_by_label("to seed 4")).to_have_attribute("aria-pressed", "true")

    with zipfile.ZipFile(saved(page, "#synthesize .save", tmp_path)) as archive:
        content = archive.read("synthetic-seed1.nii.gz")
    wanted = caps_med.load_model("quick-synthesis", models_of(server)).synthesize(cut, seed=1)
    np.testing.assert_array_equal(read_image(content).array, wanted.array)
    assert content == encode_image(wanted, "nifti")


@pytest.mark.slow
def test_what_is_painted_arrives(blank: Page, server: Served) -> None:
    page = blank
    warnings = page.locator("#synthesize .warnings")
    expect(warnings).to_have_text("The label map is empty: all of it is background.")
    empty = pixels(page, tile(1))
    page.locator("#synthesize .pen", has_text="white matter").click()
    page.locator("#synthesize .filled").check()
    box = page.locator(PAINT).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x - 40, y - 40)
    page.mouse.down()
    for right, down in ((40, -40), (40, 40), (-40, 40), (-40, -40)):
        page.mouse.move(x + right, y + down, steps=4)
    page.mouse.up()
    labels = sent_drawing(page, server)
    assert labels.spatial_shape == (128, 128, 1)
    drawn = counts(labels)
    assert drawn[3] > 500
    assert drawn == [128 * 128 - drawn[3], 0, 0, drawn[3]]
    settled(page, "synthesize")
    assert pixels(page, tile(1)) != empty
    expect(warnings).to_contain_text("0% of what is labelled is grey matter")
    nothing = [128 * 128, 0, 0, 0]
    page.keyboard.press("Control+z")
    assert strokes(page) == nothing
    expect(page.locator("#synthesize .undo")).to_be_disabled()
    page.keyboard.press("Control+y")
    assert strokes(page) == drawn
    page.locator("#synthesize .undo").click()
    assert strokes(page) == nothing
    page.keyboard.press("Meta+Shift+z")
    assert strokes(page) == drawn
    page.locator("#synthesize .undo").click()
    assert not sent_drawing(page, server).array.any()


def test_what_is_painted_by_keys_arrives(blank: Page, server: Served) -> None:
    page = blank
    page.locator("#synthesize .pen", has_text="grey matter").click()
    canvas = page.locator(PAINT)
    canvas.press("Space")
    disc = 21  # 5 pixels across
    assert strokes(page)[1:] == [0, disc, 0]
    for _ in range(8):
        canvas.press("ArrowRight")
    canvas.press("Space")
    assert strokes(page)[1:] == [0, 2 * disc, 0]
    ids = sent_drawing(page, server).array[0, ..., 0]
    page.locator("#synthesize .pen", has_text="white matter").click()
    canvas.press("Space")  # over what is there
    assert strokes(page)[1:] == [0, disc, disc]
    sent_drawing(page, server)
    ends = [np.argwhere(ids == 2)[:, axis] for axis in (0, 1)]
    assert [int(np.ptp(end)) for end in ends] == [8 + 4, 4]


def test_a_volumes_slice(
    opened: Callable[..., Page],
    quick: Callable[[Page], Page],
    server: Served,
    cut: Path,
    tmp_path: Path,
) -> None:
    truth = read_image(cut, kind="labels")
    stack = np.concatenate([truth.array, np.zeros_like(truth.array), truth.array], axis=3)
    file = tmp_path / "stack.nii.gz"
    volume = MedicalImage(stack, truth.affine, "nifti", kind="labels")
    file.write_bytes(encode_image(volume, "nifti"))
    page = quick(opened("synthesize"))
    page.locator("#synthesize input[type=file]").set_input_files(file)
    sent_labels(page, server, "/synthesize", lambda sent: not sent.array.any())  # the middle one
    expect(page.locator("#synthesize .slices")).to_contain_text("2 of 3")
    page.locator("#synthesize .slices input").fill("2")
    same = partial(np.array_equal, truth.array)
    sent_labels(page, server, "/synthesize", lambda sent: same(sent.array))


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A label map of 24 axial slices, 40 coronal ones."""
    ids = np.random.default_rng(5).integers(0, 4, (1, 32, 40, 24), dtype=np.uint8)
    file = tmp_path / "volume.nii.gz"
    file.write_bytes(encode_image(MedicalImage(ids, np.eye(4), "nifti", "labels"), "nifti"))
    return file


def test_slices_are_those_of_the_models_plane(
    opened: Callable[..., Page], quick: Callable[[Page], Page], server: Served, volume: Path
) -> None:
    card = ModelRepository(Path("none")).find("brain-t1-synthesis").card
    spec = NetworkSpec(name="CapsPix2Pix", arguments={"atoms": 4, "label_channels": 4})
    changes = {"network": spec, "plane": "coronal"}
    write_tiny(models_of(server), "coronal-synthesis", card.model_copy(update=changes))
    page, truth = quick(opened("synthesize")), read_image(volume, kind="labels")
    page.locator("#synthesize input[type=file]").set_input_files(volume)
    slices = page.locator("#synthesize .slices")
    expect(slices).to_contain_text("13 of 24")
    slices.locator("input").fill("23")
    expect(slices).to_contain_text("24 of 24")
    page.locator("#synthesize select.model").select_option("coronal-synthesis")
    expect(slices).to_contain_text("21 of 40")
    wanted = one_slice(truth, 20, "coronal").array
    sent_labels(page, server, "/synthesize", lambda sent: np.array_equal(sent.array, wanted))

    held = held_requests(page, path := "**/v1/images?format=nifti", "POST")
    page.locator("#synthesize input[type=file]").set_input_files(volume)
    reading = sent(page, held, 0)
    page.locator("#synthesize select.model").select_option("brain-t1-synthesis")
    page.unroute(path)
    reading.continue_()
    expect(slices).to_contain_text("13 of 24")


def test_a_chosen_model_stays_from_slice_to_slice(
    opened: Callable[..., Page], quick: Callable[[Page], Page], tmp_path: Path
) -> None:
    head = read_image(samples.COLIN27)
    file = tmp_path / "slab.nii.gz"
    slab = MedicalImage(head.array[..., 20:23], head.affine, "nifti")
    file.write_bytes(encode_image(slab, "nifti"))
    page = quick(opened("segment"))
    page.locator("#segment input[type=file]").set_input_files(file)
    page.locator("#to-synthesize").click()
    slices, model = (page.locator(f"#synthesize {part}") for part in (".slices", "select.model"))
    expect(slices).to_contain_text("2 of 3")
    settled(page, "synthesize")
    model.select_option("axon-synthesis")
    expect(page.locator("#synthesize .mistaken")).to_contain_text("axon-synthesis")
    settled(page, "synthesize")
    slices.locator("input").fill("2")
    expect(slices).to_contain_text("3 of 3")
    expect(model).to_have_value("axon-synthesis")


def test_the_segmentation_just_made(opened: Callable[..., Page], server: Served) -> None:
    page = opened("segment")
    sample(page, "segment", "Another head")
    expect(page.locator("#segment .answer")).to_be_visible()
    page.locator("#to-synthesize").click()
    wanted = caps_med.load_model("brain-t1-tissue").segment(samples.COLIN27_SLICE).array
    sent_labels(page, server, "/synthesize", lambda sent: np.array_equal(sent.array, wanted))


def test_a_model_that_means_the_same_by_the_labels(
    opened: Callable[..., Page], quick: Callable[[Page], Page]
) -> None:
    page = quick(opened("synthesize"))
    model, mistaken = (
        page.locator("#synthesize select.model"),
        page.locator("#synthesize .mistaken"),
    )
    expect(model).to_have_value("brain-t1-synthesis")
    page.locator("nav a", has_text="Segment").click()
    sample(page, "segment", "Axons")
    page.locator("#to-synthesize").click()
    expect(page.locator("#synthesize .frames")).to_contain_text("images along")
    expect(model).to_have_value("axon-synthesis")
    expect(mistaken).to_have_count(0)
    model.select_option("brain-t1-synthesis")
    expect(mistaken).to_contain_text("in which 1 is axon; brain-t1-synthesis reads it as cere")


#: The first pictures are decoded when `letGo` is called, and then `late` is true.
HELD = """const decode = window.createImageBitmap;
    window.letGo = undefined;
    window.createImageBitmap = async blob => {
        if (window.letGo) return decode(blob);
        await new Promise(then => { window.letGo = then; });
        setTimeout(() => { window.late = true; });
        return decode(blob);
    };"""


def test_an_old_answer_replaces_no_newer_one(
    opened: Callable[..., Page], quick: Callable[[Page], Page]
) -> None:
    page = quick(opened("models"))
    page.context.add_init_script(HELD)
    page.reload()
    page.locator("nav a", has_text="Synthesize").click()
    page.locator("#synthesize .blank").click()
    page.wait_for_function("() => window.letGo")  # the answer is here, but not yet shown
    begin_with(page, 11)
    page.locator(tile(11)).wait_for()
    newer = pixels(page, tile(11))
    page.evaluate("() => window.letGo()")
    page.wait_for_function("() => window.late")
    assert pixels(page, tile(11)) == newer
    expect(page.locator("#synthesize .gallery canvas").first).to_have_attribute(
        "aria-label", "Seed 11"
    )


def expect_width(page: Page, seed: int, width: int) -> None:
    expect(page.locator(tile(seed))).to_have_attribute("width", str(width))


def test_another_seed_does_not_stop_the_label_map_that_was_chosen(
    opened: Callable[..., Page], quick: Callable[[Page], Page]
) -> None:
    page = quick(opened("synthesize"))
    page.locator("#synthesize .blank").click()
    expect_width(page, 1, 128)
    expect(page.locator("#synthesize .sample img:not([src])")).to_have_count(0)
    held = held_requests(page, path := "**/v1/samples/*", "GET")
    sample(page, "synthesize", "Tissue labels")
    chosen = sent(page, held, 0)
    begin_with(page, 11)
    page.unroute(path)
    chosen.continue_()
    expect_width(page, 11, 197)


def test_a_download_and_the_images_that_are_made_stop_neither_each_other(blank: Page) -> None:
    page = blank
    held = held_requests(page, path := "**/synthesize?format=png", "POST")
    begin_with(page, 11)
    images = sent(page, held, 0)
    with page.expect_download():
        page.locator("#synthesize .save").click()
    page.unroute(path)
    images.fallback()
    expect_width(page, 11, 128)
    settled(page, "synthesize")
    files = held_requests(page, "**/synthesize?format=zip", "POST")
    page.locator("#synthesize .save").click()
    file = sent(page, files, 0)
    page.get_by_label("to seed 13").click()
    expect(page.get_by_label("to seed 13")).to_have_attribute("aria-pressed", "true")
    settled(page, "synthesize")
    with page.expect_download():
        file.fallback()


def test_ends_are_not_chosen_in_a_gallery_that_is_being_replaced(blank: Page) -> None:
    page = blank
    held = held_requests(page, path := "**/synthesize?format=png", "POST")
    begin_with(page, 11)
    images = sent(page, held, 0)
    page.get_by_label("to seed 4").click(force=True)
    page.unroute(path)
    images.fallback()
    expect_width(page, 11, 128)


def test_the_ends_stay_when_something_is_painted(blank: Page) -> None:
    page = blank
    for end in ("from seed 3", "to seed 5"):
        page.get_by_label(end).click()
        settled(page, "synthesize")
    page.locator("#synthesize .pen", has_text="grey matter").click()
    with page.expect_response("**/interpolate?format=png") as answer:
        page.locator(PAINT).press("Space")
    assert answer.value.ok
    settled(page, "synthesize")
    for end in ("from seed 3", "to seed 5"):
        expect(page.get_by_label(end)).to_have_attribute("aria-pressed", "true")
    slide(page, POSITION, 0)
    assert pixels(page, BETWEEN) == pixels(page, tile(3))
    begin_with(page, 11)
    page.locator(tile(11)).wait_for()
    settled(page, "synthesize")
    for end in ("from seed 11", "to seed 12"):
        expect(page.get_by_label(end)).to_have_attribute("aria-pressed", "true")


def test_a_file_comes_before_what_was_painted_last(
    opened: Callable[..., Page], quick: Callable[[Page], Page], cut: Path
) -> None:
    """After a reload, while the list of models is awaited."""
    page = quick(opened("synthesize"))
    page.locator("#synthesize .blank").click()
    settled(page, "synthesize")
    page.locator("#synthesize .pen", has_text="grey matter").click()
    page.locator(PAINT).press("Space")
    expect(page.locator("#synthesize .painting")).to_contain_text("Kept in this tab")
    held = held_requests(page, path := re.compile("/v1/models$"), "GET")
    page.reload()
    sent(page, held, 0)
    page.locator("#synthesize input[type=file]").set_input_files(cut)
    sent(page, held, 1)
    held[0].continue_()
    expect(page.locator("#synthesize select.model")).not_to_have_value("")
    page.unroute(path)
    held[1].continue_()
    expect_width(page, 1, WIDTH)


def test_without_a_seed_the_one_before_is_taken(
    opened: Callable[..., Page], quick: Callable[[Page], Page]
) -> None:
    page = quick(opened("models"))
    page.locator("nav a", has_text="Synthesize").click()
    page.locator("#synthesize .seed").fill("7")
    page.locator("#synthesize .seed").fill("")
    with page.expect_response(lambda answer: "/synthesize?" in answer.url) as answer:
        page.locator("#synthesize .blank").click()
    assert answer.value.ok
    page.locator(tile(7)).wait_for()


def test_nothing_is_chosen_yet(opened: Callable[..., Page]) -> None:
    """Buttons that are disabled with the brushes do not say that they are enabled."""
    page = opened("synthesize")
    page.locator("#synthesize .sample").first.wait_for()
    check_accessible(page)
