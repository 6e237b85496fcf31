"""Capsules: layers, lengths, atoms, one point's poses, an atom that moves."""

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
from tests.page.conftest import check_accessible, pixels, sample, slide

MODEL = "brain-t1-tissue"
HEIGHT, WIDTH = 96, 80


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the sample slice."""
    head = read_image(samples.T1)
    part = MedicalImage(head.array[:, 52 : 52 + WIDTH, 92 : 92 + HEIGHT], head.affine, "nifti")
    file = tmp_path_factory.mktemp("cut") / "cut.nii.gz"
    file.write_bytes(encode_image(part, "nifti"))
    return file


@pytest.fixture
def looked(opened: Callable[..., Page], cut: Path) -> Page:
    """The view with this part in it."""
    return look(opened("capsules"), cut)


def look(page: Page, image: Path) -> Page:
    """Choose an image and wait for its capsules."""
    page.locator("#capsules select.model").select_option(MODEL)
    page.locator("#capsules .drop input").set_input_files(image)
    expect(page.locator("#capsules .inside")).to_be_visible()
    return page


def test_layers_lengths_and_atoms(looked: Page, cut: Path) -> None:
    model = caps_med.load_model(MODEL)
    layers = looked.locator("#capsules .network button")
    expect(layers).to_have_count(len(model.layers))
    found = model.features(cut)
    for info in (model.layers[-1], model.layers[1]):
        layers.filter(has_text=info.name).first.click()
        heading = looked.locator("#capsules .layer")
        expect(heading).to_contain_text(f"{info.name}: capsule lengths")
        expect(heading).to_contain_text(f"{found.lengths(info.name).max():.2f}")
        expect(looked.locator("#capsules .lengths .tile")).to_have_count(info.types)
        expect(looked.locator("#capsules .atoms .tile")).to_have_count(info.atoms)
        rows, columns = found.layers[info.name].shape[2:]
        assert pixels(looked, "#capsules .lengths canvas")[:2] == [columns, rows]
    tiles = looked.locator("#capsules .lengths .tile")
    tiles.last.click()
    expect(tiles.last).to_have_attribute("aria-pressed", "true")


@pytest.mark.parametrize("refusals", [True])
def test_what_cannot_be_read_takes_the_image_before_away(looked: Page) -> None:
    shown = looked.locator("#capsules .pick img")
    expect(shown).to_have_count(1)
    file = FilePayload(name="broken.png", mimeType="image/png", buffer=b"no image")
    looked.locator("#capsules .drop input").set_input_files(file)
    for told in (".problem", ".view .empty"):
        expect(looked.locator(f"#capsules {told}")).to_contain_text("no known format")
    expect(shown).to_have_count(0)


def test_a_model_of_the_address_that_is_not_there_is_told(opened: Callable[..., Page]) -> None:
    page = opened("capsules/gone")
    told = page.locator("#capsules .missing")
    expect(told).to_contain_text(
        f"no model gone, which the address of this page named: this is {MODEL}"
    )
    assert page.url.endswith(f"#capsules/{MODEL}")
    page.locator("#capsules select.model").select_option("axon-segmentation")
    expect(told).to_have_count(0)
    assert page.url.endswith("#capsules/axon-segmentation")


def test_one_point(opened: Callable[..., Page]) -> None:
    looked = look(opened("capsules"), samples.T1)
    name = caps_med.load_model(MODEL).layers[1].name
    looked.locator("#capsules .network button").filter(has_text=name).first.click()
    canvas = looked.locator("#capsules .pick")
    box = canvas.bounding_box()
    assert box is not None
    height, width = 233, 197
    row, column = 100, 70
    x, y = (column + 0.5) * box["width"] / width, (row + 0.5) * box["height"] / height
    canvas.click(position={"x": x, "y": y})
    expect(looked.locator("#capsules .spot")).to_have_text(f"{name} at row {row}, column {column}")
    wanted = caps_med.load_model(MODEL).point(samples.T1, name, row, column)
    poses = looked.locator("#capsules .pose")
    expect(poses).to_have_count(len(wanted.pose))
    lengths = np.linalg.norm(wanted.pose, axis=1)
    expect(poses.first).to_contain_text(f"{lengths[0]:.3f}")
    expect(poses.first.locator(".bars i")).to_have_count(wanted.pose.shape[1])
    assert wanted.couplings is not None
    cells = looked.locator("#capsules .couplings td")
    expect(cells).to_have_count(wanted.couplings.size)
    shown = [float(text) for text in cells.all_inner_texts()]
    np.testing.assert_allclose(shown, wanted.couplings.ravel(), atol=0.0051)
    canvas.press("ArrowDown")
    expect(looked.locator("#capsules .spot")).to_contain_text(f"row {row + 1}")
    check_accessible(looked)
    expect(looked.locator("#capsules .warnings")).to_be_hidden()
    looked.locator("#capsules select.model").select_option("digits")
    expect(looked.locator("#capsules .warnings")).to_contain_text("The image is unlike those")


def test_one_point_of_a_network_whose_first_layer_has_a_stride(opened: Callable[..., Page]) -> None:
    page = opened("capsules")
    page.locator("#capsules select.model").select_option("brain-tissue")
    page.locator("#capsules .drop input").set_input_files(samples.T1)
    expect(page.locator("#capsules .inside")).to_be_visible()
    model = caps_med.load_model("brain-tissue")
    height, width = model.features(samples.T1, "classes").size
    row, column = 100, 70
    canvas = page.locator("#capsules .pick")
    box = canvas.bounding_box()
    assert box is not None
    x, y = (column + 0.5) * box["width"] / width, (row + 0.5) * box["height"] / height
    canvas.click(position={"x": x, "y": y})
    expect(page.locator("#capsules .spot")).to_have_text(f"classes at row {row}, column {column}")
    lengths = np.linalg.norm(model.point(samples.T1, "classes", row, column).pose, axis=1)
    for shown, length in zip(page.locator("#capsules .pose").all(), lengths, strict=True):
        expect(shown).to_contain_text(f"length {length:.3f}")


def test_the_capsules_are_those_of_the_model_that_answered(opened: Callable[..., Page]) -> None:
    page = opened("segment")
    sample(page, "segment", "Axons")
    page.locator("#to-capsules").click()
    chosen = page.locator("#capsules select.model")
    expect(page.locator("#capsules .inside")).to_be_visible()
    expect(chosen).to_have_value("axon-segmentation")
    layers = caps_med.load_model("axon-segmentation").layers
    expect(page.locator("#capsules .network button")).to_have_count(len(layers))
    page.reload()
    expect(chosen).to_have_value("axon-segmentation")
    chosen.select_option(MODEL)
    page.reload()
    expect(chosen).to_have_value(MODEL)


def test_another_model_looks_at_the_same_slice(
    opened: Callable[..., Page], cut: Path, tmp_path: Path
) -> None:
    part = read_image(cut)
    volume = tmp_path / "volume.nii.gz"
    MedicalImage(np.repeat(part.array, 5, -1), part.affine, "nifti").save(volume)
    looked = look(opened("capsules"), volume)
    at = looked.locator("#capsules .slices input")
    expect(at).to_have_value("2")
    slide(looked, "#capsules .slices input", 1)
    expect(looked.locator("#capsules .inside")).to_be_visible()
    looked.locator("#capsules select.model").select_option("axon-segmentation")
    layers = caps_med.load_model("axon-segmentation").layers
    expect(looked.locator("#capsules .network button")).to_have_count(len(layers))
    expect(at).to_have_value("1")


def test_a_network_that_is_wider_than_a_phone(looked: Page) -> None:
    """It fades out where there is more, and arrow keys scroll it."""
    network = looked.locator("#capsules .network")
    expect(network).not_to_have_attribute("tabindex", "0")
    looked.set_viewport_size({"width": 390, "height": 844})
    expect(network).to_have_attribute("tabindex", "0")
    expect(network).to_have_css("mask-image", re.compile("gradient"))
    fades = "element => ['--before', '--after'].map(name => element.style.getPropertyValue(name))"
    assert network.evaluate(fades) == ["0px", "32px"]
    tops = [looked.locator(f"#capsules {one}").bounding_box() for one in (".pick", ".network")]
    assert tops[0] and tops[1] and tops[0]["y"] < tops[1]["y"]  # the picture comes first
    network.press("ArrowRight")
    looked.wait_for_function(
        "() => document.querySelector('#capsules .network').style.getPropertyValue('--before') "
        "!== '0px'"
    )
    assert looked.evaluate("document.documentElement.scrollWidth") == 390
    check_accessible(looked)


def test_an_atom_that_moves(looked: Page, cut: Path) -> None:
    still, moved = "#capsules .still", "#capsules .moved"
    looked.locator("#capsules .move .class").select_option("grey matter")
    looked.locator("#capsules .move .atom").select_option("3")
    slider = "#capsules .delta"
    expect(looked.locator("#capsules .move .work")).to_be_empty()
    expect(looked.locator(slider)).to_be_enabled()
    slide(looked, slider, 0)
    assert pixels(looked, moved) == pixels(looked, still)
    slide(looked, slider, 0.25)
    assert pixels(looked, moved) != pixels(looked, still)
    manipulation = caps_med.load_model(MODEL).manipulator(cut)(2, 3, [0.25])
    level = np.rint(manipulation.reconstructions[0, 0].clip(0, 1) * 255).astype(int)
    shown = np.array(pixels(looked, moved)[2:]).reshape(*level.shape, 4)[..., 0]
    np.testing.assert_allclose(shown, level, atol=1)


def test_a_generators_capsules(opened: Callable[..., Page]) -> None:
    page = opened("capsules")
    page.locator("#capsules select.model").select_option("brain-t1-synthesis")
    sample(page, "capsules", "Tissue labels")
    expect(page.locator("#capsules .inside")).to_be_visible()
    expect(page.locator("#capsules .network button")).to_have_count(
        len(caps_med.load_model("brain-t1-synthesis").layers)
    )
    expect(page.locator("#capsules .move")).to_be_hidden()


def test_a_model_that_does_not_take_what_is_shown(looked: Page) -> None:
    """The layers of the one before would be asked of it; the image comes back with that one."""
    chosen, told = (
        looked.locator("#capsules select.model"),
        looked.locator("#capsules .view .empty"),
    )
    chosen.select_option("brain-t1-synthesis")
    expect(told).to_contain_text("Drop an image")
    expect(looked.locator("#capsules .network button")).to_have_count(0)
    expect(looked.locator("#capsules .inside")).to_have_count(0)
    chosen.select_option(MODEL)
    expect(looked.locator("#capsules .inside")).to_be_visible()
    expect(looked.locator("#capsules .pick img")).to_have_count(1)
