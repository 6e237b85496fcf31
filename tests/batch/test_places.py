"""Names of places, and records of what is done; stores themselves: tests/cluster/test_batch.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from caps_med.batch import Case, CaseResult, SegmentFiles, find_cases, run_batch
from caps_med.batch.places import place_of
from caps_med.batch.records import Records
from caps_med.batch.run import made_by
from caps_med.batch.workers import run_case
from caps_med.cli.batch import with_address
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage


def test_places_that_are_refused() -> None:
    assert place_of("scans") == Path("scans")
    with pytest.raises(InvalidParameter, match="an empty path: name a file or folder"):
        place_of("")
    with pytest.raises(InvalidParameter, match=r"ftp://: not supported; .* s3://"):
        place_of("ftp://host/scans")
    with pytest.raises(InvalidParameter, match="a URL must not contain credentials") as refused:
        place_of("s3://somebody:hidden@bucket/scans")
    assert "hidden" not in str(refused.value)


def test_the_address_of_a_cluster_may_be_left_out() -> None:
    assert list(with_address([])) == []
    assert list(with_address(["--cluster"])) == ["--cluster=auto"]
    assert list(with_address(["--cluster", "-o", "x"])) == ["--cluster=auto", "-o", "x"]
    assert list(with_address(["--cluster", "head:6379"])) == ["--cluster", "head:6379"]


class Begun:
    """Keeps what a batch has left to do."""

    done: Sequence[CaseResult] = ()

    def begin(self, cases: Sequence[Case], done: Sequence[CaseResult]) -> None:
        self.done = done

    def step(self, index: int, done: int, total: int) -> None: ...

    def finish(self, index: int, result: CaseResult) -> None: ...


def test_what_is_done_before_a_table_is_written_is_not_done_again(
    models: Path, tmp_path: Path
) -> None:
    pixels = np.zeros((1, 12, 12), np.uint8)
    (tmp_path / "scans").mkdir()
    for name in ("a", "b"):
        MedicalImage(pixels, format="png").save(tmp_path / f"scans/{name}.png")
    action, out = SegmentFiles("tiny-segmentation", models), tmp_path / "out"
    model = action.load()
    [first, _] = find_cases([tmp_path / "scans"]).cases
    result = run_case(action, model, first, Records(out, made_by(action, model)))
    other = SegmentFiles("tiny-segmentation", models, probabilities=True)
    run_case(other, model, first, Records(out / "other", made_by(other, model)))
    begun = Begun()
    run = run_batch(action, [tmp_path / "scans"], out, resume=True, listener=begun)
    assert [one.case for one in begun.done] == ["a"]
    assert [one.error for one in run.results] == [None, None]
    assert run.results[0].seconds == result.seconds  # as it was computed the first time
    assert not (out / ".cases").exists()
    run_batch(action, [tmp_path / "scans"], out / "other", resume=True, listener=begun)
    assert not begun.done  # other settings
