from __future__ import annotations

import base64
import io
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import caps_med
from caps_med.images import MedicalImage, Normalization, label_palette
from caps_med.images.overlay import overlay
from tests.conftest import tiny_binary, write_tiny
from training.data import open_dataset
from training.evaluation.metrics.overlap import TITLES
from training.evaluation.segmentation import evaluate
from training.pictures.figures import curves, strip_plot
from training.pictures.pixels import case_pictures
from training.pictures.sheet import thumbnail
from training.reports.segmentation import evaluation_report, training_report

SCORES = [
    {"epoch": 1, "loss": 0.9, "score": 0.2, "dice disc": 0.2},
    {"epoch": 2, "loss": 0.5, "score": 0.7, "dice disc": 0.7},
    {"epoch": 3, "loss": 0.4, "score": 0.6, "dice disc": 0.6},
]


class Page(HTMLParser):
    """Headings, pictures and all that a page would fetch."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    @property
    def headings(self) -> list[str]:
        return re.findall(r"<h2>(.*?)</h2>", self.text)

    def pictures(self) -> list[Image.Image]:
        sources = [attrs["src"] or "" for tag, attrs in self.tags if tag == "img"]
        return [Image.open(io.BytesIO(base64.b64decode(s.split(",", 1)[1]))) for s in sources]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`capsules` and `plain`, a U-Net, both binary; their one class has a hostile name."""
    root = tmp_path_factory.mktemp("models")
    for name, network in (("capsules", "SegCaps"), ("plain", "UNet")):
        write_tiny(root, name, tiny_binary(network, "<script>alert(1)</script>"))
    return root


def test_the_report_of_an_evaluation(discs: Path, repository: Path, tmp_path: Path) -> None:
    models = [caps_med.load_model(name, repository) for name in ("capsules", "plain")]
    evaluation = evaluate(open_dataset(discs), models)
    evaluation_report(tmp_path / "out" / "report.html", evaluation)
    page = Page(tmp_path / "out" / "report.html")
    assert "calibration error, where foreground is found" in page.text
    assert page.text.count("Reliability, ") >= 2
    assert re.findall(r'scope="rowgroup">(.*?)<', page.text) == ["capsules@1", "plain@1"]
    for title in TITLES.values():
        assert f"<th>{title}</th>" in page.text
    assert page.headings == ["Scores", "capsules@1 against plain@1", "Measures", "Cases",
                             "What the capsules show", "Data", "Model"]  # fmt: skip
    differences = page.text.partition("<caption>capsules@1 minus the other")[2]
    heading = re.findall(r"<th\b.*?>(.*?)</th>", differences.partition("</thead>")[0])
    assert heading == ["class", "metric", "cases", "difference", "95 % interval", "verdict"]
    dice = evaluation.dice_of_cases()
    assert f"Best: {max(dice, key=lambda n: dice[n])}, Dice {max(dice.values()):.3f}" in page.text
    # best, median and worst: image, label and two answers; the capsules; the contact sheet
    shown = len(re.findall("<h3>(Best|Median|Worst)", page.text))
    assert len(page.pictures()) == 4 * shown + 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_a_page_needs_nothing_else(discs: Path, repository: Path, tmp_path: Path) -> None:
    """Nothing is fetched, nothing runs, and names are text."""
    evaluation = evaluate(open_dataset(discs), [caps_med.load_model("capsules", repository)])
    evaluation_report(tmp_path / "report.html", evaluation)
    page = Page(tmp_path / "report.html")
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "embed"}
    assert "&lt;script&gt;alert(1)" in page.text
    for tag, attrs in page.tags:
        for name in ("src", "href", "xlink:href"):
            assert (attrs.get(name) or "data:").startswith(("data:image/png;", "data:", "#")), tag
        assert not [name for name in attrs if name.startswith("on")]
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', page.text))
    assert used <= set(ids)


def test_the_report_of_a_training(discs: Path, repository: Path, tmp_path: Path) -> None:
    dataset = open_dataset(discs)
    recipe = {"epochs": 3, "augmentation": {"noise": 0.1, "flip": True}}
    evaluation = training_report(
        tmp_path / "report.html", reference="capsules@1", models=repository, dataset=dataset,
        held_out=[{"case1", "case4"}], recipe=recipe, scores=SCORES,
    )  # fmt: skip
    assert evaluation is not None
    assert list(evaluation.dice_of_cases()) == ["case1", "case4"]
    page = Page(tmp_path / "report.html")
    assert page.headings == ["Scores", "Measures", "Cases", "What the capsules show", "Training",
                             "Data", "Model", "Recipe"]  # fmt: skip
    assert "<th>augmentation.noise</th><td>0.1</td>" in page.text
    assert "6 pictures in 6 groups" in page.text
    assert "2 labelled cases of discs" in page.text
    assert str(discs) not in page.text  # a colleague need not know our folders


def test_a_report_on_held_out_cases_says_what_they_have_been_used_for(
    discs: Path, repository: Path, tmp_path: Path
) -> None:
    """It said that the model was trained on these data."""
    card = tiny_binary("UNet", "disc")
    learned = card.provenance.model_copy(update={"recipe": {"data": str(discs)}})
    write_tiny(repository, "learned", card.model_copy(update={"provenance": learned}))
    training_report(
        tmp_path / "report.html", reference="learned", models=repository,
        dataset=open_dataset(discs), held_out=[{"case1", "case4"}], recipe={}, scores=SCORES,
    )  # fmt: skip
    text = Page(tmp_path / "report.html").text
    assert "measured on the 2 cases held out, by which the epoch and the temperature" in text
    assert "2 independent cases: confidence intervals are rough" in text
    assert "trained on these data" not in text


