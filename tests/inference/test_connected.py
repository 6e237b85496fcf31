"""Objects are counted as SciPy counts them, without importing it where there are few."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from caps_med.inference import connected
from caps_med.inference.connected import count_objects

SHAPES = [(5,), (1, 50), (30, 40), (37, 43, 1), (1, 9, 8), (7, 12, 16), (3, 4, 5, 6)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.9, 1.0])
def test_as_many_as_scipy_finds(
    shape: tuple[int, ...], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connected, "RUNS", 2**30)
    region = np.random.default_rng(0).random(shape) < share
    expected = connected._count_by_scipy(region, None)
    assert count_objects(region) == count_objects(np.asfortranarray(region)) == expected
    assert count_objects(region[..., ::-1]) == expected


def test_a_spiral_is_one_object() -> None:
    """Runs that meet late: two arms of a spiral touch at its centre alone."""
    region = np.zeros((9, 9), np.bool_)
    for ring in range(0, 4, 2):
        region[ring, ring : 9 - ring] = region[8 - ring, ring : 9 - ring] = True
        region[ring : 9 - ring, ring] = region[ring : 9 - ring, 8 - ring] = True
    assert count_objects(region) == 2
    region[1, 4] = True
    assert count_objects(region) == 1


@pytest.mark.parametrize("limit", ["RUNS", "VOXELS"])
def test_scipy_counts_many(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    region = np.eye(6, dtype=np.bool_)[::2]
    numbers = np.zeros(region.shape, np.int32)
    assert count_objects(region, numbers) == 3
    assert not numbers.any()
    monkeypatch.setattr(connected, limit, 2)
    assert count_objects(region, numbers) == 3
    assert numbers.max() == 3


def test_few_objects_need_no_scipy() -> None:
    code = (
        "import sys, numpy as np\nfrom caps_med.inference.connected import count_objects\n"
        "count_objects(np.eye(500, dtype=bool))\nprint('scipy' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"
