"""Data and tables of ``python -m benchmarks.robustness``."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.robustness import tables
from benchmarks.robustness.__main__ import setting_of
from benchmarks.robustness.cells import Cell, Setting
from benchmarks.robustness.experiments import families
from benchmarks.robustness.experiments.overlap import EDGE, Pairs, both_named, loss_of
from benchmarks.robustness.experiments.viewpoints import familiar
from benchmarks.robustness.learning import source_of
from benchmarks.robustness.mnist import Digits
from benchmarks.robustness.rendering import ELEVATIONS, LIGHTS, Views, rendered
from benchmarks.robustness.shapes import CLASSES, Box, Segment, Solid, solid
from benchmarks.robustness.views import NAMES, views_of
from caps_med.errors import InvalidInput
from caps_med.networks import EfficientCapsNet
from tests.training.data.test_norb import write_matrix
from training.evaluation.robustness.families import FAMILIES

CPU = torch.device("cpu")


def ball_and_stick() -> Solid:
    """A ball in front (positive x) and a thin stick to its back, both on the ground plane."""
    return Solid([Segment((0.6, 0, 0), (0.6, 0, 0), 0.4), Segment((-1, 0, 0), (0, 0, 0), 0.05)])


def test_distances_of_balls_and_boxes_are_exact() -> None:
    points = torch.tensor([[3.0, 0, 0], [0, 0, 0], [2, 2, 0]])
    ball = Solid([Segment((0, 0, 0), (0, 0, 0), 2.0)])
    expected = torch.tensor([3.0 - 2 / ball.scale, -2 / ball.scale, 8**0.5 - 2 / ball.scale])
    torch.testing.assert_close(ball.distance(points), expected)
    box = Solid([Box((0, 0, 0), (1, 1, 1), rounding=0)])
    half = 1 / 3**0.5  # scaled into the unit sphere
    expected = torch.tensor([3 - half, -half, 2**0.5 * (2 - half)])
    torch.testing.assert_close(box.distance(points), expected)


def test_every_instance_fits_into_the_unit_sphere() -> None:
    way = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    shell = 1.01 * way / way.norm(dim=1, keepdim=True)
    for name in CLASSES:
        for instance in (0, 13):
            assert solid(name, instance).distance(shell).min() > 0


def test_the_camera_goes_round_the_object() -> None:
    side, back = rendered(ball_and_stick(), [(30, 90), (30, 270)], 16, CPU)
    seen, behind = (picture[0] != picture[0, 0, 0] for picture in (side, back))
    np.testing.assert_array_equal(seen, behind[:, ::-1])
    assert seen[:, :8].sum() > 1.5 * seen[:, 8:].sum(), "the ball is to the left"
    front = rendered(ball_and_stick(), [(30, 0)], 16, CPU)[0, 0]
    np.testing.assert_array_equal(front != front[0, 0], (front != front[0, 0])[:, ::-1])


def test_light_comes_from_its_side_and_pictures_are_repeated() -> None:
    ball = Solid([Segment((0, 0, 0), (0, 0, 0), 1.0)])
    first, again = (rendered(ball, [(40, 120)], 16, CPU) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    left, right, above = first[0].astype(int)
    assert left[8, 5] > left[8, 11] and right[8, 5] < right[8, 11]
    assert abs(above[8, 5] - above[8, 10]) <= 1 and above[5, 8] > above[11, 8]
    assert [picture[0, 0] for picture in first[0]] == [round(255 * b) for *_, b in LIGHTS]


def test_the_protocols_train_on_a_third_of_the_views() -> None:
    angles = np.array([(e, a) for e in ELEVATIONS for a in range(0, 360, 20)])
    zeros = np.zeros(len(angles), np.int64)
    views = Views(np.zeros((len(angles), 1, 1, 1), np.uint8), zeros, zeros, *angles.T)
    for protocol in ("azimuth", "elevation"):
        assert familiar(views, protocol).mean() == pytest.approx(1 / 3)
    assert set(views.of(familiar(views, "elevation")).elevations.tolist()) == {30, 35, 40}


def test_views_of_smallnorb(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 256, (3, 2, 96, 96), dtype=np.uint8)
    info = np.array([[4, 0, 0, 0], [6, 3, 34, 5], [9, 8, 2, 1]], np.int32)
    for part in ("training", "testing"):
        write_matrix(tmp_path / f"smallnorb-{part}-dat.mat", pairs)
        write_matrix(tmp_path / f"smallnorb-{part}-cat.mat", np.array([4, 0, 2], np.int32))
        write_matrix(tmp_path / f"smallnorb-{part}-info.mat", info)
    setting = Setting(tmp_path, tmp_path, tmp_path, True, CPU, norb=tmp_path)
    views, _ = views_of(setting)
    assert views.pictures.shape == (3, 2, 32, 32)
    assert views.pictures[1, 1, 0, 31] == round(float(pairs[1, 1, :3, 93:].mean()))
    assert [NAMES[k] for k in views.classes] == ["car", "animal", "plane"]
    assert views.elevations.tolist() == [30, 45, 70] and views.azimuths.tolist() == [0, 340, 20]
    assert familiar(views, "azimuth").tolist() == [True, True, True]
    source = source_of("norb", views.pictures, views.classes, NAMES)
    assert source.preparation.channels == 2
    (tmp_path / "smallnorb-testing-info.mat").unlink()
    with pytest.raises(InvalidInput, match="smallNORB: testing lacks info: add the files"):
        views_of(setting)


def digits() -> Digits:
    pictures = np.zeros((4, 1, 28, 28), np.uint8)
    pictures[:2, :, 4:24, 10:14], pictures[2:, :, 10:14, 4:24] = 255, 102
    return Digits(pictures, np.array([0, 0, 1, 1]))


def test_pairs_are_of_two_classes_and_each_keeps_its_own_picture() -> None:
    picture, alone, classes = Pairs(digits(), CPU, seed=0).batch(50)
    assert picture.shape == (50, 1, EDGE, EDGE) and alone.shape == (50, 2, EDGE, EDGE)
    assert (classes[:, 0] != classes[:, 1]).all()
    torch.testing.assert_close(picture, alone.sum(1, keepdim=True).clamp(max=1))
    mass = torch.where(classes == 0, 80.0, 0.4 * 80)
    torch.testing.assert_close(alone.sum((2, 3)), mass), "nothing is cut off"
    starts = {int(one.nonzero()[0, 0]) for one in alone[:, 0][classes[:, 0] == 0]}
    assert min(starts) == 4 and max(starts) == 12, "up to four pixels each way"


def test_both_classes_must_be_named_and_each_reconstruction_counts() -> None:
    torch.manual_seed(0)
    network = EfficientCapsNet(1, 2, (EDGE, EDGE)).eval()
    assert both_named(network, Pairs(digits(), CPU, 0), 10) == 1, "of two classes both are named"
    third = EfficientCapsNet(1, 10, (EDGE, EDGE)).eval()
    assert both_named(third, Pairs(digits(), CPU, 0), 10) < 1
    picture, alone, classes = Pairs(digits(), CPU, 0).batch(4)
    loss = loss_of(network, picture, alone, classes)
    worse = loss_of(network, picture, alone.flip(1), classes)
    assert not torch.isclose(loss, worse), "each class reconstructs its own digit"


def cell(network: str, seed: int, clean: list[float], affine: list[float]) -> dict[str, Any]:
    epochs = [{"clean": c, "affine": a, "epoch": k} for k, (c, a) in enumerate(zip(clean, affine))]  # noqa: B905
    return {
        "experiment": "affine", "about": {"network": network, "seed": seed}, "epochs": epochs,
        "device": "a test", "seconds": 1, "quick": False, "parameters": 10,
        "rotations": dict.fromkeys(("30", "60", "90", "180"), 0.5),
        "attacks": {"epsilons": [0.1], "rates": {"fgsm": [0.25]}, "zero_gradients": 0.0,
                    "median_gradient": 1e-3},
    }  # fmt: skip


def test_families_are_measured_and_told_beside_the_cnn(tmp_path: Path) -> None:
    rng, labels = np.random.default_rng(0), np.arange(2500) % 10
    images = rng.integers(0, 40, (2500, 28, 28), dtype=np.uint8)
    images[np.arange(2500), 2 * labels + 4] = 255  # a row tells the class
    np.savez(tmp_path / "digits.npz", images=images, labels=labels)
    setting = Setting(tmp_path / "digits.npz", tmp_path, tmp_path / "work", True, CPU)
    for cell in families.cells([], [0]):
        assert cell.run(setting)
    found = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("families-*.json"))]
    assert [each["about"]["network"] for each in found] == ["cnn", "efficient"]
    for each in found:
        assert {name: len(rates) for name, rates in each["families"].items()} == {
            name: len(family.strengths) for name, family in FAMILIES.items()
        }
    shown = list(tables._families(found))
    crowding = shown[shown.index("### Crowding") :]
    assert crowding[4] == "| network | seeds | clean | 0.1 | 0.2 | 0.3 | 0.4 |"
    ahead = 100 * (found[1]["families"]["crowding"][3] - found[0]["families"]["crowding"][3])
    line = next(one for one in crowding if one.startswith("| Efficient-CapsNet minus CNN | 1 |"))
    assert line.endswith(f" {ahead:.1f} |")


def test_smallnorb_and_rendered_views_are_not_joined(tmp_path: Path) -> None:
    about = {"protocol": "azimuth", "network": "cnn", "seed": 0}
    results, page = tmp_path / "joined.out", tmp_path / "none.png"
    for folder, more in (("rendered", {}), ("smallnorb", {"norb": True})):
        (tmp_path / folder).mkdir()
        cell = {"experiment": "viewpoints", "about": about, "quick": False, "epochs": [], **more}
        (tmp_path / folder / "viewpoints-azimuth-cnn-0.json").write_text(json.dumps(cell))
    tables.joined(results, [tmp_path / "rendered"], page)
    before = results.read_text()
    with pytest.raises(SystemExit, match=r"smallNORB and of rendered views are not joined"):
        tables.joined(results, [tmp_path / "smallnorb"], page)
    assert results.read_text() == before
    assert tables.joined(tmp_path / "own.out", [tmp_path / "smallnorb"], page)[0]["norb"]


def test_quick_cells_do_not_take_the_place_of_others(tmp_path: Path) -> None:
    asked: list[Setting] = []

    def measured(setting: Setting) -> dict[str, int]:
        asked.append(setting)
        return {"found": setting.short(2, 1)}

    places = {"mnist": tmp_path, "norb": None, "out": tmp_path / "cells", "work": tmp_path}
    for quick in (True, False, False):
        setting = setting_of(Namespace(**places, quick=quick), CPU)
        Cell("affine", {"seed": 0}, measured).run(setting)
    assert [setting.quick for setting in asked] == [True, False]
    assert asked[0].work != asked[1].work
    kept = json.loads((tmp_path / "cells" / "affine-0.json").read_text())
    assert kept["found"] == 2 and not kept["quick"]


def test_networks_are_compared_at_equal_clean_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [
        cell("cnn", 0, [0.5, 0.9, 0.95], [0.3, 0.6, 0.7]),
        cell("cnn", 1, [0.6, 0.91, 0.96], [0.3, 0.62, 0.7]),
        cell("capsnet3", 0, [0.7, 0.8, 0.9], [0.4, 0.5, 0.66]),
        cell("capsnet3", 1, [0.7, 0.92, 0.93], [0.4, 0.66, 0.8]),
    ]
    for number, run in enumerate(runs):
        (tmp_path / f"{number}.json").write_text(json.dumps(run))
    level, stops = tables.at_equal(runs, "clean")
    assert level == 0.9 and [epoch["epoch"] for _, epoch in stops] == [1, 1, 2, 1]
    names = ["--results", "joined.out", "--page", "page.md", "--sheet", "none.png"]
    names += ["--figure", "all.png"]
    monkeypatch.setattr("sys.argv", ["tables", str(tmp_path), *names])
    monkeypatch.chdir(tmp_path)
    tables.main()
    first = capsys.readouterr().out
    assert "| CapsNet, 3 iterations | 90.0 | 66.0 | 61.0 | 5.0 |" in first
    assert "| CNN | 10 | 2 | 95.5 | 70.0 |" in first
    assert tables.among([0.1, 0.3], 10) == "20.0 [5.7, 51.0]", "Wilson's interval of 2 in 10"
    assert tables.spread([0.9, 0.92, 0.94]) == "92.0 [87.0, 97.0]", "t of two degrees, 4.303"
    monkeypatch.setattr("sys.argv", ["tables", *names])
    tables.main()
    assert capsys.readouterr().out == first, "what was joined before needs no cells"
    page = (tmp_path / "page.md").read_text()
    assert first.strip() in page and "(all.png)" in page and "none.png" not in page
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
