"""Train: findings, a run that is watched, a model that is used, a run that is cancelled."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import FilePayload, Page, Route, expect

from tests.api.jobs import zipped
from tests.page.conftest import check_accessible, drop, held_requests, sample, saved
from tests.training.data.classified_files import class_folders, digits

JOB = "#train .job"


def fill(page: Page, name: str, archive: bytes, **values: str) -> None:
    page.locator("#train [name=name]").fill(name)
    file = FilePayload(name="data.zip", mimeType="application/zip", buffer=archive)
    page.locator("#train [name=archive]").set_input_files(file)
    page.locator("#train form summary").click()
    for field, value in values.items():
        page.locator(f"#train [name={field}]").fill(value)
    page.locator("#train form .primary").dblclick()  # as people do


def test_one_archive_is_taken(opened: Callable[..., Page], tmp_path: Path) -> None:
    """Of two the one was shown and the other one sent."""
    files = [tmp_path / "one.zip", tmp_path / "two.zip"]
    for file in files:
        file.write_bytes(b"PK")
    page = opened("train")
    field = page.locator("#train [name=archive]")
    drop(page, "#train .stage", *files)
    expect(page.get_by_role("alert")).to_have_text("Drop one file here; 2 were dropped.")
    assert field.evaluate("one => one.files.length") == 0
    check_accessible(page)
    drop(page, "#train .stage", files[0])
    expect(page.locator("#train .drop")).to_contain_text("one.zip")
    expect(page.get_by_role("alert")).to_have_count(0)


#: Whether a field is valid, and what the browser says if it is not.
SAID = "field => [field.checkValidity(), field.validationMessage]"


def test_what_the_form_offers_and_takes(opened: Callable[..., Page]) -> None:
    page = opened("train")
    form = page.locator("#train form")
    form.locator("summary").click()
    expect(form.locator("[name=network] option")).to_have_text(
        ["convcaps (default)", "convcaps-plain", "ucaps", "ucaps-plain", "onlycaps",
         "onlycaps-plain", "segcaps", "segcaps-normalized", "segcaps-plain", "unet"]
    )  # fmt: skip
    expect(form.locator("[name=start_from] option", has_text="brain-t1-tissue")).to_have_count(1)
    expect(form.locator("[name=start_from]")).not_to_contain_text("brain-t1-synthesis")
    sent = "form => new FormData(form).get('randomize')"
    assert form.evaluate(sent) is None
    form.locator("[name=randomize]").check()
    assert form.evaluate(sent) == "true"
    form.locator("[name=learning_rate]").check()
    assert form.evaluate("form => new FormData(form).get('learning_rate')") == "auto"
    form.locator("[name=task]").select_option("synthesis")
    expect(form.locator("[name=randomize]")).to_have_count(0)
    expect(form.locator("[name=network] option")).to_have_text(
        ["capspix2pix (default)", "capspix2pix-plain", "pix2pix", "spade"]
    )
    expect(form.locator("[name=start_from]")).to_contain_text("brain-t1-synthesis")
    expect(form.locator("[name=start_from]")).not_to_contain_text("brain-t1-tissue")
    expect(form.locator("[name=epochs]")).to_have_value("")  # the recipe's
    for name, wrong, right, said in (
        ("name", "My Model", "my-model-2", "Lower-case letters, digits and hyphens"),
        ("crop", "65", "72", "A multiple of 8 from 64 to 1024"),
        ("epochs", "0", "", "A whole number from 1 to 10,000"),
    ):
        field = form.locator(f"[name={name}]")
        field.fill(wrong)
        valid, message = field.evaluate(SAID)
        assert not valid
        assert message.startswith(said)
        field.fill(right)
        assert field.evaluate(SAID) == [True, ""]


def test_ensembles_are_nothing_to_start_from(opened: Callable[..., Page]) -> None:
    page = opened("train")
    choice = page.locator("#train [name=start_from]")
    expect(choice).to_contain_text("brain-t1-tissue")

    def answered(route: Route) -> None:
        found = route.fetch().json()
        for model in found["models"]:
            model["ensemble"] = model["name"] == "brain-t1-tissue"
        route.fulfill(json=found)

    page.route("**/v1/models", answered)
    page.reload()
    expect(choice).to_contain_text("axon-segmentation")
    expect(choice).not_to_contain_text("brain-t1-tissue")


def test_a_field_that_does_not_fit_is_shown(opened: Callable[..., Page]) -> None:
    """Also one in details that were closed again."""
    page = opened("train")
    details, field = page.locator("#train form details"), page.locator("#train [name=crop]")
    details.locator("summary").click()
    field.fill("65")
    details.locator("summary").click()
    expect(field).to_be_hidden()
    page.locator("#train form .primary").click()
    expect(field).to_be_focused()
    assert page.locator("#train .busy").count() == 0


@pytest.mark.slow
def test_a_model_is_trained_and_used(opened: Callable[..., Page], discs: Path) -> None:
    page = opened("train")
    expect(page.locator("#train [name=data]")).to_have_value("mni152")
    page.locator("#train [name=network]").select_option("segcaps")
    fill(page, "discs", zipped(discs), epochs="2", steps="2", batch_size="1", crop="64")
    listed = page.locator("#train .jobs tr", has_text="discs")
    expect(listed).to_contain_text("running")
    expect(page.locator(f"{JOB} .state")).to_contain_text("succeeded", timeout=180_000)
    expect(listed).to_have_count(1)
    expect(listed).to_contain_text("succeeded")
    curves = page.locator(f"{JOB} .curves figure")
    for curve, name, unit in zip(
        curves.all(), ("Training loss", "Dice on held-out data"), ("mean over the epoch", "Dice"),
        strict=True,
    ):  # fmt: skip
        expect(curve.locator("figcaption")).to_contain_text(name)
        for axis, said in (("text", "epoch"), ("text", unit), ("text.across", "2")):
            expect(curve.locator(axis, has_text=re.compile(f"^{said}$"))).to_have_count(1)
        points = curve.locator("polyline").get_attribute("points") or ""
        assert len(points.split()) == 2
        assert curve.locator("text.up").count() >= 2
    picture = page.locator(f"{JOB} .pictures img").first
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    check_accessible(page)
    page.locator(f"{JOB} .use").click()
    expect(page.locator("#segment select.model")).to_have_value("discs")
    with page.expect_response("**/v1/models/discs/segment*") as answered:
        sample(page, "segment", "Another head")
    assert answered.value.headers["caps-med-model"] == "discs"


@pytest.mark.slow
def test_a_classifier_is_trained_and_used(opened: Callable[..., Page], tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "digits", digits(40, kinds=2), digits(4, 2, start=40))
    page = opened("train")
    page.locator("#train [name=task]").select_option("classification")
    expect(page.locator("#train [name=data] option")).to_have_count(0)  # mni152 has no classes
    expect(page.locator("#train [name=crop]")).to_have_count(0)
    chosen = {"epochs": "2", "steps": "2", "batch_size": "4", "image_size": "20"}
    fill(page, "zero-or-one", zipped(folder), **chosen)
    expect(page.locator(f"{JOB} .state")).to_contain_text("succeeded", timeout=180_000)
    accuracy = page.locator(f"{JOB} .curves figure", has_text="accuracy on held-out data")
    assert len((accuracy.locator("polyline").get_attribute("points") or "").split()) == 2
    report = saved(page, f"{JOB} .report", tmp_path)
    assert report.name == "zero-or-one-report.html"
    assert "images held out" in report.read_text()
    page.locator(f"{JOB} .use").click()
    expect(page.locator("#classify select.model")).to_have_value("zero-or-one")
    picture = FilePayload(
        name="0.png", mimeType="image/png", buffer=next(folder.rglob("*.png")).read_bytes()
    )
    page.locator("#classify .drop input").set_input_files(picture)
    expect(page.locator("#classify .classes tbody tr")).to_have_count(2)
    expect(page.locator("#classify .sliders input")).to_have_count(16)


def test_the_focus_stays_where_it_was(opened: Callable[..., Page]) -> None:
    page = opened("train")
    held = held_requests(page, "**/v1/training-jobs", "POST")
    start, cancel = page.locator("#train form .primary"), page.locator("#train .busy button")
    expect(page.locator("#train [name=data]")).to_have_value("mni152")
    expect(page.locator("#train [name=name]")).to_have_css("color", "rgb(27, 33, 38)")  # no hint
    start.press("Enter")
    expect(start).to_have_attribute("aria-disabled", "true")
    page.keyboard.press("Enter")
    expect(start).to_be_focused()
    page.keyboard.press("Tab")
    expect(cancel).to_be_focused()
    page.keyboard.press("Enter")
    expect(cancel).to_have_count(0)
    expect(start).to_be_focused()
    expect(start).to_have_attribute("aria-disabled", "false")
    assert len(held) == 1


def test_a_run_is_cancelled(opened: Callable[..., Page], discs: Path) -> None:
    page = opened("train")
    fill(page, "long", zipped(discs), epochs="5000", steps="2", batch_size="1", crop="64")
    expect(page.locator(f"{JOB} .cancel")).to_be_visible()
    page.locator(f"{JOB} .cancel").click()
    expect(page.locator(f"{JOB} .state")).to_contain_text("cancelled")
    expect(page.locator("#train .jobs")).to_contain_text("cancelled")
    page.reload()  # the job is part of the address
    expect(page.locator(f"{JOB} .state")).to_contain_text("cancelled")
    page.go_back()
    expect(page.locator(JOB)).to_have_count(0)
    page.locator("#train .jobs tr", has_text="long").get_by_role("button").click()
    expect(page.locator(f"{JOB} .state")).to_contain_text("cancelled")


def test_what_to_look_at_in_data_that_are_trained_on(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    for number, name in enumerate(("benign", "malignant")):
        (tmp_path / name).mkdir()
        for image in range(6):  # the first of each class are the same
            grey = np.full((24, 24), 100 * bool(image) + 10 * number * bool(image) + image)
            Image.fromarray(grey.astype(np.uint8)).save(tmp_path / name / f"{image}.png")
    page = opened("train")
    page.locator("#train [name=task]").select_option("classification")
    fill(page, "alike", zipped(tmp_path), epochs="5000")
    findings = page.locator("#train .findings")
    expect(findings.locator("h2")).to_have_text("Check the data")
    expect(findings).to_contain_text("is the same image as benign/0.png, but of class malignant")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator("#train .jobs")).to_contain_text("classification")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator(f"{JOB} .cancel").click()
    expect(page.locator(f"{JOB} .state")).to_contain_text("cancelled")


#: A job that goes on.
RUNNING: dict[str, object] = {
    "id": "a" * 32, "state": "running", "task": "segmentation", "name": "long", "position": None,
    "created": "2026-01-01T00:00:00Z", "seconds_left": None, "progress": {}, "scores": [],
    "model": None, "error": None,
}  # fmt: skip


class TestRefused:
    @pytest.fixture
    def refusals(self) -> bool:
        return True

    def test_what_is_wrong_with_the_data(
        self, opened: Callable[..., Page], discs: Path, tmp_path: Path
    ) -> None:
        for kind in ("images", "labels"):
            (tmp_path / kind).mkdir()
            for file in sorted((discs / kind).iterdir())[:2]:
                (tmp_path / kind / file.name).write_bytes(file.read_bytes())
        wrong = Image.fromarray(np.zeros((9, 9), np.uint8))
        wrong.save(tmp_path / "labels" / "case0.png")
        page = opened("train")
        fill(page, "wrong", zipped(tmp_path))
        findings = page.locator("#train .findings")
        expect(findings).to_contain_text("case0.png")
        expect(page.locator("#train .work .problem")).to_contain_text("1 of 2 findings are errors")
        assert page.locator("#train .findings td").nth(2).inner_text()
        expect(findings.locator("h2")).to_have_text("Problems in the data")

    def test_a_job_that_is_no_longer_there(self, opened: Callable[..., Page]) -> None:
        """As a link that was kept for long."""
        page = opened("train/0123456789abcdef0123456789abcdef")
        problem = page.locator("#train .work .problem")
        expect(problem).to_contain_text("there is no job 0123456789abcdef0123456789abcdef")
        expect(page.locator(JOB)).to_have_count(0)
        page.locator("nav a", has_text="Models").click()
        page.evaluate("location.hash = '#train'")
        expect(page.locator("#train form")).to_be_visible()
        expect(problem).to_have_count(0)

    def test_an_upload_goes_on_beside_a_list_of_jobs_that_fails(
        self, opened: Callable[..., Page]
    ) -> None:
        """It can still be cancelled, and is not begun twice."""
        fails = False

        def listed(route: Route) -> None:
            if route.request.method == "POST":
                return  # it is on its way
            if fails:
                route.fulfill(status=503, json={"title": "busy", "code": "busy", "status": 503})
            else:
                route.fulfill(json={**route.fetch().json(), "jobs": [RUNNING]})

        page = opened("models")
        page.route("**/v1/training-jobs", listed)
        page.locator("nav a", has_text="Train").click()
        expect(page.locator("#train .jobs")).to_contain_text("running")
        start, work = page.locator("#train form .primary"), page.locator("#train .work")
        start.click()
        cancel, problem = work.get_by_role("button", name="Cancel"), work.locator(".problem")
        expect(cancel).to_be_visible()
        for fails in (True, False):
            expect(problem).to_have_count(int(fails))
            expect(cancel).to_be_visible()
            expect(start).to_have_attribute("aria-disabled", "true")
        cancel.click()
        expect(work).to_have_text("Cancelled.")
        page.unroute_all(behavior="ignoreErrors")

    def test_who_gives_no_key_is_asked_once(self, opened: Callable[..., Page]) -> None:
        """The service begins to need one while a job goes on."""
        needed: list[bool] = []
        asked: list[str] = []

        def guard(route: Route) -> None:
            asked.append(route.request.url)
            if needed and route.request.headers.get("authorization") != "Bearer right":
                problem = {"title": "Unauthorized", "code": "unauthorized", "status": 401}
                route.fulfill(status=401, json=problem)
            elif route.request.url.endswith("/v1/training-jobs"):
                route.fulfill(json={**route.fetch().json(), "jobs": [RUNNING]})
            else:
                route.continue_()

        page = opened("models")
        page.clock.install()
        page.route("**/v1/**", guard)
        page.reload()
        page.locator("nav a", has_text="Train").click()
        expect(page.locator("#train .jobs")).to_contain_text("running")
        needed.append(True)
        page.clock.fast_forward(3000)
        dialog, enter = page.locator("#key"), page.locator("header .enter-key")
        expect(dialog).to_be_visible()
        expect(enter).to_have_count(0)
        dialog.get_by_role("button", name="Not now").click()
        expect(page.locator("#train .problem")).to_contain_text("Unauthorized")
        expect(enter).to_be_visible()
        before = len(asked)
        page.clock.run_for(30_000)
        expect(dialog).to_have_count(0)
        assert len(asked) == before
        check_accessible(page)
        enter.focus()
        page.keyboard.press("Enter")
        dialog.get_by_label("Key").fill("right")
        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
        expect(page.locator("#train .problem")).to_have_count(0)
        expect(page.get_by_role("button", name="Forget key")).to_be_visible()
        with page.expect_response("**/v1/training-jobs") as answered:
            page.clock.fast_forward(3000)
        assert answered.value.ok
