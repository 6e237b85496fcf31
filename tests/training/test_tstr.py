"""The benchmark that trains on synthetic images and tests on real ones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import caps_med
from benchmarks.tstr import data
from benchmarks.tstr.arms import ARMS, Arm, Sizes, samples_of
from benchmarks.tstr.results import MARKS, Results, gain, opened, summary, table, write_page
from caps_med.bundles import ModelCard, NetworkSpec, WeightsProvenance
from caps_med.inference import Model
from tests.conftest import write_tiny

SIZES = Sizes(real=2, synthetic=6, tested=3)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Model:
    root = tmp_path_factory.mktemp("models")
    card = ModelCard(
        task="synthesis",
        network=NetworkSpec(name="Pix2Pix", arguments={"width": 8}),
        labels={0: "background", 1: "axon"},
        provenance=WeightsProvenance(command="pytest", data="none"),
    )
    write_tiny(root, "pix2pix", card)
    return caps_med.load_model("pix2pix", root)


def results_of(**dice: dict[int, list[float]]) -> Results:
    return Results(settings={"steps": "3"}, dice=dice)


def test_a_quarter_is_drawn_of_real_images(generator: Model) -> None:
    asked: list[str] = []

    def model_of(name: str) -> Model:
        asked.append(name)
        return generator

    mixed = samples_of(ARMS["real+caps"], SIZES, 0, model_of)
    real = [sample["image"].tobytes() for sample in data.real_samples(data.REAL, 2)]
    drawn = [sample["image"].tobytes() for sample in mixed]
    assert asked == ["capspix2pix"]
    assert sum(one in real for one in drawn) == 6 and len(mixed) == 24
    assert len(samples_of(ARMS["real"], SIZES, 0, model_of)) == 2
    assert len(samples_of(ARMS["oracle"], SIZES, 0, model_of)) == 2 + 18


def test_every_arm_takes_the_label_maps_it_names(generator: Model) -> None:
    real = {data.label_map(data.REAL, case).tobytes() for case in range(2)}
    new = {data.label_map(data.NEW, case).tobytes() for case in range(6)}
    for labels, known in (("real", real), ("new", new)):
        arm = Arm("", generator="pix2pix", labels=labels)
        samples = samples_of(arm, SIZES, 0, lambda name: generator)
        assert {sample["label"].tobytes() for sample in samples} == known
        assert len({sample["image"].tobytes() for sample in samples}) == 6
    tested = {s["label"].tobytes() for s in data.real_samples(data.TEST, 3)}
    assert not tested & (real | new)


def test_another_repetition_has_other_images(generator: Model) -> None:
    first, again, other = (
        samples_of(ARMS["pix2pix-real"], SIZES, seed, lambda name: generator) for seed in (0, 0, 1)
    )
    images = [
        [sample["image"].tobytes() for sample in samples] for samples in (first, again, other)
    ]
    assert images[0] == images[1] and not set(images[0]) & set(images[2])


def test_gains_are_paired_by_image_and_seed() -> None:
    results = results_of(real={0: [0.5, 0.7], 1: [0.6, 0.8]}, oracle={0: [0.6, 0.8], 1: [0.8, 0.9]})
    found = gain(results, "oracle", "real")
    assert found is not None and found.mean == pytest.approx((0.1 + 0.1 + 0.2 + 0.1) / 4)
    assert (found.cases, found.groups) == (4, 2)
    spread = summary(results, "real")
    assert spread is not None and spread[0].mean == pytest.approx(0.65)
    assert spread[1] == pytest.approx([0.6, 0.7])
    shown = table(results, SIZES)
    assert "| real + as many further real images | 0.775 [" in shown and "+0.125 [" in shown
    assert "pix2pix" not in shown


def test_results_are_kept_and_other_settings_refused(tmp_path: Path) -> None:
    file = tmp_path / "results" / "tstr.json"
    results = opened(file, {"steps": "3"})
    results.keep("real", 0, [0.123456, 1.0])
    results.save(file)
    assert opened(file, {"steps": "3"}).dice == {"real": {0: [0.1235, 1.0]}}
    beside = opened(file, {"steps": "3"})  # another process
    beside.keep("oracle", 1, [0.5])
    beside.save(file)
    results.keep("real", 1, [0.75])
    results.save(file)
    assert opened(file, {"steps": "3"}).dice == {
        "real": {0: [0.1235, 1.0], 1: [0.75]},
        "oracle": {1: [0.5]},
    }
    later = {"steps": "3", "spade": "crop"}
    assert opened(file, later, ["spade"]).settings == later
    with pytest.raises(SystemExit, match=r"other settings .*'spade': \(None, 'crop'\)"):
        opened(file, later)
    with pytest.raises(SystemExit, match=r"other settings .*'steps': \('3', '4'\).*--out"):
        opened(file, {"steps": "4"})


def test_tables_and_pictures_replace_those_of_the_last_run(tmp_path: Path) -> None:
    page, picture = tmp_path / "page.md", tmp_path / "images" / "a.png"
    page.write_text("before\n<!-- tstr -->\nold\n<!-- end of tstr -->\nafter\n")
    for tables in ("| first |", "| second |"):
        write_page(page, MARKS, tables, {picture: "a picture"})
    text = page.read_text()
    assert text.startswith("before\n<!-- tstr -->\n\n| second |\n\n![a picture](images/a.png)\n")
    assert text.endswith("<!-- end of tstr -->\nafter\n")
    assert "old" not in text and "first" not in text
    page.write_text("no marks")
    with pytest.raises(SystemExit, match=r"the marks .* are missing"):
        write_page(page, MARKS, "", {})


#: The process that trains a generator need not import anything, either.
FORKED = (
    "import runpy, sys; sys.executable = sys.argv.pop(1)\n"
    "runpy.run_module('benchmarks.tstr', run_name='__main__', alter_sys=True)"
)


@pytest.mark.slow
def test_the_whole_benchmark_in_small_and_again(python: Path, tmp_path: Path) -> None:
    command = [str(python), "-c", FORKED, str(python), "--quick", "--work", str(tmp_path),
               "--threads", "1", "--arms", "real", "real+caps"]  # fmt: skip
    for run in range(2):
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "COLUMNS": "200"},
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert ("real, seed 0: Dice" in done.stdout) == (run == 0)
        assert "| real + CapsPix2Pix | 0." in done.stdout
        assert "diversity, absolute difference" in done.stdout
    assert {each.name for each in tmp_path.iterdir()} == {"quick"}  # nothing that a real run takes
    tmp_path /= "quick"
    results = Results.model_validate_json((tmp_path / "tstr.json").read_text())
    assert set(results.dice) == {"real", "real+caps"}
    assert results.costs["capspix2pix"].peak_mb > 100
    assert "| real + CapsPix2Pix | 0." in (tmp_path / "tstr.md").read_text()
    assert np.asarray(Image.open(tmp_path / "tstr-looks.png")).std() > 10
