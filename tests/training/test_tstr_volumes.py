"""The benchmark of synthetic volumes beside few real ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pytest
import torch

from benchmarks.tstr.volumes import cells, generators, surroundings
from benchmarks.tstr.volumes.cells import Cell, Settings, run_cells
from benchmarks.tstr.volumes.command import gain, table
from benchmarks.tstr.volumes.data import Pool, Volume, with_surroundings
from benchmarks.tstr.volumes.generators import plain
from benchmarks.tstr.volumes.randomized import randomized
from benchmarks.tstr.volumes.warps import recoloured, warped
from training.data import load_source, open_dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, rng = tmp_path_factory.mktemp("volumes"), np.random.default_rng(0)
    for name in ("imagesTr", "labelsTr"):
        (root / name).mkdir()
    for case in range(6):
        label = np.zeros((14, 16, 27 + case % 2), np.uint8)
        label[3:8, 4:12, 3:9], label[8:11, 4:12, 3:9] = 1, 2
        image = 40 * label + 20 * (np.arange(16)[:, None] // 6) + rng.normal(0, 2, label.shape)
        for part, array in (("imagesTr", image.astype(np.float32)), ("labelsTr", label)):
            suffix = "_0000" if part == "imagesTr" else ""
            nib.save(nib.Nifti1Image(array, np.eye(4)), root / part / f"case_{case}{suffix}.nii.gz")
    return root


def test_splits_are_nested_and_nothing_tested_is_learned(folder: Path) -> None:
    pool = Pool(folder)
    few, more = pool.split(1, 1, seed=4), pool.split(2, 1, seed=4)
    assert [v.name for v in more.learned][:1] == [v.name for v in few.learned]
    tested = {v.name for v in few.tested}
    assert len(tested) == 3 and tested == {v.name for v in more.tested}
    assert not tested & {v.name for v in (*more.learned, *more.further)}
    assert pool.edges == (32, 16, 16)


def test_surroundings_are_classes_and_can_be_taken_away(folder: Path) -> None:
    volume = Pool(folder, limit=2).volumes[0]
    rich = with_surroundings(volume)
    assert set(np.unique(rich.label)) == {0, 1, 2, 3, 4}
    assert volume.image[rich.label == 0].mean() < volume.image[rich.label == 2].mean()
    np.testing.assert_array_equal(plain(rich.label), volume.label)


def test_volumes_are_drawn_from_the_label_maps(folder: Path) -> None:
    pool = Pool(folder)
    split = pool.split(2, 0, seed=0)
    found = randomized(split.learned, split.labels, 4, 0, pool.edges)
    again = randomized(split.learned, split.labels, 4, 0, pool.edges)
    for one, same in zip(found, again, strict=True):
        np.testing.assert_array_equal(one.image, same.image)
        assert one.image.shape == one.label.shape == pool.edges
        assert 0 <= one.image.min() < one.image.max() <= 1
        assert set(np.unique(one.label)) == {0, 1, 2}
        real = np.mean([(v.label == 1).sum() for v in split.learned])
        assert 0.3 < (one.label == 1).sum() / real < 3
    # Contrast is random: which structure is the brighter one differs.
    order = {bool(v.image[v.label == 1].mean() < v.image[v.label == 2].mean()) for v in found}
    assert order == {True, False}


def test_a_list_with_and_without_surroundings_can_be_trained_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["x", "--data", str(folder), "--out", str(tmp_path / "out"), "--names", "a", "b"]
    monkeypatch.setattr("sys.argv", command)
    surroundings.main()
    source = load_source(open_dataset(tmp_path / "out" / "cases.json"), tmp_path / "store")
    assert list(source.labels.values()) == ["background", "a", "b", *surroundings.SURROUNDINGS]
    assert len(set(source.groups)) == 6


def test_warps_keep_image_and_label_together() -> None:
    generator = torch.Generator().manual_seed(0)
    label = torch.zeros(2, 1, 16, 24, 16)
    label[..., 5:11, 8:16, 4:12] = 1
    image, moved = warped(label.clone(), label, generator)
    assert set(moved.unique().tolist()) == {0, 1}
    assert ((image > 0.5).float() - moved).abs().mean() < 0.05
    assert 0.5 < float(moved.sum() / label.sum()) < 2
    assert not torch.equal(moved[0], moved[1])
    assert recoloured(image, generator).min() >= 0 and recoloured(image, generator).max() <= 1


def test_cells_are_kept_and_read_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def synthesized(model: str, volumes: list[Volume], count: int, *_: object) -> list[Volume]:
        made.append(model)
        return list(volumes[:1]) * count

    monkeypatch.setattr(cells, "trained", lambda name, *_: name)
    monkeypatch.setattr(cells, "synthesized", synthesized)
    settings = Settings(1, 1, 1, tmp_path, tmp_path, torch.device("cpu"))
    pool, arms = Pool(folder), ["augmented", "caps", "caps-plain", "randomized", "further"]
    found = run_cells(pool, 2, 0, arms, settings)
    assert made == ["capspix2pix"]  # once for both arms
    assert [cell.arm for cell in found] == arms
    assert all(len(cell.dice) == 3 and len(cell.dice[0]) == 2 for cell in found)
    assert run_cells(pool, 2, 0, arms, settings) == found
    assert made == ["capspix2pix"]
    settings.steps = 2
    with pytest.raises(SystemExit, match=r"--steps 1 --generator-steps 1.*another --out"):
        run_cells(pool, 2, 0, arms, settings)


def test_a_generator_of_other_steps_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provenance = SimpleNamespace(recipe={"steps": 3})
    bundle = SimpleNamespace(path=tmp_path, card=SimpleNamespace(provenance=provenance))
    repository = SimpleNamespace(names=lambda: ["spade"], find=lambda _: bundle)
    monkeypatch.setattr(generators, "ModelRepository", lambda _: repository)
    monkeypatch.setattr(generators, "Model", lambda found: found)
    taken: object = generators.trained("spade", [], {}, 3, tmp_path)
    assert taken is bundle
    with pytest.raises(SystemExit, match=r"trained for 3 steps: name another --work"):
        generators.trained("spade", [], {}, 800, tmp_path)


def test_too_few_volumes_are_not_fewer_further_ones(folder: Path) -> None:
    with pytest.raises(SystemExit, match=r"3 of 6 volumes are tested on, 2 to learn from and 32"):
        Pool(folder).split(2, 32, seed=0)
    assert len(Pool(folder, limit=6).split(2, 32, seed=0).further) == 1


def test_gains_are_paired_by_seed_and_volume() -> None:
    def cell(arm: str, seed: int, *dice: float) -> Cell:
        return Cell(arm=arm, volumes=4, seed=seed, dice=[[d] for d in dice], steps=1,
                    generator_steps=1, seconds={}, device="cpu")  # fmt: skip

    base = [cell("augmented", 0, 0.5, 0.7), cell("augmented", 1, 0.6, 0.8)]
    better = [cell("caps", 1, 0.7, 0.9), cell("caps", 0, 0.6, 0.8)]
    found = gain(better, base)
    assert found is not None and found.mean == pytest.approx(0.1)
    rows = list(table([*base, *better]))
    assert rows[0] == "| trained on | n = 4 |"
    assert "0.650 (0.600, 0.700)" in rows[2]
    assert "0.750 (0.700, 0.800); +0.100" in rows[3]
