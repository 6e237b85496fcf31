"""Volumes are segmented in the background: progress, a reload, cancelling."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import FilePayload, Page, expect

import caps_med
from caps_med import samples
from caps_med.images import MedicalImage, encode_image, read_image
from caps_med.inference import Segmentation
from tests.api import http
from tests.api.projects.conftest import png
from tests.api.serving import Served
from tests.page.conftest import PATIENCE_MS, held_requests, saved
from tests.waiting import until

SLICES = 60
#: Of the label map that is shown: how many voxels have each value, 0 to 3.
COUNTS = """() => [0, 1, 2, 3].map(
    id => capsMed.segment.volumes[1].img.reduce((n, x) => n + (x === id), 0))"""


#: Keeps what the bar of the progress has shown, and the text with it: it may be full before a test
#: looks at it.
KEEP_PROGRESS = """() => {
    const view = document.querySelector('#segment');
    const keep = () => {
        const bar = view.querySelector('progress');
        const told = /(\\d+) of (\\d+) done/.exec(view.querySelector('.busy')?.textContent);
        if (bar && told) window.shown.push([bar.value, told[1] / told[2]]);
    };
    window.shown = [];
    new MutationObserver(keep).observe(view, { attributes: true, childList: true, subtree: true });
}"""


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some slices of a head, which take several passes."""
    head = read_image(samples.COLIN27)
    low = head.spatial_shape[2] // 2
    image = MedicalImage(head.array[..., low : low + SLICES], head.affine, "nifti")
    path = tmp_path_factory.mktemp("slab") / "slab.nii.gz"
    path.write_bytes(encode_image(image, "nifti"))
    return path


@pytest.fixture(scope="module")
def wanted(slab: Path) -> Segmentation:
    """What the library makes of it."""
    return caps_med.load_model("brain-t1-tissue").segment(slab)


def begun(page: Page, file: Path) -> str:
    """Choose a file and wait for the first slices; the job's id."""
    with page.expect_response(re.compile(r"/segment\?format=zip&async$")) as answered:
        page.locator("#segment input[type=file]").set_input_files(file)
    assert answered.value.status == 202
    expect(page.locator("#segment .busy")).to_contain_text(re.compile(r"[1-9]\d* of \d+ done"))
    return str(answered.value.json()["id"])


def check_done(page: Page, wanted: Segmentation, folder: Path) -> None:
    """The answer is the library's, and nothing of the job is left in the tab."""
    expect(page.locator("#segment .answer")).to_be_visible()
    assert page.evaluate(COUNTS) == [int((wanted.array == label).sum()) for label in range(4)]
    assert saved(page, "#segment .download", folder).read_bytes() == encode_image(wanted, "nifti")
    assert page.evaluate("() => sessionStorage.getItem('caps-med-job')") is None


def cancel(page: Page) -> None:
    with page.expect_response(lambda answer: answer.request.method == "DELETE") as deleted:
        page.get_by_role("button", name="Cancel").click()
    assert deleted.value.status == 204


def check_forgotten(server: Served, job: str) -> None:
    """The service knows the job no more, once what the page has sent to that end is there."""
    url = f"{server.address}/v1/inference-jobs/{job}"
    until(lambda: not http.get(url).is_success)
    assert http.get(url).json()["code"] == "job_not_found"


@pytest.mark.slow
def test_a_volume_shows_how_far_it_is(
    opened: Callable[..., Page], server: Served, slab: Path, wanted: Segmentation, tmp_path: Path
) -> None:
    page = opened("segment")
    page.evaluate(KEEP_PROGRESS)
    job = begun(page, slab)
    check_done(page, wanted, tmp_path)
    shown = page.evaluate("() => window.shown")
    assert shown and all(value == told for value, told in shown), shown
    assert shown[-1][0] > 0
    check_forgotten(server, job)


