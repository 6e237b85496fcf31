"""Annotate: a round from images to a model, by pointer, and corrections by keyboard alone."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from playwright.sync_api import FilePayload, Page, Route, expect

from caps_med.images import MedicalImage, encode_image, read_image
from tests.api.projects.conftest import png
from tests.api.serving import Served
from tests.archives import series
from tests.conftest import tiny_binary, write_tiny
from tests.images.codecs.test_dicom_padding import ct
from tests.images.dicom_files import SERIES, placed
from tests.page.conftest import check_accessible, drop, held_requests, models_of, saved, sent
from tests.page.quarters import QUARTERS, expect_quarters, quarters

VIEW = "#annotate"
CANVAS = f"{VIEW} canvas[tabindex]"
STANDING = f"{VIEW} .standing"
SAID = f"{VIEW} .said"
SIZE = (48, 64)  # rows, columns
#: A round as the service tells it, but for its state.
ROUND = {
    "round": 1, "job": "a" * 32, "corrected": 2, "trained_on": 1, "held_out": 1, "model": "better",
    "accepted": True, "message": None, "dice": None, "before": None, "changed": None,
}  # fmt: skip
#: How many voxels of the label 1 there are.
PAINTED = "() => capsMed.annotate.drawBitmap.reduce((n, v) => n + (v === 1), 0)"


@pytest.fixture(scope="module")
def model(server: Served) -> str:
    """A model so small that it learns within seconds."""
    write_tiny(models_of(server), "discs", tiny_binary("SegCaps", "disc"))
    return "discs"


def pictures() -> list[FilePayload]:
    rng = np.random.default_rng(3)
    arrays = [rng.integers(0, 200, SIZE).astype(np.uint8) for _ in range(2)]
    return [
        FilePayload(name=f"disc-{i}.png", mimeType="image/png", buffer=png(array))
        for i, array in enumerate(arrays)
    ]


def stroke(page: Page) -> None:
    """A line from the middle of the picture to beyond its lower edge."""
    box = page.locator(CANVAS).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 40, box["y"] + box["height"] + 20, steps=6)
    page.mouse.up()


def get(page: Page, path: str) -> Any:  # noqa: ANN401
    """What the service answers to a path."""
    answer = page.request.get(path)
    assert answer.ok, answer.text()
    return answer.json()


def put_labels(page: Page, path: str) -> None:
    """Save the first label map of an image, all of it label 1, beside the page."""
    content = png(np.ones(SIZE, np.uint8), "labels")
    put = page.request.put(path, data=content, headers={"If-None-Match": "*"})
    assert put.ok, put.text()


def only_project(page: Page, server: Served, name: str) -> str:
    """The address of the project of this name."""
    found = get(page, f"{server.address}/v1/projects")["projects"]
    (project,) = [one["id"] for one in found if one["name"] == name]
    return f"{server.address}/v1/projects/{project}"


def labels(page: Page, image: str, version: int) -> np.ndarray:
    """A version of an image's label map as the service has it."""
    answer = page.request.get(f"{image}/labels?version={version}")
    return np.asarray(read_image(answer.body(), kind="labels").array[0])


def create(page: Page, name: str, model: str) -> None:
    page.locator(f"{VIEW} form [name=name]").fill(name)
    page.locator(f"{VIEW} [name=model]").select_option(model)
    page.locator(f"{VIEW} form .primary").click()


class TestRound:
    @pytest.fixture
    def refusals(self) -> bool:
        return True

    @pytest.mark.slow
    def test_images_are_corrected_and_learned_from(
        self, opened: Callable[..., Page], server: Served, model: str, tmp_path: Path
    ) -> None:
        page = opened("annotate")
        create(page, "round", model)
        page.locator(f"{VIEW} .drop input").set_input_files(pictures())
        rows = page.locator(f"{VIEW} .images tr")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("unlabelled")
        page.locator(f"{VIEW} .author").fill("anna")
        page.locator(f"{VIEW} .next").click()
        expect(page.locator(STANDING)).to_contain_text("Version 1 by the model")

        most = page.evaluate(PAINTED) > SIZE[0] * SIZE[1] / 2  # it has learned nothing yet
        page.locator(CANVAS).press("0" if most else "1")
        stroke(page)
        expect(page.locator(STANDING)).to_contain_text("kept in this tab")
        painted = page.evaluate(PAINTED)
        page.reload()
        expect(page.locator(STANDING)).to_contain_text("Not saved; restored")
        assert page.evaluate(PAINTED) == painted
        expect(page.locator(f"{VIEW} .author")).to_have_value("anna")
        expect(rows.filter(has_text="not saved")).to_have_count(1)
        check_accessible(page)

        name = page.locator(f"{VIEW} .caption").inner_text()
        project = only_project(page, server, "round")
        (image,) = [
            f"{project}/images/{one['id']}"
            for one in get(page, f"{project}/images")["images"]
            if one["name"] == name
        ]
        self._berta_was_faster(page, image, painted)
        assert [
            (one["version"], one["author"], one["parent"])
            for one in get(page, f"{image}/labels/versions")["versions"]
        ] == [(1, None, None), (2, "berta", 1), (3, "anna", 2)]
        assert int((labels(page, image, 3) == 1).sum()) == painted

        page.locator(f"{VIEW} .save-next").click()
        expect(page.locator(f"{VIEW} .caption")).not_to_have_text(name)
        page.locator(CANVAS).press("n")
        expect(page.locator(SAID)).to_contain_text("There are no more images to correct")
        expect(rows.filter(has_text="corrected")).to_have_count(2)
        self._learn(page)
        self._export(page, tmp_path)

    def _berta_was_faster(self, page: Page, image: str, painted: int) -> None:
        """Somebody saves while anna corrects: hers is taken, brought back, and saved on top."""
        put = page.request.put(
            f"{image}/labels?author=berta",
            data=png(np.ones(SIZE, np.uint8), "labels"),
            headers={"If-Match": '"1"'},
        )
        assert put.ok, put.text()
        page.locator(f"{VIEW} button.save").press("Enter")
        dialog = page.locator("#conflict")
        expect(dialog).to_contain_text("berta has saved in the meantime")
        expect(dialog).to_contain_text(f"differ in {SIZE[0] * SIZE[1] - painted:,} voxels")
        dialog.locator(".take").press("Enter")
        expect(page.locator(f"{VIEW} button.save")).to_be_focused()
        expect(page.locator(STANDING)).to_contain_text("Version 2 by berta")
        assert page.evaluate(PAINTED) == SIZE[0] * SIZE[1]
        page.locator(f"{VIEW} .undo").click()
        assert page.evaluate(PAINTED) == painted
        page.locator(f"{VIEW} button.save").click()
        expect(page.locator(SAID)).to_contain_text("Saved as version 3")

    def _learn(self, page: Page) -> None:
        for field in ("epochs", "steps"):
            page.locator(f"{VIEW} .learn [name={field}]").fill("1")
        page.locator(f"{VIEW} .learn .primary").click()
        expect(page.locator(f"{VIEW} .job .state")).to_be_visible()
        done = page.locator(f"{VIEW} .rounds tr", has_text=re.compile("in use|not better"))
        expect(done).to_have_count(1, timeout=180_000)
        curves = page.locator(f"{VIEW} .curves figure")
        dice, effort = (curves.nth(i).locator("polyline").get_attribute("points") for i in (0, 1))
        assert [len((points or "").split()) for points in (dice, effort)] == [2, 1]

    def _export(self, page: Page, folder: Path) -> None:
        for layout, labels in (("nnunet", "labelsTr/"), ("pairs", "labels/")):
            file = saved(page, f"{VIEW} .export.{layout}", folder)
            assert file.name == f"round-{layout}.zip"
            with zipfile.ZipFile(file) as archive:
                names = archive.namelist()
            assert ("dataset.json" in names) == (layout == "nnunet")
            assert sum(name.startswith(labels) for name in names) == 2


