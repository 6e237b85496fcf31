"""The tables of `benchmarks.annotation`, from results written by hand."""

from __future__ import annotations

from benchmarks.annotation.annotator import Point
from benchmarks.annotation.data import HARD, phantoms
from benchmarks.annotation.tables import differences, table

RESULTS = {
    f"{strategy}/{seed}": [
        Point(corrected=0, dice=(0.5, 0.6)),
        Point(corrected=3, dice=(0.7 + more, 0.8 + more), changed=0.02 + more, accepted=True),
    ]
    for seed in (0, 1)
    for strategy, more in (("uncertainty", 0.1), ("diversity", 0.0), ("random", 0.0))
}


def test_dice_and_changes_by_number_of_corrections() -> None:
    header, _, unsure, *_ = table(RESULTS, "Dice").splitlines()
    assert header == "| Dice after | 0 | 3 |"
    assert unsure.startswith("| uncertainty | 0.550 [0.5")
    assert "| 0.850 [0.8" in unsure
    header, _, unsure, _, chance = table(RESULTS, "changed").splitlines()
    assert header == "| changed after | 3 |"
    assert unsure == "| uncertainty | 12.00 % (12.00, 12.00) |"
    assert chance == "| random | 2.00 % (2.00, 2.00) |"


def test_strategies_are_compared_on_the_same_images() -> None:
    unsure, diverse = differences(RESULTS).splitlines()
    assert unsure == "uncertainty minus random: 0.100 [0.100, 0.100]"
    assert diverse == "diversity minus random: 0.000 [0.000, 0.000]"


def test_every_fourth_phantom_is_dim() -> None:
    drawn = phantoms(2 * HARD, seed=0)
    assert len({one.name for one in drawn}) == len(drawn)
    assert drawn == phantoms(2 * HARD, seed=0)
    assert drawn[0].image != phantoms(1, seed=1)[0].image
