"""Batches: outputs, tables, failures, resuming, several processes."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import caps_med
from caps_med.batch import (
    Action,
    BatchRun,
    Case,
    CaseResult,
    ClassifyFiles,
    Cluster,
    FeatureFiles,
    SegmentFiles,
    SynthesizeFiles,
    run,
    run_batch,
)
from caps_med.batch.records import Records
from caps_med.batch.workers import CaseListener, Numbered, run_here
from caps_med.errors import InvalidParameter, LayerNotFound, UnsupportedFormat, WrongTask
from caps_med.images import MedicalImage, read_image
from caps_med.inference import Model
from tests.classifiers import write_classifiers
from tests.training.forked import start, succeeds
from tests.waiting import until


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """A picture, the same as a TIFF, a volume in a subfolder, and a broken file."""
    rng = np.random.default_rng(4)
    folder = tmp_path / "scans"
    (folder / "sub").mkdir(parents=True)
    pixels = rng.integers(0, 255, (1, 20, 28), dtype=np.uint8)
    MedicalImage(pixels, format="png").save(folder / "a.png")
    MedicalImage(pixels, format="tiff").save(folder / "a.tif")
    voxels = rng.uniform(0, 1, (1, 20, 28, 3)).astype(np.float32)
    MedicalImage(voxels, np.diag([-1.0, 1, 2, 1]), format="nifti").save(folder / "sub/v.nii")
    (folder / "broken.png").write_bytes((folder / "a.png").read_bytes()[:60])
    return folder


@pytest.fixture
def action(models: Path) -> SegmentFiles:
    return SegmentFiles("tiny-segmentation", models)


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def table_of(folder: Path) -> dict[str, dict[str, object]]:
    """Case -> entry of the table, without what differs from run to run."""
    cases = json.loads((folder / "cases.json").read_text())["cases"]
    return {case["case"]: {k: v for k, v in case.items() if k != "seconds"} for case in cases}


OUTPUTS = {"a_png.png", "a_tif.tif", "sub/v.nii", "cases.csv", "cases.json"}


def test_a_folder_is_segmented_with_a_table(
    action: SegmentFiles, scans: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run = run_batch(action, [scans], out)
    assert files_of(out) == OUTPUTS
    assert [result.case for result in run.results] == ["a_png", "a_tif", "broken", "sub/v"]
    [broken] = run.failed
    assert broken.error is not None and broken.error.startswith("invalid_input: PNG")
    model = action.load()
    for result in (one for one in run.results if one.error is None):
        wanted = model.segment(scans / result.input)
        [output] = result.outputs
        found = read_image(out / output, kind="labels")
        np.testing.assert_array_equal(found.array, wanted.array)
        np.testing.assert_array_equal(found.affine, wanted.affine)
        assert result.labels == wanted.measures
    document = json.loads((out / "cases.json").read_text())
    assert (document["model"], document["version"]) == ("tiny-segmentation", 1)
    with (out / "cases.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    nucleus = run.results[3].labels[0]
    assert rows[3]["unit"] == "mm3" and rows[0]["unit"] == "pixels"
    assert float(rows[3]["nucleus volume"]) == nucleus.volume
    assert int(rows[3]["nucleus objects"]) == nucleus.objects
    assert rows[2]["error"] == broken.error and rows[2]["nucleus volume"] == ""


@pytest.mark.parametrize("name", ["tissue.nii.gz", "a.PNG"])
def test_a_folder_is_not_named_as_an_image(
    action: SegmentFiles, scans: Path, tmp_path: Path, name: str
) -> None:
    with pytest.raises(InvalidParameter, match=rf"{name} has the name of a file: name a folder"):
        run_batch(action, [scans], tmp_path / name)
    assert not (tmp_path / name).exists()


def test_formats_and_probabilities(models: Path, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    action = SegmentFiles("tiny-segmentation", models, format="nii.gz", probabilities=True)
    run_batch(action, [scans / "a.png", scans / "sub"], out)
    assert files_of(out) == {
        "a.nii.gz", "a_probabilities.npz", "sub/v.nii.gz", "sub/v_probabilities.nii.gz",
        "cases.csv", "cases.json",
    }  # fmt: skip
    with np.load(out / "a_probabilities.npz") as stored:
        assert stored["image"].shape == (3, 20, 28)
    with pytest.raises(UnsupportedFormat, match=r"x\.gif has no known suffix"):
        run_batch(SegmentFiles("tiny-segmentation", models, format="gif"), [scans], out / "n")
    with pytest.raises(WrongTask, match="tiny-synthesis is a synthesis model"):
        run_batch(SegmentFiles("tiny-synthesis", models), [scans], out / "n")
    assert not (out / "n").exists()


def test_maps_and_uncertainty(models: Path, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    action = SegmentFiles("tiny-segmentation", models, maps=("entropy", "disagreement"))
    run_batch(action, [scans / "a.png", scans / "sub"], out)
    assert files_of(out) == {
        "a.png", "a_entropy.png", "a_disagreement.png", "sub/v.nii", "sub/v_entropy.nii.gz",
        "sub/v_disagreement.nii.gz", "cases.csv", "cases.json",
    }  # fmt: skip
    model = caps_med.load_model("tiny-segmentation", models)
    wanted = model.segment(scans / "sub" / "v.nii", disagreement=True)
    assert wanted.disagreement is not None
    for name in action.maps:
        found = read_image(out / "sub" / f"v_{name}.nii.gz").array
        np.testing.assert_allclose(found, wanted.map_of(name).array, atol=1e-6)
    with (out / "cases.csv").open() as file:
        row = list(csv.DictReader(file))[1]
    assert float(row["entropy"]) == pytest.approx(wanted.mean_entropy, abs=1e-4)
    assert float(row["flip disagreement"]) == pytest.approx(wanted.disagreement.flips, abs=1e-4)
    assert "member disagreement" not in row  # a single network
    assert action.settings() != SegmentFiles("tiny-segmentation", models).settings()


def test_a_run_goes_on_where_it_ended(action: SegmentFiles, scans: Path, tmp_path: Path) -> None:
    """Cases are done again whose input or output changed, or with another model or setting."""
    out = tmp_path / "out"
    first = run_batch(action, [scans], out)
    asked: list[str] = []

    class Watch:
        cases: Sequence[Case] = ()

        def begin(self, cases: Sequence[Case], done: Sequence[CaseResult]) -> None:
            self.cases = cases

        def step(self, index: int, done: int, total: int) -> None: ...

        def finish(self, index: int, result: CaseResult) -> None:
            asked.append(result.case)

    def resumed(by: SegmentFiles = action) -> list[str]:
        asked.clear()
        run = run_batch(by, [scans], out, resume=True, listener=Watch())
        assert [result.case for result in run.results] == [one.case for one in first.results]
        return asked

    assert resumed() == ["broken"]
    (out / "sub/v.nii").unlink()
    (out / "a_png.png").write_bytes(b"half")
    assert resumed() == ["a_png", "broken", "sub/v"]
    (scans / "broken.png").write_bytes((scans / "a.png").read_bytes())
    (scans / "a.tif").touch()
    assert resumed() == ["a_tif", "broken"]
    assert resumed() == []
    other = SegmentFiles(action.model, action.models, probabilities=True)
    assert len(resumed(other)) == 4


def test_a_folder_that_is_not_empty(action: SegmentFiles, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(InvalidParameter, match="out is not empty: add --resume to continue"):
        run_batch(action, [scans], out)
    assert files_of(out) == {"mine.txt"}
    for not_a_table in ("[]", "{", '"text"', '{"cases": [1]}'):
        (out / "cases.json").write_text(not_a_table)
        run_batch(action, [scans], out, resume=True)
    run_batch(action, [scans], out, overwrite=True)
    assert files_of(out) == {*OUTPUTS, "mine.txt"}
    with pytest.raises(InvalidParameter, match="scans is the input folder: name another folder"):
        run_batch(action, [scans], scans, overwrite=True)
    with pytest.raises(InvalidParameter, match="is a file: name a folder"):
        run_batch(action, [scans], out / "mine.txt")


@pytest.mark.parametrize("inputs", [["*.png"], ["a.png"], ["link.png"]])
def test_no_output_replaces_an_input(
    action: SegmentFiles, scans: Path, tmp_path: Path, inputs: list[str]
) -> None:
    """Neither of a file that is named, nor of what a pattern or a link leads to."""
    (scans / "broken.png").unlink()
    (tmp_path / "link.png").symlink_to(scans / "a.png")
    folder = tmp_path if inputs == ["link.png"] else scans
    out = tmp_path / "same"
    out.symlink_to(scans if inputs != ["link.png"] else tmp_path)
    before = (scans / "a.png").read_bytes()
    for place in (folder, out):
        with pytest.raises(InvalidParameter, match="an output would have the place and name"):
            run_batch(action, [folder / one for one in inputs], place, overwrite=True)
    assert (scans / "a.png").read_bytes() == before
    assert files_of(scans) == {"a.png", "a.tif", "sub/v.nii"}


def test_outputs_may_lie_beside_inputs_of_other_names(action: SegmentFiles, scans: Path) -> None:
    run_batch(action, [scans / "sub"], scans, overwrite=True)
    assert files_of(scans) >= {"v.nii", "sub/v.nii", "a.png"}


def test_outputs_are_not_written_through_links(
    action: SegmentFiles, scans: Path, tmp_path: Path
) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    out.mkdir()
    outside.mkdir()
    (out / "sub").symlink_to(outside)
    run = run_batch(action, [scans], out, overwrite=True)
    assert {result.case for result in run.failed} == {"broken", "sub/v"}
    assert "is a link, through which no outputs are written" in str(run.failed[1].error)
    assert list(outside.iterdir()) == []


def test_paths_below_the_working_folder_on_a_cluster(
    models: Path, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of a cluster run in the folder in which Ray was started on their node."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def on_a_node(
        action: Action, cases: Sequence[Numbered], records: Records, _cluster: Cluster,
        _jobs: int | None, finish: CaseListener,
    ) -> None:  # fmt: skip
        done: list[tuple[int, CaseResult]] = []
        monkeypatch.chdir(elsewhere)
        run_here(action, action.load(), cases, records, lambda *_: None, lambda *o: done.append(o))
        monkeypatch.chdir(tmp_path)
        for one in done:
            finish(*one)

    monkeypatch.setattr(run, "run_on_cluster", on_a_node)
    monkeypatch.chdir(tmp_path)
    action = SegmentFiles("tiny-segmentation", Path(os.path.relpath(models)))
    run_batch(action, [scans.relative_to(tmp_path)], "out", cluster=Cluster())
    assert files_of(tmp_path / "out") == OUTPUTS
    assert list(elsewhere.iterdir()) == []


def test_an_interruption_keeps_what_is_done(
    action: SegmentFiles, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment, count = Model.segment, [0]

    def interrupted(self: Model, *arguments: object, **more: object) -> object:
        count[0] += 1
        if count[0] == 2:
            raise KeyboardInterrupt
        return segment(self, *arguments, **more)  # type: ignore[arg-type]

    out = tmp_path / "out"
    monkeypatch.setattr(Model, "segment", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_batch(action, [scans], out)
    assert files_of(out) == {"a_png.png", "cases.csv", "cases.json"}
    assert list(table_of(out)) == ["a_png"]
    monkeypatch.setattr(Model, "segment", segment)
    run_batch(action, [scans], out, resume=True)
    assert files_of(out) == OUTPUTS


def test_a_case_that_is_done_when_ctrl_c_comes_is_told(
    action: SegmentFiles, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output and record are written; the press comes before the batch has its result."""
    told: list[str] = []

    class Listens:
        def begin(self, cases: Sequence[Case], done: Sequence[CaseResult]) -> None: ...

        def step(self, index: int, done: int, total: int) -> None: ...

        def finish(self, index: int, result: CaseResult) -> None:
            told.append(result.case)

    add = Records.add

    def pressed(records: Records, result: CaseResult) -> None:
        add(records, result)
        raise KeyboardInterrupt

    monkeypatch.setattr(Records, "add", pressed)
    with pytest.raises(KeyboardInterrupt):
        run_batch(action, [scans], tmp_path / "out", listener=Listens())
    assert told == ["a_png"] == list(table_of(tmp_path / "out"))