def volume() -> bytes:
    """Dark below, bright above half of the second axis; `[X, Y, Z]` = 20, 24, 9."""
    array = np.zeros((1, 20, 24, 9), np.int16)
    array[:, :, 12:] = 100
    image = MedicalImage(array, np.diag([2.0, 2.0, 3.0, 1.0]), "nifti")
    return encode_image(image, "nifti")


def test_a_volume_is_corrected_by_keyboard(
    opened: Callable[..., Page], server: Served, model: str
) -> None:
    page = opened("models")
    form: Any = {"name": "keys", "model": model}
    project = page.request.post(f"{server.address}/v1/projects", multipart=form).json()["id"]
    path = f"{server.address}/v1/projects/{project}/images"
    part = FilePayload(name="box.nii", mimeType="application/octet-stream", buffer=volume())
    added = page.request.post(path, multipart={"images": part})
    assert added.ok, added.text()
    image = f"{path}/{added.json()['images'][0]['id']}"
    page.locator("nav a", has_text="Annotate").press("Enter")
    page.locator(f"{VIEW} .projects .open", has_text="keys").press("Enter")
    page.locator(f"{VIEW} .predicts").press("Space")
    page.locator(f"{VIEW} .images .open").press("Enter")
    expect(page.locator(STANDING)).to_contain_text("No label map yet")
    canvas = page.locator(CANVAS)

    def press(*keys: str) -> int:
        for key in keys:
            canvas.press(key)
        found: int = page.evaluate(PAINTED)
        return found

    place = page.locator(f"{VIEW} .place")
    expect(place).to_contain_text("background")
    assert press("Space") == 21  # a dot of five pixels across
    expect(place).to_contain_text("disc")
    assert press("t", "Shift+ArrowDown", "Shift+ArrowDown", "Shift+ArrowDown") == 21  # too dark
    assert press("ArrowUp", "ArrowUp", "ArrowUp", "t", "e", "Space") == 0
    expect(place).to_contain_text("background")
    assert press("Control+z", "Control+z") == 0
    assert press("Control+y") == 21
    assert press("f", "0", "Space") == 0  # the region is background again
    assert press("1", "PageDown", "PageDown", "t", "Space") == 20 * 12  # all that is bright
    assert press("Control+z") == 0
    assert press("t", "b", "]", "[", "PageDown", "Space", "PageUp") == 21
    assert press("i") == 21
    expect(page.locator(SAID)).to_contain_text("in two slices")
    assert press("PageUp", "PageUp", "Space", "PageDown", "i") == 4 * 21
    expect(page.locator(SAID)).to_contain_text("42 voxels between slices 2 and 5")
    canvas.press("Control+s")
    expect(page.locator(SAID)).to_contain_text("Saved as version 1")
    found = labels(page, image, 1)
    assert [int((found[..., z] == 1).sum()) for z in range(9)] == [0, 21, 21, 21, 21, 0, 0, 0, 0]

    held: list[Route] = []  # what is painted while a label map is being saved is not saved
    page.route(re.compile(r"/labels\?"), lambda route: held.append(route))
    with page.expect_request(lambda request: request.method == "PUT"):
        canvas.press("Control+s")
    assert press("PageDown", "PageDown", "PageDown", "PageDown", "Space") == 5 * 21
    held[0].continue_()
    expect(page.locator(SAID)).to_contain_text("Saved as version 2")
    expect(page.locator(STANDING)).to_contain_text("Not saved, but kept in this tab")
    assert int((labels(page, image, 2) == 1).sum()) == 4 * 21
    assert press(*["PageUp"] * 7, "Space", "PageDown", "i") == 8 * 21  # from one that is saved
    expect(page.locator(SAID)).to_contain_text("42 voxels between slices 5 and 8")
    brush = page.locator(f"{VIEW} .brush-box")
    expect(brush).to_contain_text("5 pixels, 10 mm")
    page.locator(f"{VIEW} .planes").select_option("Sagittal")
    expect(brush).to_contain_text("5 pixels, 10 to 15 mm")
    canvas.press("?")
    expect(page.locator("#help")).to_contain_text("interpolate between the slices")


def test_only_strokes_are_labelled(opened: Callable[..., Page], server: Served, model: str) -> None:
    page = opened("annotate")
    page.locator(f"{VIEW} form [name=ignore_label]").check()
    create(page, "strokes", model)
    page.locator(f"{VIEW} .drop input").set_input_files(pictures()[:1])
    page.locator(f"{VIEW} .predicts").uncheck()
    page.locator(f"{VIEW} .images .open").click()
    expect(page.locator(STANDING)).to_contain_text("No label map yet.")
    expect(page.locator(f"{VIEW} .pens")).to_contain_text("not labelled")
    canvas = page.locator(CANVAS)
    place = page.locator(f"{VIEW} .place")
    canvas.press("ArrowUp")
    expect(place).to_contain_text("not labelled")
    for key in ("Space", *["ArrowRight"] * 9, "0", "Space"):
        canvas.press(key)
    expect(place).to_contain_text("background")
    for key in ("e", "Space"):  # takes the judgement back
        canvas.press(key)
    expect(place).to_contain_text("not labelled")
    canvas.press("Control+z")
    expect(place).to_contain_text("background")
    canvas.press("b")
    check_accessible(page)
    canvas.press("Control+s")
    expect(page.locator(SAID)).to_contain_text("Saved as version 1")
    project = only_project(page, server, "strokes")
    assert get(page, project)["ignore_label"] == 2
    (image,) = get(page, f"{project}/images")["images"]
    path = f"{project}/images/{image['id']}"
    assert np.bincount(labels(page, path, 1).ravel()).tolist() == [21, 21, 48 * 64 - 42]
    canvas.press("u")
    expect(page.locator(STANDING)).to_contain_text("you changed 1.4 % of the voxels")
    canvas.press("Control+z")
    expect(page.locator(STANDING)).not_to_contain_text("you changed")
    page.locator(f"{VIEW} .unlabel").click()
    canvas.press("1")
    canvas.press("Space")
    canvas.press("Control+s")
    expect(page.locator(SAID)).to_contain_text("Saved as version 2: 100.0 % of the voxels changed")
    assert np.bincount(labels(page, path, 2).ravel()).tolist() == [0, 21, 48 * 64 - 21]


