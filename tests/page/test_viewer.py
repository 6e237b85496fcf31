"""The viewer: window, zoom, position and value below the pointer, keys, palette; no WebGL."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import FilePayload, Page, expect

from caps_med import samples
from caps_med.images import MedicalImage, encode_image, read_image
from tests.api.projects.conftest import png
from tests.page.conftest import (
    check_accessible,
    held_requests,
    pixels,
    sample,
    sent,
    settled,
    slide,
)

CANVAS = "#segment .view canvas"
WINDOW = "() => [capsMed.segment.volumes[0].cal_min, capsMed.segment.volumes[0].cal_max]"
VOXEL = "() => [...capsMed.segment.frac2vox(capsMed.segment.scene.crosshairPos)]"
ZOOM = "() => capsMed.segment.scene.pan2Dxyzmm[3]"

#: Of each picture of a comparison: its slice, and how that is looked at.
LOOKS = """() => ['segment', 'compare', 'difference'].map(name => {
    const { scene, volumes, opts } = capsMed[name];
    const [{ cal_min, cal_max }, { opacity }] = volumes;
    const slice = capsMed[name].slice().at;
    const drags = opts.mouseEventConfig.leftButton.primary;
    const zoom = scene.pan2Dxyzmm[3].toFixed(3);
    const crosshair = opts.crosshairWidth > 0;
    return [slice, zoom, cal_min, cal_max, crosshair, drags, opacity].join(' ');
})"""

#: How often is drawn when all is reset: NiiVue ends each drawing with `finish`.
DRAWN = """async () => {
    const { gl } = capsMed.segment, { finish } = gl;
    let drawn = 0;
    gl.finish = () => { drawn += 1; return finish.call(gl); };
    document.querySelector('#segment .reset').click();
    for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
    delete gl.finish;
    return drawn;
}"""

#: The brightest value that the picture has on paper.
PRINTED = """() => {
    dispatchEvent(new Event('beforeprint'));
    const canvas = document.querySelector('#segment .view canvas');
    const { width, height } = canvas;
    const paper = new OffscreenCanvas(width, height).getContext('2d');
    paper.drawImage(canvas, 0, 0);
    const { data } = paper.getImageData(0, 0, width, height);
    return data.filter((_, at) => at % 4 < 3).reduce((most, value) => Math.max(most, value));
}"""

#: Buttons of a view whose text goes beyond them.
CUT = """view => [...document.querySelectorAll(`#${view} :is(button, .button)`)]
    .filter(one => one.scrollWidth > one.clientWidth + 1)
    .map(one => one.outerHTML.slice(0, 200))"""
#: How much of the label 1 is seen in a view.
ALPHA = """name => {
    const { lut, min } = capsMed[name].volumes[1].colormapLabel;
    return lut[4 * (1 - min) + 3];
}"""


def wait_for_answer(page: Page) -> None:
    expect(page.locator("#segment .answer")).to_be_visible()


def drag(page: Page, right: int, down: int) -> None:
    """Drag from the middle of the picture."""
    box = page.locator(CANVAS).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + right, y + down, steps=4)
    page.mouse.up()


def boxes(page: Page) -> list[float]:
    """Level and width in the boxes."""
    return [float(page.locator(f"#segment .{name}").input_value()) for name in ("level", "width")]


def contrast_over_white(page: Page, selector: str) -> float:
    """The contrast of a text whose half transparent background lies over bright tissue."""
    colours = "one => [getComputedStyle(one).color, getComputedStyle(one).backgroundColor]"
    said = page.locator(selector).evaluate(colours)
    text, below = ([float(part) for part in re.findall(r"[\d.]+", one)] for one in said)
    *color, share = below
    blended = [share * value + (1 - share) * 255 for value in color]

    def luminance(values: list[float]) -> float:
        linear = [(v / 255 + 0.055) ** 2.4 / 1.055**2.4 for v in values]  # none is nearly black
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    one, two = sorted([luminance(text), luminance(blended)])
    return (two + 0.05) / (one + 0.05)


def test_window_zoom_and_pan(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    first = page.evaluate(WINDOW)
    assert boxes(page) == pytest.approx([sum(first) / 2, first[1] - first[0]], rel=1e-3)
    page.locator("#segment .tool", has_text="Window").click()
    drag(page, 60, -30)  # wider, and brighter
    low, high = page.evaluate(WINDOW)
    assert high - low > 1.1 * (first[1] - first[0])
    assert high + low < sum(first)
    assert boxes(page) == pytest.approx([(low + high) / 2, high - low], rel=1e-3)
    page.locator("#segment .level").fill("500")
    page.locator("#segment .width").fill("300")
    page.locator("#segment .width").blur()
    page.locator(CANVAS).dblclick()  # changes nothing
    assert page.evaluate(WINDOW) == [350, 650]
    for field in ("level", "width"):  # which are left empty
        page.locator(f"#segment .{field}").fill("")
        page.locator(f"#segment .{field}").blur()
    assert boxes(page) == [500, 300]
    assert page.evaluate(WINDOW) == [350, 650]
    expect(page.locator("#segment .preset option", has_text="HU")).to_have_count(0)  # no CT
    page.locator("#segment .zoom-in").click()
    page.locator(CANVAS).press("+")
    assert page.evaluate(ZOOM) == pytest.approx(1.15**2)
    page.locator("#segment .tool", has_text="Pan").click()
    drag(page, 40, 0)
    assert abs(page.evaluate("() => capsMed.segment.scene.pan2Dxyzmm[0]")) > 1
    assert page.evaluate(DRAWN) == 1  # window, zoom and place change together
    assert page.evaluate("() => [...capsMed.segment.scene.pan2Dxyzmm]") == [0, 0, 0, 1]
    assert page.evaluate(WINDOW) == pytest.approx(first, rel=1e-3)


@pytest.mark.parametrize("axes", ["RAS", "LAS", "PIR"])
def test_position_and_value_below_the_pointer(
    opened: Callable[..., Page], axes: str, tmp_path: Path
) -> None:
    """The voxel is that of the file, whichever way its axes run."""
    head = nib.load(samples.T1)
    turned = nib.orientations.ornt_transform(
        nib.io_orientation(head.affine), nib.orientations.axcodes2ornt(axes)
    )
    path = tmp_path / "head.nii.gz"
    nib.save(head.as_reoriented(turned), path)
    page = opened("segment")
    page.locator("#segment .drop input").set_input_files(path)
    wait_for_answer(page)
    place = page.locator("#segment .place")
    expect(place).to_have_text(re.compile(r" mm · voxel .* · \D+$"))  # of the crosshair, its label
    image = read_image(path)
    box, below = page.locator(CANVAS).bounding_box(), place.bounding_box()
    assert box is not None and below is not None
    assert box["y"] + box["height"] <= below["y"]  # the letters at the edge of the picture are seen
    page.mouse.move(box["x"] + box["width"] / 2 + 60, box["y"] + box["height"] / 2 - 70)
    expect(place).to_have_text(re.compile("fluid|matter"))
    position, voxel, value, _ = re.split(r" mm · voxel | · (?=value|\D+$)", place.inner_text())
    index = [int(number) for number in voxel.split(", ")]
    assert image.affine is not None
    x, y, z = (image.affine @ [*index, 1])[:3]
    sides = f"{'L' if x < 0 else 'R'} {abs(x):.1f}", f"{'P' if y < 0 else 'A'} {abs(y):.1f}"
    shown = position.split(" · ")
    for side, wanted in zip(shown, (*sides, f"S {abs(z):.1f}"), strict=True):
        assert side[0] == wanted[0]
        assert float(side[2:]) == pytest.approx(float(wanted[2:]), abs=0.51)  # within the voxel
    assert float(value.removeprefix("value ")) == pytest.approx(image.array[0][tuple(index)])
    assert contrast_over_white(page, "#segment .place") >= 4.5  # WCAG 2.2, 1.4.3


#: The letters of the next drawing in white: what is written where, in pixels from the upper left.
LETTERS = """async () => {
    const viewer = capsMed.segment, found = {};
    const char = viewer.drawChar, colour = viewer.gl.uniform4fv;
    let white = false;
    viewer.gl.uniform4fv = (at, value) => {
        white = [...value].join() === '1,1,1,1';
        return colour.call(viewer.gl, at, value);
    };
    viewer.drawChar = (xy, size, code) => {
        if (white) found[String.fromCodePoint(code)] = [...xy];
        return char.call(viewer, xy, size, code);
    };
    viewer.drawScene();
    await new Promise(requestAnimationFrame); // in which it is drawn, as asked before
    delete viewer.drawChar;
    delete viewer.gl.uniform4fv;
    return found;
}"""


def test_all_sides_are_named(opened: Callable[..., Page]) -> None:
    """In white with a dark edge."""
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    letters = page.evaluate(LETTERS)
    assert sorted(letters) == ["A", "L", "P", "R"]
    assert letters["R"][0] < letters["A"][0] < letters["L"][0]
    assert letters["A"][1] < letters["R"][1] < letters["P"][1]
    page.locator("#segment .side").select_option("neurological")
    letters = page.evaluate(LETTERS)
    assert letters["L"][0] < letters["R"][0]


def test_a_picture_has_no_sides(opened: Callable[..., Page]) -> None:
    """It is shown as its file has it, on whichever side a patient's left was put before."""
    page = opened("segment")
    side = page.locator("#segment .side")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    side.select_option("neurological")
    sample(page, "segment", "Another head")
    expect(page.locator("#segment .title")).to_contain_text("colin27.png")
    expect(side).to_have_count(0)
    box = page.locator(CANVAS).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2 - 60, box["y"] + box["height"] / 2)
    place = page.locator("#segment .place")
    expect(place).to_contain_text("column")
    (column,) = re.findall(r"column (\d+)", place.inner_text())
    assert int(column) < read_image(samples.COLIN27_SLICE).spatial_shape[1] // 2
    sample(page, "segment", "T1 slice")
    expect(page.locator("#segment .title")).to_contain_text("t1.nii.gz")
    expect(side).to_have_value("neurological")
    assert page.evaluate("() => capsMed.segment.opts.isRadiologicalConvention") is False


