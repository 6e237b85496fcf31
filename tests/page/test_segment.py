"""Segment: an image in, its label map over it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import highdicom
import nibabel as nib
import numpy as np
import pytest
from playwright.sync_api import FilePayload, Page, expect

import caps_med
from caps_med import samples
from caps_med.images import MedicalImage, encode_image, read_image
from tests.images.dicom_files import (
    ECHOES,
    IDENTITY,
    SERIES,
    dataset,
    encoded,
    placed,
    series_file,
    zipped_study,
)
from tests.page.conftest import (
    check_accessible,
    counts,
    drop,
    held_requests,
    sample,
    saved,
    sent,
    slide,
)
from tests.page.quarters import QUARTERS, expect_quarters, quarters

STAGE = "#segment .stage"
#: Of each volume: its size, and how many voxels have each value, 0 to 3.
SHOWN = """() => capsMed.segment.volumes.map(v => ({
    dims: [...v.hdr.dims], counts: [0, 1, 2, 3].map(id => v.img.reduce((n, x) => n + (x === id), 0))
}))"""


def wait_for_answer(page: Page) -> None:
    expect(page.locator("#segment .answer")).to_be_visible()


def expect_choice(page: Page, of: str) -> None:
    """What is to be chosen is told below the model, and where the image is or would be."""
    told = page.get_by_text(f"This file holds several {of}: choose one.")
    expect(told).to_have_count(2)
    expect(page.locator("#segment .view").filter(has=told)).to_have_count(1)


def check_shown(page: Page, wanted: MedicalImage, *dims: int) -> None:
    """The answer has come, and is what lies over the image; by default in the size of `wanted`."""
    wait_for_answer(page)
    image, labels = page.evaluate(SHOWN)
    assert image["dims"][:4] == labels["dims"][:4] == [3, *(dims or wanted.spatial_shape)]
    assert labels["counts"] == counts(wanted)


def test_a_sample_and_its_labels(opened: Callable[..., Page], tmp_path: Path) -> None:
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wanted = caps_med.load_model("brain-t1-tissue").segment(samples.T1)
    check_shown(page, wanted)
    table = page.locator("#segment .legend tbody")
    expect(table.locator("tr")).to_have_count(3)
    grey = wanted.volumes["grey matter"]
    expect(table).to_contain_text(f"{grey:,.0f}")
    file = saved(page, "#segment .download", tmp_path)
    assert file.name == "t1-brain-t1-tissue.nii.gz"
    assert file.read_bytes() == encode_image(wanted, "nifti")
    page.locator("#segment .provenance summary").click()
    expect(page.locator("#segment .provenance")).to_contain_text(wanted.provenance.weights_sha256)
    expect(page.locator("#segment .title")).to_have_text("t1.nii.gz by brain-t1-tissue")
    share = (wanted.array == 2).sum() / wanted.array.size
    assert share < 0.5 * grey / sum(wanted.volumes.values())  # most of the image is background
    expect(table.locator(".fraction").nth(1)).to_have_text(f"{100 * share:.1f} %")
    check_accessible(page)
    opacity = page.locator("#segment .opacity")
    opacity.fill("0.2")
    assert page.evaluate("() => capsMed.segment.volumes[1].opacity") == pytest.approx(0.2)


def test_how_sure_the_answer_is_and_a_refined_one(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    page, model = opened("segment"), caps_med.load_model("brain-t1-tissue")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    note = page.locator("#segment .uncertainty")
    entropy = model.segment(samples.T1).entropy_map
    page.locator("#segment .shows").select_option("entropy")
    expect(note).to_contain_text("red very unsure")
    wait_for_answer(page)
    percents = MedicalImage(np.floor(100 * entropy.array.astype(float) + 0.5))
    assert page.evaluate(SHOWN)[1]["counts"] == counts(percents)
    page.locator("#segment .shows").select_option("")
    expect(note).not_to_contain_text("red very unsure")
    page.locator("#segment .refine").check()
    refined = model.segment(samples.T1, refine="em")
    expect(page.locator("#segment .provenance")).to_contain_text("refined by em")
    check_shown(page, refined)
    found = read_image(saved(page, "#segment .probabilities", tmp_path))
    np.testing.assert_allclose(found.array, refined.probabilities.array, atol=1e-6)


@pytest.mark.parametrize("changed", ["model", "refinement", "comparison"])
def test_what_is_changed_does_not_stop_the_image_that_was_chosen(
    changed: str, opened: Callable[..., Page]
) -> None:
    page = opened("segment")
    sample(page, "segment", "T1 slice")
    wait_for_answer(page)
    expect(page.locator("#segment .sample img:not([src])")).to_have_count(0)
    held = held_requests(page, "**/v1/samples/*", "GET")
    sample(page, "segment", "Another head")
    chosen = sent(page, held, 0)
    if changed == "refinement":
        page.locator("#segment .refine").click()
    else:
        choice = page.locator(f"#segment select.{'model' if changed == 'model' else 'against'}")
        choice.select_option("axon-segmentation")
    chosen.continue_()
    expect(page.locator("#segment .title")).to_contain_text("colin27.png")
    if changed == "comparison":
        expect(page.locator("#segment .compared")).to_be_visible()


def test_an_answer_is_averaged_over_mirror_images(opened: Callable[..., Page]) -> None:
    page, model = opened("segment"), caps_med.load_model("axon-segmentation")
    tick = page.locator("#segment .tta")
    page.locator("#segment .model").select_option("axon-segmentation")
    sample(page, "segment", "Axons")
    check_shown(page, model.segment(samples.AXONS), 128, 128, 1)
    expect(page.locator("#segment label:has(.tta)")).to_contain_text("4 times the work")
    tick.check()
    wait_for_answer(page)
    averaged = model.segment(samples.AXONS, tta=True)
    assert (averaged.array != model.segment(samples.AXONS).array).any()
    check_shown(page, averaged, 128, 128, 1)


def test_a_model_whose_card_says_so_refines_unless_it_is_unticked(
    opened: Callable[..., Page],
) -> None:
    page, model = opened("segment"), caps_med.load_model("brain-tissue")
    tick, provenance = page.locator("#segment .refine"), page.locator("#segment .provenance")
    page.locator("#segment .model").select_option("hippocampus")
    expect(tick).not_to_be_checked()
    page.locator("#segment .model").select_option("brain-tissue")
    expect(tick).to_be_checked()
    box = tick.bounding_box()
    assert box and box["width"] == box["height"]  # not squeezed by the words beside it
    sample(page, "segment", "T1 slice")
    check_shown(page, model.segment(samples.T1))
    expect(provenance).to_contain_text("refined by em")
    tick.uncheck()
    expect(provenance).not_to_contain_text("refined by em")
    check_shown(page, model.segment(samples.T1, refine="none"))


def test_a_picture_comes_back_as_a_picture(opened: Callable[..., Page], tmp_path: Path) -> None:
    page = opened("segment")
    sample(page, "segment", "Another head")
    wanted = caps_med.load_model("brain-t1-tissue").segment(samples.COLIN27_SLICE)
    height, width = wanted.spatial_shape
    check_shown(page, wanted, width, height, 1)
    file = saved(page, "#segment .download", tmp_path)
    assert file.read_bytes() == encode_image(wanted, "png")
    expect(page.locator("#segment .unit")).to_have_text("Area [pixels]")
    page.locator("#segment input[type=file]").first.set_input_files(quarters("colours.png"))
    expect(page.locator("#segment .title")).to_contain_text("colours.png")
    slide(page, "#segment .opacity", 0)
    expect_quarters(page, "#segment")
    page.locator("#segment .channel").select_option("blue")
    expect_quarters(page, "#segment", QUARTERS[..., [2]].repeat(3, -1))


def test_a_volume_in_three_planes(opened: Callable[..., Page], tmp_path: Path) -> None:
    head = read_image(samples.COLIN27)
    low = head.spatial_shape[2] // 2
    slab = MedicalImage(head.array[..., low : low + 4], head.affine, "nifti")
    file = tmp_path / "slab.nii.gz"
    file.write_bytes(encode_image(slab, "nifti"))
    page = opened("segment")
    page.locator("#segment input[type=file]").set_input_files(file)
    check_shown(page, caps_med.load_model("brain-t1-tissue").segment(file), *slab.spatial_shape)
    assert page.evaluate("() => capsMed.segment.opts.sliceType") == 3
    assert page.evaluate("() => capsMed.segment.opts.isRadiologicalConvention") is True
    page.locator("#segment .side").select_option("neurological")
    assert page.evaluate("() => capsMed.segment.opts.isRadiologicalConvention") is False
    through = page.locator("#segment .through")
    expect(through).to_have_count(0)  # in each plane one of the others chooses the slice
    page.locator("#segment .planes").select_option("Coronal")
    assert page.evaluate("() => capsMed.segment.opts.sliceType") == 1
    expect(through).to_contain_text(f" of {slab.spatial_shape[1]}")
    slide(page, "#segment .through input", 9)
    expect(through).to_contain_text("Slice 10 of")
    voxel = "() => capsMed.segment.frac2vox(capsMed.segment.scene.crosshairPos)[1]"
    assert page.evaluate(voxel) == 9
    page.locator("#segment .view canvas").press("PageUp")
    expect(through).to_contain_text("Slice 11 of")
    expect(page.locator("#segment .through input")).to_have_attribute("aria-valuetext", "11")


def test_a_dicom_series_comes_back_as_dicom_seg(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    """Its files are chosen together; what goes on to synthesis is a label map that is read."""
    head = read_image(samples.COLIN27)
    files, middle = [], head.spatial_shape[2] // 2
    for number in range(3):
        pixels = head.array[0, ::2, ::2, middle + number].T.astype(np.uint16)
        place = {**placed(float(number), (2.0, 2.0)), "SliceThickness": 1.0}
        made = dataset(pixels, **IDENTITY, **place, SOPInstanceUID=f"{SERIES}.{number + 1}")
        files.append(tmp_path / f"IM{number}.dcm")
        files[-1].write_bytes(encoded(made))
    page = opened("segment")
    page.locator("#segment input[type=file]").set_input_files(files)
    wanted = caps_med.load_model("brain-t1-tissue").segment(tmp_path)
    check_shown(page, wanted)
    content = saved(page, "#segment .download", tmp_path).read_bytes()
    found = highdicom.seg.segread(io.BytesIO(content))
    assert (found.PatientID, found.Modality) == (IDENTITY["PatientID"], "SEG")
    assert found.pixel_array.sum() == (wanted.array > 0).sum()
    page.locator("#to-synthesize").click()
    page.locator("#synthesize .gallery canvas").first.wait_for()


def test_a_volume_is_cancelled(opened: Callable[..., Page], long_head: bytes) -> None:
    page = opened("segment")
    name = f"{'sub-01_ses-02_acq-highres_' * 6}T1w.nii.gz"  # pushes nothing out of reach
    file = FilePayload(name=name, mimeType="application/gzip", buffer=long_head)
    page.locator("#segment input[type=file]").set_input_files(file)
    for told in (".busy", ".view .caption"):
        expect(page.locator(f"#segment {told}")).to_contain_text(re.compile(r"\d+ of \d+ done"))
    with page.expect_request(lambda sent: sent.method == "DELETE") as forgotten:
        page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#segment .work").first).to_have_text("Cancelled.")
    expect(page.locator("#segment .view .caption")).to_have_count(0)
    assert "/v1/inference-jobs/" in forgotten.value.url
    expect(page.locator("#segment .answer")).to_have_count(0)


def test_a_file_that_is_really_dropped(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    page.locator("#segment .sample").first.wait_for()
    drop(page, STAGE, samples.T1)
    wait_for_answer(page)
    shape = np.array(read_image(samples.T1).spatial_shape)
    assert page.evaluate(SHOWN)[0]["dims"][1:4] == shape.tolist()


def test_a_folder_of_slices_is_dropped(opened: Callable[..., Page], tmp_path: Path) -> None:
    folder = tmp_path / "patient" / "flair"
    folder.mkdir(parents=True)
    (folder / ".DS_Store").write_bytes(b"hidden")
    for number, z in enumerate((0.0, 2.5, 5.0), start=1):
        (folder / f"{number}.dcm").write_bytes(series_file(number, z))
    page = opened("segment")
    page.locator("#segment .sample").first.wait_for()
    drop(page, STAGE, folder.parent)
    wanted = read_image([*folder.glob("*.dcm")])
    check_shown(page, caps_med.load_model("brain-t1-tissue").segment(wanted))
    expect(page.locator("#segment .title")).to_contain_text("flair.dcm")
    answer = saved(page, "#segment .download", tmp_path)
    assert answer.name == "flair-brain-t1-tissue.dcm"


def test_what_was_dropped_and_cannot_be_read_is_told(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    """A folder without files, and a slice that is gone before its series is read."""
    (tmp_path / "empty").mkdir()
    (folder := tmp_path / "flair").mkdir()
    for number, z in enumerate((0.0, 2.5, 5.0), start=1):
        (folder / f"{number}.dcm").write_bytes(series_file(number, z))
    page = opened("segment")
    page.route("**/v1/models", lambda _: None)  # unanswered
    page.reload()
    drop(page, STAGE, tmp_path / "empty")
    expect(page.get_by_role("alert")).to_have_text("Nothing that was dropped contains a file.")
    drop(page, STAGE, folder)
    expect(page.locator("#segment .busy")).to_contain_text("Reading the models")
    expect(page.get_by_role("alert")).to_have_count(0)
    (folder / "2.dcm").unlink()
    page.unroute("**/v1/models")  # which lets it go on
    expect(page.locator("#segment .problem")).to_contain_text("The browser cannot read 2.dcm")


def test_a_header_is_dropped_with_its_voxels(opened: Callable[..., Page], tmp_path: Path) -> None:
    whole = encode_image(read_image(samples.T1), "metaimage")
    header, voxels = whole.split(b"ElementDataFile = LOCAL\n")
    (tmp_path / "t1.mhd").write_bytes(header + b"ElementDataFile = t1.raw\n")
    (tmp_path / "t1.raw").write_bytes(voxels)
    page = opened("segment")
    page.locator("#segment .sample").first.wait_for()
    drop(page, STAGE, tmp_path / "t1.raw", tmp_path / "t1.mhd")
    check_shown(page, caps_med.load_model("brain-t1-tissue").segment(tmp_path / "t1.mhd"))
    half = nib.load(samples.T1).slicer[:64]
    nib.save(nib.Nifti1Pair(half.dataobj, half.affine), tmp_path / "t1.img")
    drop(page, STAGE, tmp_path / "t1.img", tmp_path / "t1.hdr")
    check_shown(page, caps_med.load_model("brain-t1-tissue").segment(tmp_path / "t1.hdr"))


class TestRefused:
    @pytest.fixture
    def refusals(self) -> bool:
        return True

    def test_one_volume_of_one_series_of_a_study_is_chosen(
        self, opened: Callable[..., Page], tmp_path: Path
    ) -> None:
        file = tmp_path / "study.zip"
        file.write_bytes(zipped_study())
        page = opened("segment")
        page.locator("#segment input[type=file]").set_input_files(file)
        series, volume = (page.locator(f"#segment .offer .{name}") for name in ("series", "volume"))
        expect_choice(page, "series")
        check_accessible(page)
        series.select_option("MR, dual echo, 4 files")
        expect_choice(page, "volumes")
        for number in range(2):
            volume.select_option(f"{number + 1} of 2")
            wanted = read_image(file, series=ECHOES, index=number)
            check_shown(page, caps_med.load_model("brain-t1-tissue").segment(wanted))
            shown = page.evaluate("() => Math.max(...capsMed.segment.volumes[0].img)")
            assert shown == wanted.array.max()
        series.select_option(SERIES)
        first = read_image(file, series=SERIES)
        check_shown(page, caps_med.load_model("brain-t1-tissue").segment(first))
        expect(volume).to_have_count(0)
        sample(page, "segment", "T1 slice")
        expect(series).to_have_count(0)

    def test_one_volume_of_a_4d_nifti_is_chosen(
        self, opened: Callable[..., Page], tmp_path: Path
    ) -> None:
        one = read_image(samples.T1)
        several = one.with_array(np.concatenate([one.array, one.array[:, ::-1]]))
        several.save(file := tmp_path / "time.nii.gz")
        page = opened("segment")
        page.locator("#segment input[type=file]").set_input_files(file)
        expect_choice(page, "volumes")
        page.locator("#segment .offer .volume").select_option("2 of 2")
        wanted = read_image(file, index=1)
        check_shown(page, caps_med.load_model("brain-t1-tissue").segment(wanted))

    def test_a_hostile_file_gets_the_services_own_words(
        self, opened: Callable[..., Page], tmp_path: Path
    ) -> None:
        whole = samples.T1.read_bytes()
        file = tmp_path / "cut.nii.gz"
        file.write_bytes(whole[: len(whole) // 2])
        page = opened("segment")
        with page.expect_response("**/v1/images?format=nifti") as answered:
            page.locator("#segment input[type=file]").set_input_files(file)
        detail = answered.value.json()["detail"]
        assert answered.value.status == 422
        expect(page.locator("#segment .problem")).to_contain_text(detail)
        sample(page, "segment", "T1 slice")  # and it goes on
        wait_for_answer(page)
        expect(page.locator("#segment .problem")).to_have_count(0)
        page.locator("#segment input[type=file]").set_input_files(file)
        expect(page.locator("#segment .problem")).to_contain_text(detail)
        expect(page.locator("#segment .problem")).to_contain_text("cut.nii.gz")
        expect(page.locator("#segment .answer")).to_have_count(0)  # it was of another file
        assert page.evaluate("() => capsMed.segment.volumes.length") == 0

    def test_several_images_at_once_are_refused_by_the_page(
        self, opened: Callable[..., Page]
    ) -> None:
        page = opened("segment")
        page.route("**/v1/models", lambda _: None)  # unanswered
        page.reload()
        page.locator("#segment input[type=file]").set_input_files([samples.AXONS, samples.COLIN27])
        expect(page.locator("#segment .busy")).to_contain_text("Reading the models")
        page.unroute("**/v1/models")  # which lets them go on
        problem = page.locator("#segment .problem")
        expect(problem).to_contain_text("brain-t1-tissue takes one image at a time")
        sample(page, "segment", "T1 slice")
        wait_for_answer(page)