def held_saves(page: Page) -> list[Route]:
    """The label maps that the page sends from now on, none of which arrives."""
    return held_requests(page, re.compile(r"/labels\?"), "PUT")


#: A tab whose storage has no room for corrections.
NO_ROOM = """() => {
    const { setItem } = Storage.prototype;
    Storage.prototype.setItem = function (slot, text) {
        if (slot.startsWith('caps-med-draft:')) throw new Error('quota');
        setItem.call(this, slot, text);
    };
}"""


class TestOtherOrders:
    """What happens while something else goes on."""

    @pytest.fixture
    def without_webgl(self) -> bool:
        return True

    @pytest.fixture
    def page(
        self,
        opened: Callable[..., Page],
        server: Served,
        model: str,
        request: pytest.FixtureRequest,
    ) -> Page:
        """A project of two pictures, of which none is open."""
        page = opened("annotate")
        name = request.node.name
        form: Any = {"name": name, "model": model}
        answer = page.request.post(f"{server.address}/v1/projects", multipart=form)
        self.project = f"{server.address}/v1/projects/{answer.json()['id']}"
        for part in pictures():
            added = page.request.post(f"{self.project}/images", multipart={"images": part})
            assert added.ok, added.text()
        page.reload()
        page.locator(f"{VIEW} .projects .open", has_text=name).click()
        page.locator(f"{VIEW} .predicts").uncheck()
        return page

    def open(self, page: Page, name: str) -> None:
        page.locator(f"{VIEW} .images .open", has_text=name).click()
        expect(page.locator(f"{VIEW} .caption")).to_have_text(name)
        expect(page.locator(STANDING)).to_be_visible()

    def test_no_correction_is_lost_nor_saved_twice(self, page: Page) -> None:
        page.clock.install()
        page.evaluate(NO_ROOM)
        self.open(page, "disc-0.png")
        page.locator(CANVAS).press("Space")
        expect(page.locator(STANDING)).to_contain_text("A reload of the page would lose this")
        self.open(page, "disc-1.png")
        assert page.evaluate(PAINTED) == 0
        self.open(page, "disc-0.png")
        assert page.evaluate(PAINTED) == 21
        expect(page.locator(STANDING)).to_contain_text("A reload of the page would lose this")

        page.evaluate("() => capsMed.annotate.gl.getExtension('WEBGL_lose_context').loseContext()")
        page.locator(f"{VIEW} .lost").wait_for()
        page.keyboard.press("Control+z")  # nothing can be painted
        page.clock.fast_forward(500)  # a stroke is kept after less
        expect(page.locator(STANDING)).to_contain_text("A reload of the page would lose this")
        page.locator(f"{VIEW} .lost button").click()
        expect(page.locator(f"{VIEW} .lost")).to_have_count(0)
        page.wait_for_function("() => capsMed.annotate.difference().changed === 21")
        for key in ("e", "Space"):
            page.locator(CANVAS).press(key)
        page.locator(f"{VIEW} .images .delete").last.click()
        page.keyboard.press("Control+z")  # nor is what lies behind a dialog changed
        page.locator("#confirm button", has_text="Keep it").click()
        assert page.evaluate(PAINTED) == 0
        page.locator(CANVAS).press("Control+z")
        assert page.evaluate(PAINTED) == 21

        held: list[Route] = []
        page.route(re.compile(r"/labels\?"), lambda route: held.append(route))
        with page.expect_request(lambda request: request.method == "PUT"):
            page.locator(CANVAS).press("Control+s")
        page.locator(CANVAS).press("Control+s")  # the key is held down
        page.locator(CANVAS).press("n")
        held[0].continue_()
        expect(page.locator(SAID)).to_contain_text("Saved as version 1")
        assert len(held) == 1
        expect(page.locator("#conflict")).to_have_count(0)

        page.evaluate("() => { window.gone = capsMed.annotate; }")
        page.locator(f"{VIEW} .leave").click()
        page.wait_for_function("() => gone.gl.isContextLost() && !capsMed.annotate")

    @pytest.mark.parametrize("refusals", [True])
    def test_what_is_not_answered_holds_nobody_up(self, page: Page) -> None:
        """It is kept and sent again, while other images are corrected."""
        page.clock.install()
        page.reload()
        page.locator(f"{VIEW} .predicts").uncheck()
        held = held_saves(page)
        self.open(page, "disc-0.png")
        page.locator(CANVAS).press("Space")
        page.locator(CANVAS).press("Control+s")
        first = sent(page, held, 0)
        self.open(page, "disc-1.png")
        rows, sending = page.locator(f"{VIEW} .images tr"), page.locator(f"{VIEW} .sending")
        expect(rows.filter(has_text="disc-0.png")).to_contain_text("being saved")
        expect(sending).to_contain_text("(kept in this tab until then): disc-0.png.")
        page.locator(CANVAS).press("Space")
        first.abort()
        expect(sending).to_contain_text("trying again")
        page.clock.fast_forward(1000)
        sent(page, held, 1).continue_()
        expect(page.locator(SAID)).to_contain_text("disc-0.png is saved as version 1")
        expect(rows.filter(has_text="corrected")).to_have_count(1)
        expect(page.locator(f"{VIEW} .caption")).to_have_text("disc-1.png")
        expect(page.locator(STANDING)).to_contain_text("Not saved, but kept in this tab")
        assert page.evaluate(PAINTED) == 21

        page.locator(CANVAS).press("n")
        last = sent(page, held, 2)
        page.clock.fast_forward(4000)
        expect(page.locator(SAID)).to_contain_text("There are no more images to correct")
        expect(rows.filter(has_text="disc-1.png")).to_contain_text("being saved")
        last.continue_()
        expect(rows.filter(has_text="corrected")).to_have_count(2)
        expect(page.locator(STANDING)).to_contain_text("Version 1 by anonymous.")
        expect(rows.filter(has_text="saved")).to_have_count(0)
        for one in get(page, f"{self.project}/images")["images"]:
            found = labels(page, f"{self.project}/images/{one['id']}", 1)
            assert int((found == 1).sum()) == 21

    @pytest.mark.parametrize("refusals", [True])
    def test_a_conflict_that_is_told_late_is_about_its_own_image(self, page: Page) -> None:
        """The next image, which was being looked for, is not opened below the question."""
        page.clock.install()
        page.reload()
        page.locator(f"{VIEW} .predicts").uncheck()
        self.open(page, "disc-0.png")
        canvas = page.locator(CANVAS)
        canvas.press("Space")
        first = get(page, f"{self.project}/images")["images"][0]["id"]
        put_labels(page, f"{self.project}/images/{first}/labels?author=berta")
        saves = held_saves(page)
        nexts = held_requests(page, re.compile(r"/next\?"), "GET")
        canvas.press("n")
        save = sent(page, saves, 0)
        page.clock.fast_forward(4000)
        following = sent(page, nexts, 0)
        save.continue_()
        dialog = page.locator("#conflict")
        expect(dialog).to_contain_text("berta has saved in the meantime")
        following.continue_()
        expect(page.locator(f"{VIEW} .busy")).to_have_count(0)
        expect(page.locator(f"{VIEW} .caption")).to_have_text("disc-0.png")
        dialog.locator(".keep").click()
        sent(page, saves, 1).continue_()
        expect(page.locator(SAID)).to_contain_text("Saved as version 2")
        assert int((labels(page, f"{self.project}/images/{first}", 2) == 1).sum()) == 21

    @pytest.mark.parametrize("refusals", [True])
    def test_what_is_refused_is_told_while_another_image_is_open(self, page: Page) -> None:
        held = held_saves(page)
        self.open(page, "disc-0.png")
        page.locator(CANVAS).press("Space")
        page.locator(CANVAS).press("Control+s")
        save = sent(page, held, 0)
        self.open(page, "disc-1.png")
        save.fulfill(status=507, json={"code": "disk_full", "detail": "no room", "status": 507})
        expect(page.locator(SAID)).to_have_text(re.compile("disc-0.png.* is not saved: no room"))
        row = page.locator(f"{VIEW} .images tr", has_text="disc-0.png")
        expect(row).to_contain_text("not saved")

    @pytest.mark.parametrize("refusals", [True])
    def test_back_leads_to_the_projects_and_forward_into_this_one(self, page: Page) -> None:
        """What is painted comes along, and what was being saved is told."""
        listed, caption = page.locator(f"{VIEW} .projects"), page.locator(f"{VIEW} .caption")

        def restored() -> None:
            expect(caption).to_have_text("disc-0.png")
            expect(page.locator(STANDING)).to_contain_text("Not saved; restored from this tab")
            assert page.evaluate(PAINTED) == 21
            expect(page.locator(f"{VIEW} .predicts")).not_to_be_checked()

        self.open(page, "disc-0.png")
        page.locator(CANVAS).press("Space")
        page.go_back()
        expect(listed).to_be_visible()
        page.go_forward()
        restored()
        address = page.url
        page.reload()
        restored()
        page.locator("nav a", has_text="Models").click()
        page.reload()
        page.locator("nav a", has_text="Annotate").click()
        restored()
        assert page.url == address

        held = held_saves(page)
        with page.expect_request(lambda request: request.method == "PUT"):
            page.locator(CANVAS).press("Control+s")
        page.locator(f"{VIEW} .leave").click()
        expect(listed).to_be_visible()
        page.go_back()
        restored()
        held[0].continue_()
        expect(page.locator(SAID)).to_contain_text("Saved as version 1")
        expect(page.locator(STANDING)).to_contain_text("Version 1 by anonymous.")
        expect(page.locator(f"{VIEW} .images tr", has_text="corrected")).to_have_count(1)

        page.evaluate("() => { location.hash = `annotate/${'f'.repeat(32)}`; }")
        expect(page.locator(f"{VIEW} .problem")).to_contain_text("there is no project fff")
        listed.locator(".open").first.click()
        expect(page.locator(f"{VIEW} .problem")).to_have_count(0)

    def test_what_is_being_saved_is_not_offered_as_the_next_image(self, page: Page) -> None:
        held = held_saves(page)
        for name in ("disc-0.png", "disc-1.png"):
            self.open(page, name)
            page.locator(CANVAS).press("Space")
            with page.expect_request(lambda request: request.method == "PUT"):
                page.locator(CANVAS).press("Control+s")
        rows = page.locator(f"{VIEW} .images tr")
        expect(rows.filter(has_text="being saved")).to_have_count(2)
        page.locator(f"{VIEW} .next").click()
        expect(page.locator(SAID)).to_contain_text("There are no more images to correct")
        for route in held:
            route.continue_()
        expect(rows.filter(has_text="corrected")).to_have_count(2)

    def delete_first(self, page: Page) -> None:
        page.locator(f"{VIEW} .images .delete").first.click()
        page.locator("#confirm .confirmed").click()

    def test_the_next_image_is_opened_though_the_one_before_is_deleted(self, page: Page) -> None:
        self.open(page, "disc-0.png")
        held = held_requests(page, re.compile(r"/next\?"), "GET")
        page.locator(f"{VIEW} .next").click()
        following = sent(page, held, 0)
        self.delete_first(page)
        expect(page.locator(f"{VIEW} .images tr")).to_have_count(1)
        following.continue_()
        expect(page.locator(f"{VIEW} .caption")).to_have_text("disc-1.png")

    def test_the_next_image_is_opened_though_the_one_before_gets_a_label_map(
        self, page: Page
    ) -> None:
        self.open(page, "disc-0.png")
        held = held_requests(page, re.compile(r"/next\?"), "GET")
        page.locator(f"{VIEW} .next").click()
        following = sent(page, held, 0)
        content = png(np.ones(SIZE, np.uint8), "labels")
        part = FilePayload(name="disc-0.png", mimeType="image/png", buffer=content)
        page.locator(f"{VIEW} .labels input").set_input_files(part)
        expect(page.locator(f"{VIEW} .told")).to_have_text("1 of 1 label maps is saved.")
        following.continue_()
        expect(page.locator(f"{VIEW} .caption")).to_have_text("disc-1.png")

    def test_who_has_left_a_project_is_not_led_back(
        self, page: Page, request: pytest.FixtureRequest
    ) -> None:
        """By the image that was deleted in it, or another project that is created."""
        self.open(page, "disc-0.png")
        held = held_requests(page, re.compile(r"/images/[0-9a-f]+$"), "DELETE")
        self.delete_first(page)
        deletion = sent(page, held, 0)
        page.locator(f"{VIEW} .leave").click()
        listed = page.locator(f"{VIEW} .projects")
        listed.wait_for()
        projects = held_requests(page, re.compile(r"/v1/projects$"), "POST")

        def answered(route: Route) -> None:
            with page.expect_response(route.request.url) as answer:
                route.continue_()
            answer.value.finished()
            page.evaluate("() => new Promise(requestAnimationFrame)")  # in which it would be shown

        answered(deletion)
        assert page.url.endswith("#annotate")
        expect(listed).to_be_visible()
        create(page, "late", "discs")
        creation = sent(page, projects, 0)
        listed.locator(".open", has_text=request.node.name).click()
        expect(page.locator(f"{VIEW} .project h2")).to_contain_text(request.node.name)
        answered(creation)
        expect(page.locator(f"{VIEW} .project h2")).to_contain_text(request.node.name)

    def test_an_upload_goes_on_when_its_project_is_left(
        self, page: Page, request: pytest.FixtureRequest
    ) -> None:
        held = held_requests(page, re.compile(r"/images$"), "POST")
        page.locator(f"{VIEW} .drop input").set_input_files(pictures())
        upload = sent(page, held, 0)
        page.locator(f"{VIEW} .leave").click()
        row = page.locator(f"{VIEW} .projects tr", has_text=request.node.name)
        expect(row).to_contain_text("Uploading 2 images")
        lists = held_requests(page, re.compile(r"/images\?"), "GET")
        row.locator(".open").click()
        expect(page.locator(f"{VIEW} .project")).to_contain_text("0 of 2 corrected")
        for route in lists:
            route.continue_()
        page.unroute(re.compile(r"/images\?"))
        expect(page.locator(f"{VIEW} .busy")).to_contain_text("Uploading 2 images")
        rows = page.locator(f"{VIEW} .images tr")
        expect(rows).to_have_count(2)
        page.locator(f"{VIEW} .leave").click()
        upload.continue_()
        expect(row.locator("td").nth(3)).to_have_text("4")
        expect(row).not_to_contain_text("Uploading")
        row.locator(".open").click()
        expect(rows).to_have_count(4)

    @pytest.mark.parametrize("refusals", [True])
    def test_an_upload_that_is_interrupted_goes_on_with_the_others(self, page: Page) -> None:
        """Those of a request that arrived without an answer are not added twice."""
        content = pictures()[0]["buffer"]
        files = [
            FilePayload(name=f"{i}.png", mimeType="image/png", buffer=content) for i in range(32)
        ]
        requests = 0

        def lose(route: Route) -> None:
            nonlocal requests
            requests += route.request.method == "POST"
            if route.request.method == "POST" and requests > 1:
                route.fetch()
                route.abort()
            else:
                route.continue_()

        page.route(re.compile(r"/images$"), lose)
        page.locator(f"{VIEW} .drop input").set_input_files(files)
        told = page.locator(f"{VIEW} .told")
        expect(told).to_have_text(f"Not added: {', '.join(f'{i}.png' for i in range(15, 32))}.")
        page.unroute(re.compile(r"/images$"))
        page.locator(f"{VIEW} .others").click()
        expect(told).to_have_count(0)
        expect(page.locator(f"{VIEW} .others")).to_have_count(0)
        rows = page.locator(f"{VIEW} .images tr")
        expect(rows).to_have_count(34)
        names = rows.locator(".open").all_inner_texts()
        assert sorted(names[2:]) == sorted(file["name"] for file in files)

    def test_an_upload_goes_on_when_more_is_chosen_or_an_image_deleted(self, page: Page) -> None:
        held = held_requests(page, re.compile(r"/images$"), "POST")
        for files in (pictures(), pictures()[:1]):
            page.locator(f"{VIEW} .drop input").set_input_files(files)
        upload = sent(page, held, 0)
        expect(page.locator(f"{VIEW} .told")).to_contain_text("Other files are being uploaded")
        rows = page.locator(f"{VIEW} .images tr")
        rows.last.locator(".delete").click()
        page.locator("#confirm .confirmed").click()
        expect(rows).to_have_count(1)
        expect(page.locator(f"{VIEW} .busy")).to_contain_text("Uploading 2 images")
        upload.continue_()
        expect(rows).to_have_count(3)

    @pytest.mark.parametrize("refusals", [True])
    def test_a_deletion_that_fails_is_told_before_another_one_begins(self, page: Page) -> None:
        """Of images, and of projects."""
        for path, rows in (("images", ".images tr"), ("projects", ".projects tr")):
            held = held_requests(page, re.compile(rf"/{path}/[0-9a-f]+$"), "DELETE")
            delete = page.locator(f"{VIEW} {rows} .delete").last
            delete.click()
            page.locator("#confirm .confirmed").click()
            deletion = sent(page, held, 0)
            expect(delete).to_have_attribute("aria-disabled", "true")
            delete.click(force=True)
            expect(page.locator("#confirm")).to_have_count(0)
            why = {"title": "locked", "code": "locked", "detail": "it is in use", "status": 409}
            deletion.fulfill(status=409, json=why)
            expect(page.locator(f"{VIEW} .problem")).to_contain_text("it is in use")
            expect(delete).to_have_attribute("aria-disabled", "false")
            if path == "images":
                page.locator(f"{VIEW} .leave").click()

    def test_images_that_are_opened_without_webgl_keep_their_own_label_maps(
        self, page: Page
    ) -> None:
        """Where it is back, what was painted on another one is on none of them."""

        def opened_without(*names: str) -> None:
            lose = "() => capsMed.annotate.gl.getExtension('WEBGL_lose_context').loseContext()"
            page.evaluate(lose)
            page.locator(f"{VIEW} .lost").wait_for()
            for name in names:
                self.open(page, name)

        def again() -> int:
            page.locator(f"{VIEW} .lost button").click()
            page.wait_for_function("() => capsMed.annotate?.drawBitmap")
            found: int = page.evaluate(PAINTED)
            return found

        self.open(page, "disc-0.png")
        page.locator(CANVAS).press("Space")
        standing = page.locator(STANDING)
        expect(standing).to_contain_text("kept in this tab")
        opened_without("disc-1.png")
        assert again() == 0
        expect(standing).to_have_text(re.compile(r"^No label map yet\.\s*$"))
        opened_without("disc-0.png")
        assert again() == 21
        expect(standing).to_contain_text("Not saved, but kept in this tab")

        held = held_saves(page)
        page.locator(CANVAS).press("Control+s")
        save = sent(page, held, 0)
        opened_without("disc-1.png", "disc-0.png")
        save.continue_()
        expect(page.locator(SAID)).to_contain_text("Saved as version 1")
        expect(standing).to_have_text(re.compile(r"^Version 1 by anonymous\.\s*$"))
        assert again() == 21

    def test_the_image_that_is_opened_is_in_sight(self, page: Page) -> None:
        """On a phone the list of images lies far below."""
        page.set_viewport_size({"width": 390, "height": 700})
        files = held_requests(page, re.compile(r"format=nifti"), "GET")
        page.locator(f"{VIEW} .images .open", has_text="disc-1.png").press("Enter")
        file = sent(page, files, 0)
        expect(page.locator(CANVAS)).to_be_in_viewport(ratio=0.9)
        expect(page.locator(f"{VIEW} .view .empty")).to_have_text("Opening disc-1.png")
        file.continue_()
        expect(page.locator(f"{VIEW} .caption")).to_have_text("disc-1.png")
        expect(page.locator(CANVAS)).to_be_in_viewport(ratio=0.9)

    @pytest.mark.parametrize("bits", [8, 16])
    def test_a_picture_is_shown_in_its_colours(self, page: Page, bits: int) -> None:
        """Or one of them, below its label map; by WebGL and without it."""
        page.locator(f"{VIEW} .drop input").set_input_files(quarters("colours.png", bits))
        self.open(page, "colours.png")
        expect_quarters(page, VIEW)
        page.locator(f"{VIEW} .channel").select_option("green")
        expect_quarters(page, VIEW, QUARTERS[..., [1]].repeat(3, -1))
        page.locator(CANVAS).press("f")
        page.locator(CANVAS).press("Space")
        page.locator(f"{VIEW} .channel").select_option("in colour")
        label = np.array(get(page, self.project)["colors"]["1"])
        expect_quarters(page, VIEW, 0.55 * QUARTERS + 0.45 * label)
        page.locator(CANVAS).press("Control+z")
        page.evaluate("() => capsMed.annotate.gl.getExtension('WEBGL_lose_context').loseContext()")
        page.locator(f"{VIEW} canvas.flat").wait_for()
        expect_quarters(page, VIEW)
        page.locator(f"{VIEW} .channel").select_option("green")
        expect_quarters(page, VIEW, QUARTERS[..., [1]].repeat(3, -1))
        page.locator(f"{VIEW} .channel").select_option("in colour")
        page.locator(f"{VIEW} .lost button").click()
        page.locator(CANVAS).wait_for()
        expect_quarters(page, VIEW)
        self.open(page, "disc-0.png")
        expect(page.locator(f"{VIEW} .channel")).to_have_count(0)
        assert page.evaluate("() => capsMed.annotate.volumes.length") == 1

    def test_the_channel_that_is_told_is_the_one_that_is_shown(self, page: Page) -> None:
        """Where another one is not wanted any more, too."""
        page.locator(f"{VIEW} .drop input").set_input_files(quarters("colours.png", 8))
        self.open(page, "colours.png")
        held = held_requests(page, re.compile(r"channel=1"), "GET")
        channel = page.locator(f"{VIEW} .channel")
        channel.select_option("green")
        sent(page, held, 0)
        page.locator(f"{VIEW} .busy button").click()
        expect(channel).to_have_value("")
        expect_quarters(page, VIEW)
        page.unroute(re.compile(r"channel=1"))
        channel.select_option("green")
        expect_quarters(page, VIEW, QUARTERS[..., [1]].repeat(3, -1))
        expect(channel).to_have_value("1")

    def test_another_channel_does_not_stop_a_prediction(self, page: Page) -> None:
        """Nor does it come into another image that is opened before it is there."""
        page.locator(f"{VIEW} .drop input").set_input_files(quarters("colours.png", 8))
        self.open(page, "colours.png")
        held = held_requests(page, re.compile("/predict$"), "POST")
        page.locator(f"{VIEW} .predict").click()
        prediction = sent(page, held, 0)
        channel = page.locator(f"{VIEW} .channel")
        channel.select_option("green")
        expect(channel).to_have_value("1")
        expect_quarters(page, VIEW, QUARTERS[..., [1]].repeat(3, -1))
        prediction.continue_()
        expect(page.locator(STANDING)).to_contain_text("Version 1 by the model")

        held = held_requests(page, re.compile("channel=2"), "GET")
        channel.select_option("blue")
        late = sent(page, held, 0)
        self.open(page, "disc-0.png")
        total = "() => capsMed.annotate.volumes[0].img.reduce((sum, value) => sum + value, 0)"
        before = page.evaluate(total)
        late.continue_()
        expect(page.locator(f"{VIEW} .busy")).to_have_count(0)
        assert page.evaluate(total) == before

    @pytest.mark.parametrize("refusals", [True])
    def test_a_prediction_that_is_cancelled_is_nobody_elses(self, page: Page) -> None:
        """The service may have saved it all the same."""
        self.open(page, "disc-0.png")
        held = held_requests(page, re.compile("/predict$"), "POST")
        page.locator(f"{VIEW} .predict").click()
        url = sent(page, held, 0).request.url
        page.locator(f"{VIEW} .busy button").click()
        assert page.request.post(url).status == 201
        page.locator(CANVAS).press("Space")
        page.locator(CANVAS).press("Control+s")
        expect(page.locator(SAID)).to_contain_text("Saved as version 2")
        assert int((labels(page, url.removesuffix("/predict"), 2) == 1).sum()) == 21
        page.unroute_all(behavior="ignoreErrors")

    @pytest.mark.parametrize("refusals", [True])
    def test_what_cannot_be_predicted_is_corrected_from_nothing(self, page: Page) -> None:
        """A large volume may take longer than one call may."""
        late = {"title": "timeout", "code": "timeout", "detail": "no answer in time", "status": 504}
        refused = re.compile("/predict$")
        page.route(refused, lambda route: route.fulfill(status=504, json=late))
        page.locator(f"{VIEW} .predicts").check()
        self.open(page, "disc-0.png")
        expect(page.locator(STANDING)).to_contain_text("No label map yet")
        expect(page.locator(SAID)).to_have_text(
            re.compile("disc-0.png.* could not be predicted: no answ")
        )

        def somebody_was_faster(route: Route) -> None:
            put_labels(page, route.request.url.replace("/predict", "/labels?author=berta"))
            route.continue_()

        page.unroute(refused)
        page.route(refused, somebody_was_faster)
        self.open(page, "disc-1.png")
        expect(page.locator(STANDING)).to_contain_text("Version 1 by berta")
        expect(page.locator(SAID)).to_have_count(0)

    @pytest.mark.parametrize("refusals", [True])
    def test_why_an_image_is_not_opened_is_told_where_it_would_be(self, page: Page) -> None:
        for one in get(page, f"{self.project}/images")["images"]:
            assert page.request.delete(f"{self.project}/images/{one['id']}").ok
        page.set_viewport_size({"width": 390, "height": 700})
        page.locator(f"{VIEW} .images .open", has_text="disc-1.png").press("Enter")
        told = page.locator(f"{VIEW} .view .empty")
        expect(told).to_contain_text("Opening disc-1.png: ")
        expect(told).to_be_in_viewport()

    def test_the_focus_stays_in_the_view(self, page: Page, request: pytest.FixtureRequest) -> None:
        """The button that leads to another project goes with the list."""
        focused = "() => document.activeElement.closest('section')?.id"
        page.locator(f"{VIEW} .leave").press("Enter")
        page.locator(f"{VIEW} .projects .open", has_text=request.node.name).press("Enter")
        page.locator(f"{VIEW} .leave").wait_for()
        page.wait_for_function(f"async () => ({focused})() === 'annotate'")

    def test_what_was_doubtful_about_an_image_is_told(self, page: Page) -> None:
        part = FilePayload(name="ct.dcm", mimeType="application/dicom", buffer=ct(-2000))
        page.locator(f"{VIEW} .drop input").set_input_files(part)
        self.open(page, "ct.dcm")
        told = page.locator(f"{VIEW} .warnings")
        expect(told).to_contain_text("DICOM: padding (Pixel Padding Value) was set to the backgr")
        self.open(page, "disc-0.png")
        expect(told).to_have_count(0)

        def unlike(route: Route) -> None:
            route.fulfill(json={**route.fetch().json(), "warnings": ["the image is unlike"]})

        def versions_unlike(route: Route) -> None:
            found = route.fetch().json()
            for version in found["versions"]:
                if version["kind"] == "prediction":
                    version["warnings"] = ["the image is unlike"]
            route.fulfill(json=found)

        page.route(re.compile("/predict$"), unlike)
        page.route(re.compile("/labels/versions"), versions_unlike)
        page.locator(f"{VIEW} .predict").click()
        expect(told).to_have_text("The image is unlike.")
        self.open(page, "disc-1.png")
        expect(told).to_have_count(0)
        page.locator(f"{VIEW} .predicts").check()
        self.open(page, "disc-0.png")
        expect(told).to_have_text("The image is unlike.")
        page.locator(CANVAS).press("e")  # the model takes all for a disc
        page.locator(CANVAS).press("Space")
        expect(page.locator(STANDING)).to_contain_text("Not saved, but kept in this tab")
        page.reload()
        expect(page.locator(STANDING)).to_contain_text("restored from this tab")
        expect(told).to_have_text("The image is unlike.")
        page.locator(CANVAS).press("Control+s")
        expect(page.locator(SAID)).to_contain_text("Saved as version")
        expect(told).to_have_text("The image is unlike.")

    def test_files_that_are_dropped_together_are_one_image_where_they_belong_together(
        self, page: Page, tmp_path: Path
    ) -> None:
        files = {f"head/{n}.dcm": one for n, one in enumerate(series.slices())}
        for number in (4, 5):
            made = series.slices(f"{SERIES}.{number}", SeriesNumber=number, Modality="MR")
            files |= {f"both/{number}{n}": one for n, one in enumerate(made)}
        unplaced: dict[str, Any] = dict.fromkeys(placed(0.0))
        files |= {f"both/x{n}.dcm": one for n, one in enumerate(series.slices(**unplaced)[:2])}
        study = tmp_path / "study"
        for name, content in files.items():
            (study / name).parent.mkdir(parents=True, exist_ok=True)
            (study / name).write_bytes(content)
        (study / "both" / "disc.png").write_bytes(pictures()[0]["buffer"])
        scan = read_image([*study.glob("head/*")])
        nib.save(nib.Nifti1Pair(scan.array[0], scan.affine), study / "both" / "scan.img")
        page.locator(VIEW).get_by_label("Patient of the next images").fill(" p 1 ")
        drop(page, f"{VIEW} .drop", study)
        rows = page.locator(f"{VIEW} .images tr")
        expect(rows).to_have_count(2 + 7)
        expect(rows.get_by_text("patient p 1")).to_have_count(7)
        added = get(page, f"{self.project}/images")["images"][2:]
        kept = {
            one["name"]: read_image(page.request.get(f"{self.project}/images/{one['id']}").body())
            for one in added
        }
        wanted = {
            "head.dcm": study.glob("head/*"),
            "both-series4.dcm": study.glob("both/4*"),
            "both-series5.dcm": study.glob("both/5*"),
            "x0.dcm": [study / "both" / "x0.dcm"],
            "x1.dcm": [study / "both" / "x1.dcm"],
            "disc.png": [study / "both" / "disc.png"],
            "scan.hdr": [study / "both" / "scan.hdr"],
        }
        assert kept.keys() == wanted.keys()
        for name, image in kept.items():
            given = read_image([*wanted[name]])
            assert (image.array == given.array).all() and np.allclose(image.affine, given.affine)

    def test_a_long_name_hides_nothing(self, page: Page) -> None:
        """Neither the columns beside it, nor its own end."""
        long = FilePayload(**{**pictures()[0], "name": f"{'x' * 190}.png"})
        page.locator(f"{VIEW} .drop input").set_input_files(long)
        rows = page.locator(f"{VIEW} .images tr")
        expect(rows).to_have_count(3)
        room = "one => one.scrollWidth - one.clientWidth"
        assert page.locator(f"{VIEW} .listed").evaluate(room) == 0
        rows.nth(2).locator(".open").click()
        assert page.locator(f"{VIEW} .caption").evaluate(room) == 0
        ends = page.locator(f"{VIEW} .caption bdi").evaluate("one => one.offsetWidth")
        assert ends <= page.locator(f"{VIEW} .view").evaluate("one => one.clientWidth")

    def test_what_is_dropped_where_nothing_is_taken(self, page: Page, tmp_path: Path) -> None:
        (file := tmp_path / "disc.png").write_bytes(pictures()[0]["buffer"])
        page.locator(f"{VIEW} .leave").click()
        page.locator(f"{VIEW} .projects").wait_for()
        drop(page, f"{VIEW} .stage", file)
        told = page.get_by_role("alert")
        expect(told).to_have_text("Files cannot be dropped here: open a project or another view.")
        page.locator("nav a", has_text="Segment").click()
        expect(told).to_have_count(0)

    @pytest.mark.parametrize("refusals", [True])
    def test_label_maps_that_there_are_are_added_and_images_deleted(
        self, page: Page, request: pytest.FixtureRequest
    ) -> None:
        rows, told = page.locator(f"{VIEW} .images tr"), page.locator(f"{VIEW} .told")
        small, drawn = (png(np.ones(size, np.uint8), "labels") for size in ((9, 9), SIZE))
        parts = [
            FilePayload(name=name, mimeType="image/png", buffer=content)
            for name, content in (
                ("disc-1.png", small),
                ("disc-0.png", drawn),
                ("other.png", drawn),
            )
        ]
        self.open(page, "disc-0.png")
        page.locator(f"{VIEW} .labels input").set_input_files(parts)
        expect(told).to_have_text(
            "1 of 3 label maps is saved. disc-1.png: the label map has the size (9, 9), but its "
            "image (48, 64): resample it to the image's voxels first. "
            "other.png: no image has this name."
        )
        expect(rows.filter(has_text="corrected")).to_have_count(1)
        expect(page.locator(STANDING)).to_contain_text("Version 1 by anonymous.")
        assert page.evaluate(PAINTED) == SIZE[0] * SIZE[1]
        page.locator(f"{VIEW} .labels input").set_input_files(parts[1:2])
        expect(told).to_contain_text("disc-0.png: its image is already corrected")
        check_accessible(page)

        broken = FilePayload(name="notes.txt", mimeType="text/plain", buffer=b"no image")
        page.locator(f"{VIEW} .drop input").set_input_files([broken, parts[2]])
        expect(told).to_contain_text("1 of 2 images is added. notes.txt: the content is of no")
        expect(rows).to_have_count(3)
        rows.last.locator(".delete").click()
        page.go_back()  # an open dialog of a view that is hidden holds up nothing
        expect(page.locator("#confirm")).to_have_count(0)
        page.go_forward()
        self.open(page, "disc-0.png")
        held: list[Route] = []
        page.route(re.compile(r"/images\?"), lambda route: held.append(route), times=1)
        for view in ("Models", "Annotate"):
            page.locator("nav a", has_text=view).click()
        late = sent(page, held, 0).fetch()
        rows.last.locator(".delete").click()
        page.locator("#confirm .confirmed").click()
        expect(rows).to_have_count(2)
        with page.expect_response(re.compile(r"/images\?")) as answered:
            held[0].fulfill(response=late)
        answered.value.finished()
        page.evaluate("() => new Promise(requestAnimationFrame)")  # in which it would be shown
        expect(rows).to_have_count(2)

        delete, dialog = rows.first.locator(".delete"), page.locator("#confirm")
        delete.press("Enter")
        dialog.get_by_role("button", name="Keep it").press("Enter")
        expect(delete).to_be_focused()
        expect(dialog).to_have_count(0)
        expect(rows).to_have_count(2)
        delete.press("Enter")
        expect(dialog).to_contain_text("All versions of its label map")
        dialog.locator(".confirmed").press("Enter")
        expect(rows).to_have_count(1)
        expect(page.locator(f"{VIEW} .caption")).to_have_count(0)
        assert page.url.endswith(self.project.rpartition("/")[2])

        page.locator(f"{VIEW} .leave").click()
        project = page.locator(f"{VIEW} .projects tr", has_text=request.node.name)
        project.locator(".delete").click()
        held = held_requests(page, re.compile(r"/projects/[0-9a-f]+$"), "DELETE")
        dialog.locator(".confirmed").click()
        deletion = sent(page, held, 0)
        expect(page.locator(f"{VIEW} .busy")).to_contain_text("Deleting")
        expect(page.locator(f"{VIEW} .busy button")).to_have_count(0)  # the service goes on
        deletion.continue_()
        expect(project).to_have_count(0)
        assert page.request.get(self.project).status == 404
        page.go_back()
        expect(page.locator(f"{VIEW} .problem")).to_contain_text("there is no project")
        expect(page.locator(f"{VIEW} .project")).to_have_count(0)

    def test_the_model_of_a_round_that_is_over_is_told(self, page: Page) -> None:
        """Its stream breaks off at once."""
        over = False

        def rounds(route: Route) -> None:
            route.fulfill(json={"rounds": [{**ROUND, "state": "finished" if over else "training"}]})

        def project(route: Route) -> None:
            found = route.fetch().json()
            route.fulfill(json={**found, "model": "better" if over else found["model"]})

        page.route(re.compile(r"/rounds$"), rounds)
        page.route(self.project, project)
        page.route(re.compile("/events$"), lambda route: route.fulfill(body="event: end\n\n"))
        job = {"state": "running", "progress": {}, "scores": []}
        page.route(re.compile("/training-jobs/a+$"), lambda route: route.fulfill(json=job))
        page.locator("nav a", has_text="Models").click()
        page.locator("nav a", has_text="Annotate").click()
        expect(page.locator(f"{VIEW} .job .state")).to_be_visible()
        over = True
        expect(page.locator(f"{VIEW} .rounds tr", has_text="in use")).to_have_count(1)
        expect(page.locator(f"{VIEW} .project .note")).to_contain_text("better")
        page.unroute_all(behavior="wait")  # what is still asked for

    @pytest.mark.parametrize("refusals", [True])
    def test_a_round_or_zip_that_is_cancelled_while_it_is_made(self, page: Page) -> None:
        """The round begins, and ends; the zip does not come."""
        ended = False

        def rounds(route: Route) -> None:
            found = [{**ROUND, "state": "cancelled", "accepted": None}] if ended else []
            route.fulfill(json={"rounds": found})

        def end(route: Route) -> None:
            nonlocal ended
            ended = route.request.method == "DELETE"
            route.fulfill(json={})

        page.route(re.compile(r"/rounds$"), rounds)
        page.route(re.compile("/training-jobs/a+$"), end)
        held = held_requests(page, re.compile("/learn$"), "POST")
        page.locator(f"{VIEW} .learn .primary").click()
        learn = sent(page, held, 0)
        cancel = page.locator(f"{VIEW} .busy button")
        cancel.click()
        learn.fulfill(status=202, json={**ROUND, "state": "training"})
        expect(page.locator(f"{VIEW} .rounds tr")).to_contain_text("cancelled")

        one = get(page, f"{self.project}/images")["images"][0]["id"]
        put_labels(page, f"{self.project}/images/{one}/labels")
        for view in ("Models", "Annotate"):
            page.locator("nav a", has_text=view).click()
        zips = held_requests(page, re.compile(r"/export\?"), "GET")
        page.locator(f"{VIEW} .export.pairs").click()
        sent(page, zips, 0)
        cancel.click()
        expect(page.locator(f"{VIEW} .work")).to_contain_text(["Cancelled."])
        expect(page.locator(f"{VIEW} .busy")).to_have_count(0)
        page.unroute_all(behavior="ignoreErrors")

    def test_why_a_round_has_failed_is_told(self, page: Page) -> None:
        why = "the data have errors: all of them"
        failed = {**ROUND, "state": "failed", "message": why}
        page.route(re.compile(r"/rounds$"), lambda route: route.fulfill(json={"rounds": [failed]}))
        page.locator("nav a", has_text="Models").click()
        page.locator("nav a", has_text="Annotate").click()
        expect(page.locator(f"{VIEW} .rounds .why")).to_have_text(why)
        page.unroute_all(behavior="wait")

    def test_what_was_chosen_at_random_for_want_of_scores_is_told(self, page: Page) -> None:
        used = "random"

        def chosen(route: Route) -> None:
            route.fulfill(json={**route.fetch().json(), "strategy": used})

        page.route(re.compile(r"/next\?"), chosen)
        page.locator(f"{VIEW} .next").click()
        expect(page.locator(SAID)).to_contain_text("at random: the model has not scored")
        used = "uncertainty"
        page.locator(f"{VIEW} .next").click()
        expect(page.locator(SAID)).to_have_count(0)
        expect(page.locator(STANDING)).to_be_visible()
        page.unroute_all(behavior="wait")
