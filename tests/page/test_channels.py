"""The page sends the files of several channels as one image, in the order that the model names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import caps_med
from caps_med.bundles import NetworkSpec
from caps_med.images import MedicalImage, read_image
from tests.api.serving import Served
from tests.conftest import tiny_card, write_tiny
from tests.page.conftest import held_requests, models_of, saved, sent
from tests.waiting import until


@pytest.fixture(scope="module")
def models(server: Served) -> Path:
    """The folder of a model of two channels."""
    spec = NetworkSpec(name="SegCaps", arguments={"atoms": 4, "in_channels": 2, "out_channels": 3})
    card = tiny_card("segmentation", (1.0, 1.0), spec)
    root = models_of(server)
    write_tiny(root, "two", card.model_copy(update={"channel_names": ("FLAIR", "T1")}))
    return root


@pytest.mark.parametrize("refusals", [True])
def test_files_of_channels_are_segmented_together(
    opened: Callable[..., Page], models: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    flair, t1 = (tmp_path / f"p1_{name}.nii.gz" for name in ("flair", "t1"))
    for path in (flair, t1):
        voxels = rng.integers(0, 255, (1, 20, 28, 3), np.uint8)
        MedicalImage(voxels, np.diag([-1.0, 1, 2, 1]), "nifti").save(path)
    page = opened("segment")
    page.locator("#segment .model").select_option("two")
    expect(page.locator("#segment .drop").first).to_contain_text(
        "a file for each channel (FLAIR, T1)"
    )
    held = held_requests(page, re.compile("/segment"), "POST")
    page.locator("#segment input[type=file]").first.set_input_files([t1, flair])
    channel = page.locator("#segment .channel")
    for name in ("T1", "FLAIR"):  # before there is an answer
        channel.select_option(name)
    expect(channel).to_have_value("0")
    sent(page, held, 0).continue_()  # a volume is drawn first
    page.unroute(re.compile("/segment"))
    expect(page.locator("#segment .channels")).to_have_text(
        "FLAIR: p1_flair.nii.gz; T1: p1_t1.nii.gz"
    )
    expect(page.locator("#segment .answer")).to_be_visible()
    answer = read_image(saved(page, "#segment .download", tmp_path), kind="labels")
    expected = caps_med.load_model("two", models).segment([flair, t1])
    np.testing.assert_array_equal(answer.array, expected.array)
    assert (expected.array != caps_med.load_model("two", models).segment([t1, flair]).array).any()
    page.locator("#segment .channel").select_option("T1")
    sums = "() => capsMed.segment.volumes.map(v => v.img.reduce((sum, value) => sum + value, 0))"
    wanted = [int(read_image(t1).array.sum()), int(expected.array.sum())]
    until(lambda: page.evaluate(sums) == wanted, state=lambda: page.evaluate(sums))
    refused = re.compile("v1/images")
    page.route(refused, lambda route: route.fulfill(status=500, json={"code": "internal"}))
    page.locator("#segment .channel").select_option("FLAIR")
    expect(page.locator("#segment .problem")).to_be_visible()
    expect(page.locator("#segment .channel")).to_have_value("1")
    page.unroute(refused)
    both = tmp_path / "both.nii.gz"
    MedicalImage(np.concatenate([voxels, voxels]), np.diag([-1.0, 1, 2, 1]), "nifti").save(both)
    page.locator("#segment input[type=file]").first.set_input_files(both)
    expect(page.locator("#segment .title")).to_contain_text("both.nii.gz")
    expect(page.locator("#segment .channels")).to_have_count(0)