@pytest.mark.slow
def test_a_reload_loses_nothing(
    opened: Callable[..., Page], server: Served, slab: Path, wanted: Segmentation, tmp_path: Path
) -> None:
    page = opened("segment")
    job = begun(page, slab)
    page.reload()
    expect(page.locator("#segment .busy")).to_contain_text(
        "Segmenting slab.nii.gz with brain-t1-tissue"
    )
    check_done(page, wanted, tmp_path)
    expect(page.locator("#segment .summary")).to_contain_text("only its label map is shown")
    for what in ("shows", "refine", "against"):  # of which nothing can be asked without the image
        expect(page.locator(f"#segment .{what}")).to_be_disabled()
    check_forgotten(server, job)


def test_a_duplicated_tab_leaves_the_job_to_the_first(
    opened: Callable[..., Page], server: Served, long_head: bytes, tmp_path: Path
) -> None:
    """What the first keeps over a reload, the second has a copy of."""
    (tmp_path / "head.nii.gz").write_bytes(long_head)
    page = opened("segment")
    job = begun(page, tmp_path / "head.nii.gz")
    with page.expect_popup() as opening:
        page.evaluate("() => { window.open(location.href); }")
    twin = opening.value
    twin.wait_for_function("() => sessionStorage.getItem('caps-med-job') === null")
    expect(twin.locator("#segment .sample").first).to_be_visible()
    expect(twin.locator("#segment .busy")).to_have_count(0)
    twin.close()
    page.reload()  # it is still this tab's job
    cancel(page)
    check_forgotten(server, job)


#: Until the page is reloaded, no answer to the request for a job reaches it; `sends`: whether the
#: request reaches the service.
UNANSWERED = """sends => {
    const send = window.fetch;
    window.fetch = (path, init) => {
        if (!path.endsWith('&async')) return send(path, init);
        (sends ? send(path, init) : Promise.resolve()).then(() => { window.lost = true; });
        return new Promise(() => undefined);
    };
}"""


def asked_in_vain(page: Page, file: Path, sends: bool) -> None:
    page.evaluate(UNANSWERED, sends)
    page.locator("#segment input[type=file]").set_input_files(file)
    page.wait_for_function("() => window.lost", timeout=PATIENCE_MS)


def test_a_reload_before_the_job_is_known_loses_nothing(
    opened: Callable[..., Page], slab: Path, wanted: Segmentation, tmp_path: Path
) -> None:
    """The service has made the job, but the page has not heard of it."""
    page = opened("segment")
    asked_in_vain(page, slab, sends=True)
    page.reload()
    expect(page.locator("#segment .busy")).to_contain_text(
        "Segmenting slab.nii.gz with brain-t1-tissue"
    )
    check_done(page, wanted, tmp_path)


@pytest.mark.parametrize("refusals", [True])
def test_a_reload_before_the_file_has_arrived_says_so(
    opened: Callable[..., Page], slab: Path
) -> None:
    page = opened("segment")
    asked_in_vain(page, slab, sends=False)
    page.reload()
    expect(page.locator("#segment .problem")).to_contain_text("slab.nii.gz was uploaded")
    page.reload()
    expect(page.locator("#segment .sample").first).to_be_visible()
    expect(page.locator("#segment .problem")).to_have_count(0)


def test_cancelling_ends_the_job(
    opened: Callable[..., Page], server: Served, long_head: bytes, tmp_path: Path
) -> None:
    (tmp_path / "head.nii.gz").write_bytes(long_head)
    page = opened("segment")
    job = begun(page, tmp_path / "head.nii.gz")
    cancel(page)
    expect(page.locator("#segment .work").first).to_have_text("Cancelled.")
    check_forgotten(server, job)
    assert page.evaluate("() => sessionStorage.getItem('caps-med-job')") is None


@pytest.mark.parametrize(("columns", "background"), [(1024, False), (1025, True)])
def test_a_large_picture_is_a_job(
    opened: Callable[..., Page], columns: int, background: bool
) -> None:
    """One call may not last as long as it takes."""
    page = opened("segment")
    held_requests(page, path := re.compile(r"/segment\?"), "POST")
    picture = png(np.zeros((1024, columns), np.uint8))
    file = FilePayload(name="large.png", mimeType="image/png", buffer=picture)
    with page.expect_request(path) as asked:
        page.locator("#segment input[type=file]").set_input_files(file)
    assert asked.value.url.endswith("&async") == background