def test_a_network_without_capsules_and_data_without_cases(
    repository: Path, tmp_path: Path
) -> None:
    evaluation = training_report(
        tmp_path / "report.html", reference="plain", models=repository,
        dataset=open_dataset("mni152"),
        recipe={"epochs": 3}, scores=SCORES[:1],
    )  # fmt: skip
    assert evaluation is None
    assert Page(tmp_path / "report.html").headings == ["Model", "Recipe"]


def test_capsules_are_left_out_where_there_are_none(
    discs: Path, repository: Path, tmp_path: Path
) -> None:
    evaluation_report(
        tmp_path / "report.html",
        evaluate(open_dataset(discs), [caps_med.load_model("plain", repository)]),
    )
    assert "What the capsules show" not in Page(tmp_path / "report.html").headings


def test_a_case_is_drawn_where_its_label_is_and_square_in_millimetres() -> None:
    """10 x 20 x 6 voxels of 1 x 1 x 4 mm, cut coronally: 10 mm wide and 24 mm high."""
    image = MedicalImage(np.zeros((1, 10, 20, 6), np.float32), np.diag([1.0, 1, 4, 1]))
    array = np.zeros((1, 10, 20, 6), np.uint8)
    array[0, 2:5, 7, 1:3] = 1
    truth = MedicalImage(array, image.affine, kind="labels")
    nothing = truth.with_array(array * 0)
    (plain, drawn, empty), z = case_pictures(
        image, [truth, nothing], "coronal", Normalization(window=(0, 1))
    )
    assert plain.shape[0] / plain.shape[1] == pytest.approx(24 / 10, rel=0.01)
    assert z == 20 - 1 - 7  # coronal slices are counted towards posterior
    assert not plain.any()
    assert not empty.any()
    colour = label_palette()[1]
    assert (drawn == colour).all(-1).any()
    rows, columns = (np.flatnonzero(drawn.any(axes)) for axes in ((1, 2), (0, 2)))
    assert len(rows) / drawn.shape[0] == pytest.approx(2 / 6, abs=0.02)
    assert len(columns) / drawn.shape[1] == pytest.approx(3 / 10, abs=0.02)


def test_a_single_slice_is_drawn_in_its_plane() -> None:
    array = np.zeros((1, 10, 1, 20), np.uint8)
    array[0, 2:5, 0, 3:9] = 1
    truth = MedicalImage(array, np.diag([1.0, 1, 1, 1]), kind="labels")
    image = truth.with_array(array.astype(np.float32), kind="image")
    (plain, _), z = case_pictures(image, [truth], "axial", Normalization(window=(0, 1)))
    assert plain.shape[0] / plain.shape[1] == pytest.approx(20 / 10, rel=0.01)
    assert z is None
    assert thumbnail("a", image, truth).pixels.shape == (20, 10, 3)


def test_a_small_label_in_a_large_picture_can_be_seen() -> None:
    array = np.zeros((1, 300, 400), np.uint8)
    array[0, 280:290, 100:120] = 1
    truth = MedicalImage(array, kind="labels")
    (plain, drawn), _ = case_pictures(
        truth.with_array(array, kind="image"), [truth], "axial", Normalization(window=(0, 1))
    )
    assert plain.shape == drawn.shape
    inside = (plain > 127).any(-1).mean()
    assert inside == pytest.approx(10 * 20 / ((10 + 16 + 10) * (20 + 32)), rel=0.1)


def test_an_overlay_blends_each_label_in_its_own_color() -> None:
    pixels = np.full((2, 2, 3), 100, np.uint8)
    ids = np.array([[0, 7], [2, 0]])
    drawn = overlay(pixels, ids, 0.5)
    for row, column in ((0, 1), (1, 0)):
        expected = 0.5 * 100 + 0.5 * label_palette()[ids[row, column]].astype(float)
        assert np.abs(drawn[row, column] - expected).max() <= 0.5
    np.testing.assert_array_equal(drawn[ids == 0], pixels[ids == 0])
    np.testing.assert_array_equal(overlay(pixels, ids * 0, 0.5), pixels)


def test_curves_show_every_epoch() -> None:
    assert curves(SCORES[:1]) == ""
    drawn = curves(SCORES)
    for words in ("training loss", "validation score", "best: 2"):
        assert f">{words}</text>" in drawn
    assert "currentColor" in drawn
    assert curves(SCORES) == drawn
    assert ">best: 3</text>" in curves(SCORES, unkept=2)


def test_words_in_any_script_are_left_to_the_fonts_of_the_page() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "日本" in strip_plot({"a@1": {"日本": [0.1, 0.5]}}, "größe")


@pytest.mark.parametrize("name", ["$5 or $9", r"$\frac$"])
def test_no_name_is_a_formula(name: str) -> None:
    """With the second one, no report could be written."""
    assert f">{name}</text>" in strip_plot({"a@1": {name: [0.1, 0.5]}}, "Dice")
    scores = [{"epoch": epoch, "score": 0.5, name: 0.5, "other": 0.5} for epoch in (1, 2)]
    assert f">{name}</text>" in curves(scores)


def test_the_spread_shows_every_case() -> None:
    few = {"a@1": {"disc": [0.1, 0.2]}, "b@1": {"disc": [0.3]}}
    more = {**few, "b@1": {"disc": [0.3, 0.4, 0.9]}}
    uses = [strip_plot(values, "Dice").count("<use ") for values in (few, more)]
    assert uses[1] - uses[0] == 2
    assert ">a@1</text>" in strip_plot(few, "Dice")
    assert strip_plot({"a@1": {"disc": []}}, "Dice").startswith("<svg ")
    hidden = strip_plot({"a@1": {"disc": [0.5]}, "_other": {"disc": [0.4]}}, "Dice")
    assert ">_other</text>" in hidden, "Matplotlib leaves such names out of legends"