def test_keys_over_nothing_end_in_no_error(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    for key in ("ArrowUp", "PageUp"):
        page.locator(CANVAS).press(key)
    expect(page.locator("#segment .place")).to_be_empty()


def test_keys_and_their_help(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    canvas = page.get_by_role("application", name="Arrow keys move the crosshair")
    expect(page.locator("#segment .heard").first).to_have_text("Segmenting t1.nii.gz: done")
    before = page.evaluate(VOXEL)
    expect(page.locator("#segment .place")).to_have_attribute("aria-live", "off")
    canvas.press("ArrowUp")
    canvas.press("ArrowRight")  # towards the patient's left
    expect(page.locator("#segment .place")).to_have_attribute("aria-live", "polite")
    expect(page.locator("#segment .place")).to_contain_text(" mm · voxel ")
    after = page.evaluate(VOXEL)
    assert np.subtract(after, before).tolist() == [-1, 1, 0]
    assert 0 < page.evaluate("() => capsMed.segment.opts.crosshairWidth") < 1  # % of the image
    canvas.press("x")
    assert page.evaluate("() => capsMed.segment.opts.crosshairWidth") == 0
    expect(page.locator("#segment .cross")).not_to_be_checked()
    canvas.press("w")
    expect(page.locator("#segment .tool", has_text="Window")).to_have_attribute(
        "aria-pressed", "true"
    )
    page.set_viewport_size({"width": 390, "height": 700})
    page.keyboard.press("?")
    expect(page.locator("#help h2")).to_be_in_viewport()
    expect(page.locator("#help")).to_contain_text("crosshair on or off")
    check_accessible(page)
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_have_count(0)


def test_a_ct_has_presets(opened: Callable[..., Page], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(-1000, 1500, (1, 64, 64, 1)).astype(np.int16)
    file = tmp_path / "ct.nii.gz"
    file.write_bytes(encode_image(MedicalImage(array, np.eye(4), "nifti"), "nifti"))
    page = opened("segment")
    page.locator("#segment input[type=file]").set_input_files(file)
    wait_for_answer(page)
    page.locator("#segment .preset").select_option("Lung")
    assert page.evaluate(WINDOW) == [-1350, 150]
    assert boxes(page) == [-600, 1500]


def test_the_window_of_tiny_values(opened: Callable[..., Page], tmp_path: Path) -> None:
    """Such as those of diffusion in square metres per second."""
    head = read_image(samples.T1)
    file = tmp_path / "diffusion.nii.gz"
    nib.save(nib.Nifti1Image(head.array[0] * 1e-12, head.affine), file)
    page = opened("segment")
    page.locator("#segment input[type=file]").set_input_files(file)
    wait_for_answer(page)
    low, high = page.evaluate(WINDOW)
    assert high < 1.1e-9
    page.locator(CANVAS).press("r")
    assert page.evaluate(WINDOW) == [low, high]


def test_a_file_may_come_before_the_list_of_models(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    file = tmp_path / "slice.nii.gz"
    middle = read_image(samples.COLIN27).array[..., 40:41]
    file.write_bytes(encode_image(MedicalImage(middle, np.eye(4), "nifti"), "nifti"))
    page = opened("segment")
    page.route("**/v1/models", lambda _: None)  # unanswered
    page.reload()
    page.locator("#segment input[type=file]").set_input_files(file)
    expect(page.locator("#segment .busy")).to_contain_text("Reading the models")
    page.unroute("**/v1/models")  # which lets them go on
    wait_for_answer(page)
    expect(page.locator("#segment .title")).to_contain_text("by brain-t1-tissue")


def test_the_crosshair_of_a_sagittal_slice_is_seen(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    """It is as wide as that of other slices: the image is one voxel thin to the right."""
    file = tmp_path / "sagittal.nii.gz"
    head = read_image(samples.COLIN27)
    middle = head.array[:, 44:45]
    file.write_bytes(encode_image(MedicalImage(middle, head.affine, "nifti"), "nifti"))
    page = opened("segment")
    page.locator("#segment input[type=file]").set_input_files(file)
    wait_for_answer(page)
    page.locator("#segment .opacity").fill("0")
    page.evaluate("() => new Promise(drawn => requestAnimationFrame(() => drawn()))")
    shown = np.asarray(Image.open(io.BytesIO(page.locator(CANVAS).screenshot())).convert("RGB"))
    coloured = np.ptp(shown.astype(int), axis=-1) > 60
    assert coloured.any(axis=0).mean() > 0.4 and coloured.any(axis=1).mean() > 0.4


def test_crosshair_and_letters_of_a_narrow_picture_are_seen(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    wide = page.evaluate("() => capsMed.segment.opts.crosshairWidth")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("wide => capsMed.segment.opts.crosshairWidth > wide", arg=wide)
    box, place = (page.locator(one).bounding_box() for one in (CANVAS, "#segment .place"))
    assert box and place and place["height"] > 30  # two lines
    assert box["y"] + box["height"] <= place["y"]


def test_a_palette_for_the_colour_blind(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    swatch = page.locator("#segment .legend .swatch").nth(1)
    colour = "() => [...capsMed.segment.volumes[1].colormapLabel.lut.slice(8, 12)]"
    own = page.evaluate(colour)
    page.locator("#segment .palette").select_option("safe")
    expect(swatch).to_have_css("background-color", "rgb(86, 180, 233)")  # Okabe and Ito's second
    assert page.evaluate(colour) == [86, 180, 233, 255] != own
    page.locator("#segment .legend [type=checkbox]").nth(1).uncheck()
    assert page.evaluate(colour) == [86, 180, 233, 0]
    page.locator("#segment .palette").select_option("model")
    assert page.evaluate(colour) == [*own[:3], 0]  # still hidden


def test_colours_that_mean_something_stay_at_a_high_contrast(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    marks = ("#segment .legend .swatch >> nth=1", "#segment .tool >> nth=0", "nav a >> nth=0")
    plain = ("#segment .legend .swatch >> nth=2", "#segment .tool >> nth=1", "nav a >> nth=1")
    colour = "one => getComputedStyle(one).backgroundColor"
    for dark in (False, True):
        page.emulate_media(forced_colors="active", color_scheme="dark" if dark else "light")
        for one, other in zip(marks, plain, strict=True):
            assert page.eval_on_selector(one, colour) != page.eval_on_selector(other, colour)


def test_the_picture_is_printed(opened: Callable[..., Page]) -> None:
    """WebGL keeps no frame once it is shown."""
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    page.screenshot()
    assert page.evaluate(PRINTED) > 128


def test_two_models_side_by_side(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    sample(page, "segment", "Another head")
    wait_for_answer(page)
    page.locator("#segment .against").select_option("axon-segmentation")
    compared = page.locator("#segment .compared")
    expect(compared).to_be_visible()
    maps = """() => ['segment', 'compare', 'difference'].map(name =>
        [...capsMed[name].volumes[1].img])"""
    page.wait_for_function("() => capsMed.difference?.volumes.length === 2")
    first, second, difference = (np.array(found) for found in page.evaluate(maps))
    wanted = np.select([(first > 0) & (second == 0), (first == 0) & (second > 0),
                        (first > 0) & (second > 0)], [1, 2, 3], 0)  # fmt: skip
    np.testing.assert_array_equal(difference, wanted)
    assert len(np.unique(wanted)) == 4
    expect(compared).to_contain_text(f"differ in {100 * (wanted > 0).mean():.1f} % of the image")
    expect(compared).to_contain_text("only axon-segmentation")
    expect(page.locator("#segment .view .caption")).to_have_text(
        ["brain-t1-tissue", "axon-segmentation", "Difference"]
    )
    page.locator("#segment .legend input").first.uncheck()
    page.wait_for_function(f"() => ({ALPHA})('segment') === 0")
    assert page.evaluate(ALPHA, "compare") == 255  # its first label means something else
    page.locator("#segment .against").select_option("")
    expect(page.locator("#segment .view")).to_have_count(1)


def test_what_is_hidden_stays_so_beside_another_model(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    page.locator("#segment .legend input").first.uncheck()
    page.locator("#segment .against").select_option("brain-tissue")
    expect(page.locator("#segment .compared")).to_be_visible()
    page.wait_for_function(f"() => ({ALPHA})('compare') === 0")


def test_a_download_and_a_comparison_stop_neither_each_other(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    settled(page, "segment")
    held = held_requests(page, "**/segment?format=zip", "POST")
    against, probabilities = (page.locator(f"#segment .{n}") for n in ("against", "probabilities"))
    against.select_option("axon-segmentation")
    other = sent(page, held, 0)
    probabilities.click()
    with page.expect_download():
        sent(page, held, 1).continue_()
    other.continue_()
    expect(page.locator("#segment .compared")).to_be_visible()
    settled(page, "segment")
    probabilities.click()
    content = sent(page, held, 2)
    against.select_option("")
    expect(page.locator("#segment .view")).to_have_count(1)
    with page.expect_download():
        content.continue_()


def test_a_download_ends_in_a_file_whatever_is_asked_for_after_it(
    opened: Callable[..., Page],
) -> None:
    """It is of what was there when it was asked for."""
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    settled(page, "segment")
    held = held_requests(page, "**/segment?format=zip", "POST")
    probabilities = page.locator("#segment .probabilities")
    probabilities.click()
    content = sent(page, held, 0)
    expect(probabilities).to_have_attribute("aria-disabled", "true")
    page.locator("#segment .tta").check()
    sent(page, held, 1).continue_()
    wait_for_answer(page)
    sample(page, "segment", "Another head")
    sent(page, held, 2).continue_()
    expect(page.locator("#segment .title")).to_contain_text("colin27.png")
    with page.expect_download() as download:
        content.continue_()
    assert download.value.suggested_filename == "t1-probabilities.nii.gz"


def test_what_is_compared_is_looked_at_together(opened: Callable[..., Page]) -> None:
    """Pictures side by side are of one slice, however that is chosen, and with one window."""

    def looks() -> str:
        found: list[str] = page.evaluate(LOOKS)
        assert len(set(found)) == 1, found
        return found[0]

    page = opened("segment")
    head = read_image(samples.COLIN27)
    some = encode_image(MedicalImage(head.array[..., 20:26], head.affine), "nifti")
    file = FilePayload(name="some.nii.gz", mimeType="application/gzip", buffer=some)
    page.locator("#segment input[type=file]").set_input_files(file)
    wait_for_answer(page)
    page.locator("#segment .planes").select_option("0")
    slices = page.locator("#segment .through input")
    slide(page, "#segment .through input", 5)
    page.locator("#segment .zoom-in").click()
    page.locator("#segment .cross").uncheck()
    page.locator("#segment .against").select_option("brain-tissue")
    expect(slices).to_have_count(3)
    settled(page, "segment")
    seen = [looks()]
    for number, slice_ in enumerate((1, 2, 4)):
        slices.nth(number).fill(str(slice_))
        seen.append(looks())
        expect(page.locator("#segment .through")).to_have_text([f"Slice {slice_ + 1} of 6"] * 3)
    for change in (".zoom-out", ".tool:text('Window')"):
        page.locator(f"#segment {change}").click()
        seen.append(looks())
    page.locator("#segment .cross").check()
    seen.append(looks())
    box = page.locator("#segment .beside canvas").nth(2).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 90, box["y"] + 90)
    page.mouse.down()
    page.mouse.move(box["x"] + 120, box["y"] + 100, steps=3)
    page.mouse.up()
    seen.append(looks())
    slide(page, "#segment .opacity", 0.8)
    full = looks()
    canvas = page.locator("#segment .beside canvas").nth(1)
    canvas.press("o")
    seen.append(looks())
    canvas.press("o")
    assert looks() == full
    assert len({*seen, full}) == len(seen) + 1  # each did something


def test_another_image_takes_the_comparison_away(opened: Callable[..., Page]) -> None:
    """What lies beside it would be another image's, also where no answer comes."""
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    page.locator("#segment .against").select_option("axon-segmentation")
    page.wait_for_function("() => capsMed.difference?.volumes.length === 2")
    settled(page, "segment")
    page.route("**/v1/images?format=nifti", lambda _: None)  # unanswered
    sample(page, "segment", "Another head")
    expect(page.locator("#segment .busy")).to_contain_text("Segmenting colin27.png")
    shown = "() => ['segment', 'compare', 'difference'].map(name => capsMed[name].volumes.length)"
    assert page.evaluate(shown) == [0, 0, 0]


def test_a_comparison_ends_when_it_is_not_wanted_any_more(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    page.route("**/segment?format=zip", lambda _: None)  # unanswered
    page.locator("#segment .against").select_option("axon-segmentation")
    expect(page.locator("#segment .busy")).to_contain_text("axon-segmentation")
    page.locator("#segment .against").select_option("")
    expect(page.locator("#segment .work").first).to_have_text("Cancelled.")
    expect(page.locator("#segment .view")).to_have_count(1)


#: Nothing that NiiVue waits for has come before `begin` is called.
LATE = """const may = new Promise(then => { window.begin = then; });
    Object.defineProperty(HTMLImageElement.prototype, 'onload', { set(then) {
        this.addEventListener('load', () => may.then(then));
    } })"""


def test_an_image_that_waits_for_webgl_does_not_come_after_another_was_chosen(
    opened: Callable[..., Page],
) -> None:
    page = opened("models")
    page.context.add_init_script(LATE)
    page.reload()
    page.locator("nav a", has_text="Segment").click()
    sample(page, "segment", "T1 slice")
    opacity = page.locator("#segment .opacity")
    expect(opacity).to_be_enabled()  # the image is there, but not yet drawn
    held = held_requests(page, "**/v1/images?format=nifti", "POST")
    sample(page, "segment", "Another head")
    reading = sent(page, held, 0)
    expect(opacity).to_be_disabled()
    page.evaluate("() => window.begin()")
    page.wait_for_function("() => capsMed.segment")
    assert page.evaluate("() => capsMed.segment.volumes.length") == 0
    reading.continue_()
    wait_for_answer(page)
    expect(page.locator("#segment .title")).to_contain_text("colin27.png")
    page.wait_for_function("() => capsMed.segment.volumes.length === 2")


def test_the_focus_of_a_picture_is_seen(opened: Callable[..., Page]) -> None:
    """Inside of it: the figure around it cuts off what lies outside."""
    page = opened("segment")
    canvas = page.locator("#segment canvas[tabindex]")
    canvas.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    expect(canvas).to_be_focused()
    look = "one => { const { outlineWidth, outlineOffset } = getComputedStyle(one); return "
    assert canvas.evaluate(look + "[outlineWidth, outlineOffset] }") == ["2px", "-2px"]


def test_a_narrow_page_shows_the_picture_first(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    page.set_viewport_size({"width": 800, "height": 900})
    picture, controls = (
        page.locator(f"#segment {part}").bounding_box() for part in (".view", "aside")
    )
    assert picture is not None
    assert controls is not None
    assert picture["y"] + picture["height"] <= controls["y"]


def test_at_400_percent_the_page_does_not_scroll_sideways(opened: Callable[..., Page]) -> None:
    """WCAG 2.2, 1.4.10: 320 pixels are 1280 at 400 %. Wide tables scroll by themselves."""
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    page.set_viewport_size({"width": 320, "height": 256})
    table = page.locator("#segment .legend")
    assert table.evaluate("table => table.parentElement.scrollWidth > 320")
    warning = page.locator("#segment .summary").bounding_box()
    assert warning is not None
    assert warning["x"] + warning["width"] <= 320  # and what is said of the image is read at once
    for view in ("segment", "annotate", "synthesize", "classify", "capsules", "train", "models"):
        page.evaluate("view => { location.hash = view }", view)
        expect(page.locator(f"#{view}")).to_be_visible()
        if view == "models":
            expect(page.locator("#models article").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 320, view


def test_text_is_as_large_as_the_browser_is_set_to(opened: Callable[..., Page]) -> None:
    """WCAG 2.2, 1.4.4: at 200 % nothing is cut off, and the page does not scroll sideways."""
    page = opened("segment")
    page.set_viewport_size({"width": 640, "height": 900})
    link = page.locator("nav a").first
    size = "element => parseFloat(getComputedStyle(element).fontSize)"
    before = link.evaluate(size)
    sizes = {"fontSizes": {"standard": 32, "fixed": 26}}
    page.context.new_cdp_session(page).send("Page.setFontSizes", sizes)
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    for view in ("segment", "annotate", "synthesize", "classify", "capsules", "train", "models"):
        page.evaluate("view => { location.hash = view }", view)
        expect(page.locator(f"#{view}")).to_be_visible()
        if view == "models":
            expect(page.locator("#models article").first).to_be_visible()
        assert link.evaluate(size) == 2 * before
        assert page.evaluate("document.documentElement.scrollWidth") == 640, view
        assert page.evaluate(CUT, view) == [], view


class TestWithoutWebGL:
    """The picture is shown by other means, with what to do; nothing waits for ever."""

    NONE = """const create = HTMLCanvasElement.prototype.getContext;
        HTMLCanvasElement.prototype.getContext = function (kind, ...more) {
            return kind === 'webgl2' && !window.allowed ? null : create.call(this, kind, ...more);
        }"""
    #: The first picture that NiiVue waits for, its font, never arrives.
    STUCK = """Object.defineProperty(HTMLImageElement.prototype, 'onload', { set() {} })"""

    @pytest.fixture
    def without_webgl(self) -> bool:
        return True

    def shown(self, page: Page) -> np.ndarray:
        """Image and overlay as drawn without WebGL."""
        wait_for_answer(page)
        expect(page.locator("#segment .lost")).to_contain_text("hardware acceleration")
        width, height, *rgba = pixels(page, "#segment canvas.flat")
        return np.array(rgba, dtype=np.uint8).reshape(height, width, 4)[..., :3]

    def check(self, page: Page) -> None:
        """It is the sample and its label map, the patient's right on the left."""
        found = self.shown(page)
        image = read_image(samples.T1).array[0, ..., 0].T[::-1, ::-1]
        assert found.shape[:2] == image.shape
        assert np.corrcoef(found.mean(axis=-1).ravel(), image.ravel())[0, 1] > 0.9
        assert np.ptp(found.astype(int), axis=-1).max() > 50  # the overlay has colours

    def test_none_at_all_and_then_again(
        self, opened: Callable[..., Page], quick: Callable[[Page], Page]
    ) -> None:
        page = quick(opened("models"))
        page.context.add_init_script(self.NONE)
        page.reload()
        page.locator("nav a", has_text="Segment").click()
        sample(page, "segment", "T1 slice")
        self.check(page)
        check_accessible(page)
        page.evaluate("() => { window.allowed = true; }")
        page.locator("#segment .lost button").click()
        expect(page.locator("#segment .lost")).to_have_count(0)
        page.wait_for_function("() => capsMed.segment?.volumes.length === 2")
        page.evaluate("() => { window.allowed = false; }")
        page.locator("nav a", has_text="Synthesize").click()
        sample(page, "synthesize", "Axon labels")
        expect(page.locator("#synthesize canvas.flat")).to_be_visible()
        page.locator("#synthesize .gallery canvas").first.wait_for()

    def test_what_is_compared_is_of_one_slice(self, opened: Callable[..., Page]) -> None:
        page = opened("models")
        page.context.add_init_script(self.NONE)
        page.reload()
        page.locator("nav a", has_text="Segment").click()
        head = read_image(samples.COLIN27)
        some = encode_image(MedicalImage(head.array[..., 20:26], head.affine), "nifti")
        file = FilePayload(name="some.nii.gz", mimeType="application/gzip", buffer=some)
        page.locator("#segment input[type=file]").set_input_files(file)
        wait_for_answer(page)
        slices = page.locator("#segment .lost input")
        slices.fill("1")
        page.locator("#segment .against").select_option("brain-tissue")
        flat = page.locator("#segment canvas.flat")
        expect(flat).to_have_count(3)
        settled(page, "segment")
        for number, slice_ in enumerate((1, 4, 0)):
            if number:
                slices.nth(number).fill(str(slice_))
            for which in range(3):
                expect(flat.nth(which)).to_have_attribute("aria-label", f"Slice {slice_ + 1} of 6")

    def test_slices_lie_as_webgl_shows_them(
        self, opened: Callable[..., Page], tmp_path: Path
    ) -> None:
        """The front of a sagittal one on the right; the patient's left where it was put."""
        page = opened("models")
        page.context.add_init_script(self.NONE)
        page.reload()
        page.locator("nav a", has_text="Segment").click()
        head = read_image(samples.COLIN27)
        for axis in (0, 2):
            middle = head.array.take([head.spatial_shape[axis] // 2], axis + 1)
            file = tmp_path / f"{axis}.nii.gz"
            file.write_bytes(encode_image(MedicalImage(middle, head.affine, "nifti"), "nifti"))
            page.locator("#segment input[type=file]").set_input_files(file)
            expect(page.locator("#segment .title")).to_contain_text(file.name)
            upright = middle.squeeze().T[::-1]  # columns to the patient's right or front
            wanted = upright if axis == 0 else upright[:, ::-1]
            assert np.corrcoef(self.shown(page).mean(-1).ravel(), wanted.ravel())[0, 1] > 0.9
        page.locator("#segment .side").select_option("neurological")
        assert np.corrcoef(self.shown(page).mean(-1).ravel(), upright.ravel())[0, 1] > 0.9

    def test_one_that_is_lost(self, opened: Callable[..., Page]) -> None:
        page = opened("segment")
        sample(page, "segment", "T1 slice")
        wait_for_answer(page)
        page.evaluate("() => capsMed.segment.gl.getExtension('WEBGL_lose_context').loseContext()")
        self.check(page)

    @pytest.mark.parametrize("refusals", [True])
    def test_an_image_that_it_does_not_take(self, opened: Callable[..., Page]) -> None:
        """Its label map would not be drawn; the next image is drawn by WebGL again."""
        page = opened("segment")
        long = np.tile(np.arange(8, dtype=np.uint8)[:, None] * 30, (1, 2100))
        file = FilePayload(name="صورة 1.png", mimeType="image/png", buffer=png(long))
        page.locator("#segment input[type=file]").set_input_files(file)
        wait_for_answer(page)
        # a name from right to left keeps its own order: it is set apart from what follows it
        expect(page.locator("#segment .title bdi")).to_have_text("صورة 1.png")
        lost = page.locator("#segment .lost")
        expect(lost).to_contain_text("This image is 2100 voxels long")
        width, height, *rgba = pixels(page, "#segment canvas.flat")
        drawn = np.array(rgba).reshape(height, width, 4)[..., :3]
        assert drawn.shape == (8, 2100, 3)
        assert np.ptp(drawn, axis=-1).max() > 50  # the overlay has colours
        broken = FilePayload(name="broken.png", mimeType="image/png", buffer=b"no picture")
        page.locator("#segment input[type=file]").set_input_files(broken)
        expect(page.locator("#segment .work .problem")).to_contain_text("no known format")
        expect(lost).to_have_count(0)
        sample(page, "segment", "T1 slice")
        wait_for_answer(page)
        page.wait_for_function("() => capsMed.segment?.volumes.length === 2")

    def test_one_that_never_begins(self, opened: Callable[..., Page]) -> None:
        page = opened("models")
        page.context.add_init_script(self.STUCK)
        page.clock.install()
        page.reload()
        page.locator("nav a", has_text="Segment").click()
        sample(page, "segment", "T1 slice")
        page.clock.fast_forward(30_000)
        self.check(page)