def test_a_case_without_memory_says_so(
    action: SegmentFiles, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def segment(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Model, "segment", segment)
    result = run_batch(action, [scans / "a.png"], tmp_path / "out")
    assert [(one.error or "").partition(":")[0] for one in result.failed] == ["out_of_memory"]


def test_an_unexpected_error_of_a_case_tells_where_it_was_raised(
    action: SegmentFiles, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def segment(*_: object, **__: object) -> None:
        raise KeyError("mask")

    monkeypatch.setattr(Model, "segment", segment)
    [result] = run_batch(action, [scans / "a.png"], tmp_path / "out").failed
    line = segment.__code__.co_firstlineno + 1
    assert result.error == f"KeyError: 'mask' (tests/batch/test_run.py, line {line})"


def killed_before_it_is_whole(action: SegmentFiles, scans: Path, out: Path, file: str) -> None:
    """A batch that is killed when it has written a file, but not put it into its place."""
    replace = Path.replace

    def killed(draft: Path, target: str | os.PathLike[str]) -> Path:
        if Path(target).name == file:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(draft, target)

    with patch.object(Path, "replace", killed):
        run_batch(action, [scans], out)


@pytest.mark.parametrize("file", ["v.nii", "cases.json"])
@pytest.mark.parametrize("how", ["resume", "overwrite"])
def test_what_a_killed_batch_has_half_written_goes(
    python: Path, action: SegmentFiles, scans: Path, tmp_path: Path, file: str, how: str
) -> None:
    """Also of a case that is no longer there; what others have written stays."""
    out = tmp_path / "out"
    killed = start(python, killed_before_it_is_whole, action, scans, out, file, folder=tmp_path)
    assert killed.wait() == -signal.SIGKILL
    assert [name for name in files_of(out) if name.endswith(".draft")]
    foreign = out / ".0123456789abcdef.draft"
    foreign.write_bytes(b"another program's")
    (scans / "sub/v.nii").unlink()
    run_batch(action, [scans], out, resume=how == "resume", overwrite=how == "overwrite")
    assert [*out.rglob(".*")] == [foreign]


def test_a_full_disk_leaves_no_half_file(
    action: SegmentFiles, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if b"\0" not in data:  # a table or record, for which there is room
            return write(path, data)
        write(path, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    run = run_batch(action, [scans], tmp_path / "out")
    assert "file: No space left on device" in {result.error for result in run.failed}
    assert files_of(tmp_path / "out") == {"cases.csv", "cases.json"}


class Fatal(SegmentFiles):
    """Its process ends with every case named a.tif."""

    def run(self, model: Model, case: Case, folder: Path) -> CaseResult:
        if case.suffix == ".tif":
            os._exit(9)
        return super().run(model, case, folder)


@dataclass(frozen=True)
class FatalOnceTold(SegmentFiles):
    """Its process ends with every case named a.tif, as soon as a file is there."""

    told: Path = Path()

    def run(self, model: Model, case: Case, folder: Path) -> CaseResult:
        if case.suffix == ".tif":
            until(self.told.exists)
            os._exit(9)
        return super().run(model, case, folder)


@dataclass
class EndsThem:
    """With the first result, it tells the processes to end, and waits for it."""

    told: Path

    def begin(self, cases: Sequence[Case], done: Sequence[CaseResult]) -> None: ...

    def step(self, index: int, done: int, total: int) -> None: ...

    def finish(self, index: int, result: CaseResult) -> None:
        if not self.told.exists():
            self.told.touch()
            for process in multiprocessing.active_children():
                process.join()


def in_two_processes(
    action: SegmentFiles, scans: Path, out: Path, listener: EndsThem | None = None
) -> None:
    """They need not import anything; `tests.cli.test_batch` has them as they are."""
    forked = multiprocessing.get_context("fork")
    with patch.object(multiprocessing, "get_context", lambda _: forked):
        run_batch(action, [scans], out, jobs=2, listener=listener)


def test_the_number_of_processes_changes_nothing(
    python: Path, action: SegmentFiles, scans: Path, tmp_path: Path
) -> None:
    """Nor does the end of one of them, but for its case."""
    run_batch(action, [scans], tmp_path / "one")
    fatal = Fatal(action.model, action.models)
    given = fatal, scans, tmp_path / "two"
    assert succeeds(start(python, in_two_processes, *given, folder=tmp_path))
    one, two = table_of(tmp_path / "one"), table_of(tmp_path / "two")
    assert list(two) == ["a_png", "a_tif", "broken", "sub/v"]
    assert two.pop("a_tif")["error"] == "the process ended: out of memory?"
    one.pop("a_tif")
    assert one == two
    for name in OUTPUTS - {"a_tif.tif", "cases.csv", "cases.json"}:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_process_that_ends_between_two_cases_loses_neither(
    python: Path, action: SegmentFiles, scans: Path, tmp_path: Path
) -> None:
    """What is given to processes that have just ended is given to the next ones."""
    told, out = tmp_path / "told", tmp_path / "out"
    fatal = FatalOnceTold(action.model, action.models, told=told)
    given = fatal, scans, out, EndsThem(told)
    assert succeeds(start(python, in_two_processes, *given, folder=tmp_path))
    errors = {case: entry.get("error") for case, entry in table_of(out).items()}
    assert list(errors) == ["a_png", "a_tif", "broken", "sub/v"]
    assert [case for case, error in errors.items() if error] == ["a_tif", "broken"]


def test_label_maps_become_images(models: Path, tmp_path: Path) -> None:
    ids = np.zeros((1, 20, 28), np.uint8)
    ids[0, 4:12, 6:20] = 2
    folder, out = tmp_path / "labels", tmp_path / "out"
    folder.mkdir()
    MedicalImage(ids, format="png", kind="labels").save(folder / "x.png")
    MedicalImage(ids + 1, format="png", kind="labels").save(folder / "y.png")
    action = SynthesizeFiles("tiny-synthesis", models, seed=3, count=2)
    run = run_batch(action, [folder], out)
    assert files_of(out) == {"x-seed3.png", "x-seed4.png", "cases.csv", "cases.json"}
    assert str(run.failed[0].error).startswith("unknown_label: the label map holds the ids 1, 3")
    model = caps_med.load_model("tiny-synthesis", models)
    model.synthesize(folder / "x.png", 4).save(tmp_path / "alone.png")
    assert (out / "x-seed4.png").read_bytes() == (tmp_path / "alone.png").read_bytes()
    with pytest.raises(InvalidParameter, match="count=0: must be at least 1"):
        run_batch(SynthesizeFiles("tiny-synthesis", models, count=0), [folder], out / "n")


def test_classes_of_a_folder(tmp_path: Path) -> None:
    """The table has the class and all probabilities; an input may be called like the table."""
    repository = write_classifiers(tmp_path / "models")
    folder, out = tmp_path / "pictures", tmp_path / "out"
    (folder / "sub").mkdir(parents=True)
    for seed, name in enumerate(("cases.png", "sub/b.png")):
        pixels = np.random.default_rng(seed).integers(0, 255, (1, 20, 28), dtype=np.uint8)
        MedicalImage(pixels, format="png").save(folder / name)
    run = run_batch(ClassifyFiles("tiny-cnn", repository), [folder], out)
    assert files_of(out) == {"cases_png.json", "sub/b.json", "cases.csv", "cases.json"}
    wanted = caps_med.load_model("tiny-cnn", repository).classify(folder / "sub/b.png")
    assert json.loads((out / "sub/b.json").read_text()) == wanted.numbers()
    with (out / "cases.csv").open(newline="") as file:
        row = list(csv.DictReader(file))[1]
    assert row["class"] == run.results[1].values["class"] == wanted.label
    for name, probability in wanted.probabilities.items():
        assert float(row[f"{name} probability"]) == pytest.approx(probability)
    again = run_batch(ClassifyFiles("tiny-cnn", repository), [folder], out, resume=True)
    assert again.results == run.results
    features = run_batch(FeatureFiles("tiny-capsnet", repository), [folder], tmp_path / "capsules")
    assert features.failed == ()
    with pytest.raises(WrongTask, match="tiny-cnn is a classification model"):
        run_batch(SegmentFiles("tiny-cnn", repository), [folder], out / "n")


def test_capsules_of_a_folder(models: Path, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    action = FeatureFiles("tiny-segmentation", models, layer="seg_caps")
    run: BatchRun = run_batch(action, [scans / "sub", scans / "a.png"], out)
    assert files_of(out) == {
        *(f"{case}/{file}" for case in ("a", "sub/v")
          for file in ("features.npz", "capsules.png", "statistics.json")),
        "cases.csv", "cases.json",
    }  # fmt: skip
    assert run.failed == () and run.results[0].labels == ()
    run_batch(action, [scans / "sub", scans / "a.png"], out, overwrite=True)
    with pytest.raises(LayerNotFound, match="no layer 'nope'"):
        run_batch(FeatureFiles("tiny-segmentation", models, layer="nope"), [scans], out / "n")


def test_capsules_below_those_of_another_case_stay(scans: Path, models: Path) -> None:
    """``sub`` and ``sub/v`` are both cases: that which is done again leaves the other."""
    out = scans.parent / "out"
    image = MedicalImage(np.zeros((1, 20, 28), np.uint8), format="png")
    for level in (0, 255):
        image.with_array(image.array + level).save(scans / "sub.png")
        action = FeatureFiles("tiny-segmentation", models, layer="seg_caps")
        run = run_batch(action, [scans / "sub.png", scans / "sub"], out, resume=True)
    assert run.failed == ()
    assert files_of(out) == {
        *(name for result in run.results for name in result.outputs), "cases.csv", "cases.json",
    }  # fmt: skip
    assert {result.case for result in run.results} == {"sub", "sub/v"}
