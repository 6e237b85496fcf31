"""From few labelled images to many, with networks so small that it takes seconds."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nibabel
import numpy as np
import pytest
import typer
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

import caps_med
from caps_med.bundles import LabelMapStatistics, ModelCard, ModelRepository
from caps_med.drafts import draft_of
from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import Kind, MedicalImage, Normalization, read_image
from caps_med.networks import SegCaps
from tests.conftest import disc, tiny_binary, tiny_card, write_tiny
from tests.training.axons import write_axons
from tests.training.forked import killed_when, start, succeeds
from training.augment import AugmentConfig, AugmentFolder, Result, augment
from training.augment import models as judging
from training.augment.benefit import (
    BOTH,
    REAL,
    _train_and_test,
    half_synthetic,
    summarized,
)
from training.augment.estimate import duration
from training.augment.intensity import Scale
from training.augment.models import (
    AugmentRun,
    segmenter_recipe,
    segmenter_values,
    threshold_of,
)
from training.augment.split import split
from training.cli import augment as command
from training.data import load_source, open_dataset
from training.data.cases import Cases, FileRef
from training.data.layouts import discover
from training.data.stacks import read_reference
from training.engine import collapse
from training.engine.run_folder import RunFolder
from training.labelmaps.originals import read_originals
from training.tasks.segmentation import SegmentationRecipe

TINY: Mapping[str, Any] = {
    "count": 4,
    "threshold": 0.0,
    "generator": {"epochs": 2, "steps": 2, "batch_size": 1, "crop": 64, "atoms": 4},
    "judge": {"epochs": 1, "steps": 2, "batch_size": 1, "features": [4, 4, 8, 8, 8, 4]},
    "segmenter": {"epochs": 1, "steps": 2, "batch_size": 1, "features": [4, 4, 8, 8, 8, 4]},
}
QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_axons(tmp_path_factory.mktemp("phantoms") / "axons", 6, seed=5)


@contextlib.contextmanager
def style_of_few_crops() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.tasks.synthesis.train.STYLE_CROPS", 16)
        yield


@pytest.fixture(scope="module", autouse=True)
def _style_of_few_crops() -> Iterator[None]:
    with style_of_few_crops():
        yield


def configured(data: Path, **changes: Any) -> AugmentConfig:  # noqa: ANN401
    return AugmentConfig.model_validate({"data": str(data), **TINY, **changes})


@pytest.fixture(scope="module")
def done(phantoms: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("done") / "more"
    augment(configured(phantoms), out, None, QUIET)
    return out


def test_the_result_is_labelled_images_like_the_input(done: Path, phantoms: Path) -> None:
    report = open_dataset(done)
    assert report.trainable
    assert report.card is not None
    assert report.card.cases == 4
    assert [one.label for one in report.card.classes] == [0, 1]
    for kind in ("images", "labels"):
        real = next((phantoms / kind).iterdir())
        for file in (done / kind).iterdir():
            assert file.suffix == real.suffix
            with Image.open(file) as made, Image.open(real) as like:
                assert (made.mode, made.size) == (like.mode, like.size) or kind == "labels"


def test_the_manifest_says_where_every_image_comes_from(done: Path) -> None:
    manifest = json.loads((done / "manifest.json").read_text())
    assert manifest["kept"] == 4
    generator = caps_med.load_model("generator", done / "models")
    assert manifest["generator"]["weights_sha256"] == generator.bundle.metadata.weights.sha256
    for one in manifest["images"]:
        label = read_image(done / one["label"], kind="labels")
        again = generator.synthesize(label, one["seed"]).array
        image = read_image(done / one["images"][0]).array.astype(float)
        assert np.corrcoef(again.ravel(), image.ravel())[0, 1] > 0.95, "another seed or label map"
        assert one["origin"]["how"] in ("deformed", "joined", "blended")
        assert one["intensities_of"].startswith("axons-")


def test_the_report_shows_and_explains(done: Path) -> None:
    html = (done / "report.html").read_text()
    assert "4 synthetic images like axons" in html
    assert "with a Dice of 0.000 or more: as requested" in html
    assert "<svg" in html
    assert html.count("data:image/png") == 1
    assert read_image(done / "sheet.png").array.shape[0] == 3
    judge = json.loads((done / ".work" / "done" / "judge.json").read_text())
    assert len(judge["dice"]) == 6, "every real image, each by a network that never saw it"


def test_doing_it_again_changes_nothing_and_other_values_are_refused(
    done: Path, phantoms: Path
) -> None:
    before = contents(done)
    with draft_of(done / "images" / "draft.png") as draft:
        draft.touch()
    (done / "images" / "draft.png").rename(draft)  # what a killed process leaves
    (done / "models" / "judge" / ".draft-x" / "models").mkdir(parents=True)
    augment(configured(phantoms), done, None, QUIET)
    assert contents(done) == before
    assert not list((done / "models").rglob(".draft*"))
    with pytest.raises(InvalidParameter, match="count: 4 -> 5"):
        augment(configured(phantoms, count=5), done, None, QUIET)
    with pytest.raises(InvalidParameter, match="is not empty"):
        AugmentFolder(phantoms).open(configured(phantoms))


def test_two_processes_do_not_work_in_one_folder(done: Path, phantoms: Path) -> None:
    """Each would delete what the other one is writing."""
    lock = str(done / ".work" / "run.lock")
    holds = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = [sys.executable, "-c", holds, lock]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(InvalidParameter, match="finished, or name another folder"):
            augment(configured(phantoms), done, None, QUIET)
        other.stdin.close()


def test_a_reader_is_told_what_to_doubt(done: Path, phantoms: Path) -> None:
    found = augment(configured(phantoms), done, None, QUIET)

    def notes(dice: float, real: float, **changes: Any) -> str:  # noqa: ANN401
        drawn = [one.model_copy(update={"dice": dice, **changes}) for one in found.drawn]
        judge = {**found.judge, "dice": {"a": real, "b": real}}
        return " ".join(replace(found, drawn=drawn, judge=judge).notes())

    assert notes(0.85, 0.85) == ""
    assert "worth little" in notes(0.4, 0.4)
    assert "easier than real ones" in notes(0.95, 0.85)
    assert "only 0 of the requested 4 images" in notes(0.2, 0.85, kept=False)


def test_what_the_generator_warns_of_reaches_the_reader(
    phantoms: Path, done: Path, tmp_path: Path
) -> None:
    """The command's notes, the report and the manifest."""
    repository = shutil.copytree(done / "models", tmp_path / "models")
    card = tiny_card("synthesis", None)
    usual = LabelMapStatistics(labelled=(0.9, 1.0), borders=(0.0, 0.1), shares=((1.0, 1.0),))
    known = {"labels": {0: "background", 1: "axon"}, "label_statistics": usual}
    network = card.network.model_copy(
        update={"arguments": {**card.network.arguments, "label_channels": 1}}
    )
    write_tiny(repository, "solid", card.model_copy(update={**known, "network": network}))
    config = configured(phantoms, model="solid", judge_model="judge")
    result = augment(config, tmp_path / "out", repository, QUIET)
    (note,) = [note for note in result.notes() if "the generator solid" in note]
    assert note.startswith("about 4 of 4 new label maps")
    assert "unlike those that the model was trained on" in note
    images = json.loads((tmp_path / "out" / "manifest.json").read_text())["images"]
    assert all("unlike" in one["warnings"][0] for one in images)
    assert (
        "unlike those that the model was trained on"
        in (tmp_path / "out" / "report.html").read_text()
    )


@pytest.mark.parametrize("names", [("T1", "FLAIR"), ("with/without", "z"), ("a", "b")])
def test_channels_in_files_of_their_own_keep_their_order(
    names: tuple[str, str], phantoms: Path, tmp_path: Path
) -> None:
    """Read again, they were in the order of their names; one with a slash was a folder."""
    data, models = tmp_path / "data", tmp_path / "models"
    for kind in ("imagesTr", "labelsTr"):
        (data / kind).mkdir(parents=True)
    described = {"channel_names": dict(enumerate(names)), "labels": {"background": 0, "axon": 1}}
    (data / "dataset.json").write_text(json.dumps(described))
    for file in (phantoms / "images").iterdir():
        shutil.copy(phantoms / "labels" / file.name, data / "labelsTr")
        with Image.open(file) as image:
            dark, bright = (image.point(lambda v, low=low: low + v // 4) for low in (0, 128))
        dark.save(data / "imagesTr" / f"{file.stem}_0000.png")
        bright.save(data / "imagesTr" / f"{file.stem}_0001.png")
    usual = {
        "labels": {0: "background", 1: "axon"},
        "normalization": Normalization(per_channel=True),
    }
    made = {"label_channels": 1, "image_channels": 2}
    for name, task, more in (
        ("generator", "synthesis", made),
        ("judge", "segmentation", {"in_channels": 2, "out_channels": 1}),
    ):
        card = tiny_card(task, None)
        network = card.network.model_copy(update={"arguments": {"atoms": 4, **more}})
        write_tiny(models, name, card.model_copy(update={**usual, "network": network}))
    config = configured(data, model="generator", judge_model="judge", count=1)
    augment(config, tmp_path / "out", models, QUIET)
    found = open_dataset(tmp_path / "out")
    first, second = found.read(found.cases[0])[0].array
    assert first.max() < 128 <= second.min()


def contents(out: Path) -> dict[str, str]:
    """File -> digest, of the result."""
    files = [p for p in out.rglob("*") if p.is_file() and ".work" not in p.parts]
    return {
        p.relative_to(out).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(files)
        if "models" not in p.relative_to(out).parts or p.name == "model.safetensors"
    }


def augment_once(data: Path, out: Path) -> None:
    """From the start to the end, or on from where it was killed."""
    with style_of_few_crops():
        augment(configured(data), out, None, QUIET)


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(
    python: Path, done: Path, phantoms: Path, tmp_path: Path
) -> None:
    out = tmp_path / "more"
    begun = partial(start, python, augment_once, phantoms, out, folder=tmp_path)
    work = out / ".work"
    moments = [
        lambda: (work / "runs" / "generator" / "checkpoint.pt").exists(),
        lambda: (work / "runs" / "judge" / "fold-2" / "checkpoint.pt").exists(),
        lambda: (work / "drawn" / "00001.json").exists(),
    ]
    assert all([killed_when(begun(), moment) for moment in moments])
    assert not (out / "report.html").exists()
    assert succeeds(begun())
    assert contents(out) == contents(done)


def test_images_without_their_geometry_are_dropped(
    done: Path, phantoms: Path, tmp_path: Path
) -> None:
    dice = [one["dice"] for one in json.loads((done / "manifest.json").read_text())["images"]]
    given = {"model": "generator", "judge_model": "judge", "count": 2}
    middle = sorted(dice)[2]
    out = tmp_path / "some"
    result = augment(configured(phantoms, **given, threshold=middle), out, done / "models", QUIET)
    shown = [one.dice for one in result.drawn]
    assert shown[: len(dice)] == dice[: len(shown)], "the same models, the same images"
    assert [one.kept for one in result.drawn] == [one.dice >= middle for one in result.drawn]
    assert len(list((out / "images").iterdir())) == 2
    assert "may have been trained on these very images" in (out / "report.html").read_text()
    with pytest.raises(InvalidInput, match="survived in none of 16 images"):
        augment(
            configured(phantoms, **given, threshold=1.0), tmp_path / "no", done / "models", QUIET
        )


def test_models_of_other_labels_and_tasks_are_refused(
    phantoms: Path, models: Path, done: Path, tmp_path: Path
) -> None:
    wrong = configured(phantoms, model="tiny-segmentation")
    with pytest.raises(ValueError, match="a model for synthesis is needed"):
        augment(wrong, tmp_path / "a", models, QUIET)
    for option in ("model", "judge_model"):
        task = {"model": "synthesis", "judge_model": "segmentation"}[option]
        told = rf"axons-0000\.png: the label map holds the ids 1; .* leave out --{option[:5]} to"
        out = tmp_path / option
        with pytest.raises(InvalidInput, match=told):
            augment(configured(phantoms, **{option: f"tiny-{task}"}), out, models, QUIET)
        assert not (out / "models").exists(), "told before anything is trained"


def test_further_ids_of_a_generator_are_read_as_its_labels(models: Path, tmp_path: Path) -> None:
    known = {0: "background", 2: "left", 1035: "right"}
    repository = shutil.copytree(models, tmp_path / "models")
    card = tiny_card("synthesis", None).model_copy(update={"aliases": {1035: 7}})
    write_tiny(repository, "sided", card)
    write_tiny(repository, "judge", tiny_card("segmentation", None, labels=known))
    rng = np.random.default_rng(4)
    for kind in ("images", "labels"):
        (tmp_path / "data" / kind).mkdir(parents=True)
    for number in range(4):
        image, mask = disc(rng, 64)
        ids = np.where(mask, np.where(np.arange(64) < 32, 2, 1035), 0).astype(np.uint16)
        Image.fromarray(image).save(tmp_path / "data" / "images" / f"{number}.png")
        Image.fromarray(ids).save(tmp_path / "data" / "labels" / f"{number}.png")
    given = {"model": "sided", "judge_model": "judge", "count": 2}
    result = augment(configured(tmp_path / "data", **given), tmp_path / "out", repository, QUIET)
    generator = caps_med.load_model("sided", repository)
    for one in result.kept:
        label = read_image(tmp_path / "out" / one.label, kind="labels")
        assert np.isin(label.array, list(known)).all() and (label.array == 1035).any()
        renumbered = label.with_array(np.where(label.array == 1035, 7, label.array))
        again = generator.synthesize(renumbered, one.seed).array
        image = read_image(tmp_path / "out" / one.images[0]).array.astype(float)
        assert np.corrcoef(again.ravel(), image.ravel())[0, 1] > 0.95


@pytest.mark.parametrize(
    ("part", "values", "said"),
    [
        ("generator", {"epochs": "many"}, "epochs: Input should be a valid integer"),
        ("judge", {"network": "nope"}, "network"),
        ("segmenter", {"epochz": 2}, "epochz: there is no such value"),
    ],
)
def test_settings_are_checked_before_anything_is_trained(
    part: str, values: dict[str, Any], said: str, phantoms: Path, tmp_path: Path
) -> None:
    config = configured(phantoms, **{part: values})
    with pytest.raises(InvalidParameter, match=said):
        augment(config, tmp_path / "out", None, QUIET)
    assert not (tmp_path / "out").exists()


def test_broken_data_are_refused_with_what_is_wrong(phantoms: Path, tmp_path: Path) -> None:
    data = write_axons(tmp_path / "data", 3, seed=0, size=32)
    (data / "labels" / "axons-0001.png").unlink()
    with pytest.raises(InvalidInput, match=r"1 error, the first: error: unpaired: .*axons-0001"):
        augment(configured(data), tmp_path / "out", None, QUIET)


def test_what_was_refused_before_anything_was_done_may_be_corrected(
    phantoms: Path, models: Path, tmp_path: Path
) -> None:
    """Another command for the same folder is one that goes on, unless nothing was begun."""
    (tmp_path / "data").mkdir()
    out = tmp_path / "out"
    task = {"model": "tiny-synthesis", "judge_model": "tiny-segmentation"}
    with pytest.raises(InvalidInput, match="the layout is not supported"):
        augment(configured(tmp_path / "data"), out, models, QUIET)
    with pytest.raises(ValueError, match="a model for synthesis is needed"):
        augment(configured(phantoms, model="tiny-segmentation"), out, models, QUIET)
    with pytest.raises(InvalidInput, match="the label map holds the ids 1"):
        augment(configured(phantoms, **task), out, models, QUIET)
    assert AugmentFolder(out).open(configured(phantoms, count=5)) is False


#: Module of training/ -> what it reads label maps for.
PURPOSES = {
    "data/check/check.py": "discovery and check",
    "labelmaps/originals.py": "shapes of the new label maps",
    "data/prepare.py": "preparation",
    "augment/split.py": "labels of the test images",
    "augment/generate.py": "intensities of the synthetic images",
    "augment/models.py": "threshold of the judge",
    "evaluation/evaluator.py": "evaluation",
    "reports/segmentation.py": "pictures of the judge's report",
    "augment/result.py": "pictures of the report",
}


def purpose_of_call() -> str:
    """What the innermost module that is known reads for, or the modules on the stack."""
    codes = [frame.f_code for frame, _ in traceback.walk_stack(None)]
    frames = [(code.co_filename.rpartition("/training/")[2], code.co_name) for code in codes]
    if ("data/reading.py", "label_encoding") in frames:
        return "discovery and check"
    known = (PURPOSES[file] for file, _ in frames if file in PURPOSES)
    return next(known, ", ".join(f"{file}:{name}" for file, name in frames))


@dataclass
class Compared:
    """A run with ``--train-segmenter``, and how often each file was read for what."""

    data: Path
    out: Path
    result: Result
    discoveries: Counter[str]
    reads: dict[str, Counter[Path]]


@pytest.fixture(scope="module")
def compared(phantoms: Path, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    root = tmp_path_factory.mktemp("compared")
    data, out = root / "axons", root / "out"
    shutil.copytree(phantoms, data)  # another path: not opened before in this process
    discoveries: Counter[str] = Counter()
    reads: dict[str, Counter[Path]] = {}

    def counted_discover(path: Path) -> Cases:
        discoveries[path.name] += 1
        return discover(path)

    def counted_read(reference: FileRef, kind: Kind) -> MedicalImage:
        if kind == "labels":
            reads.setdefault(purpose_of_call(), Counter())[reference.path] += 1
        return read_reference(reference, kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.data.dataset.discover", counted_discover)
        patch.setattr("training.data.reading.read_reference", counted_read)
        config = configured(data, train_segmenter=True, segmenter_seeds=2, count=3)
        result = augment(config, out, None, QUIET)
    return Compared(data, out, result, discoveries, reads)


def test_the_benefit_is_measured_on_images_that_no_model_has_seen(compared: Compared) -> None:
    result = compared.result
    assert result.parts.test is not None
    apart = {case.name for case in result.parts.test.cases}
    assert len(apart) == 2
    assert not apart & {case.name for case in result.parts.dataset.cases}
    assert not apart & {name for one in result.drawn for name in one.origin.originals}
    assert result.benefit is not None
    assert result.benefit.verdict == "too few cases"
    html = (compared.out / "report.html").read_text()
    assert "Too few test cases to tell" in html
    assert "real and synthetic images" in html


def test_of_data_without_cases_none_are_set_aside(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    config = AugmentConfig(data=str(tmp_path / "notes"), count=1, train_segmenter=True)
    with pytest.raises(InvalidInput, match="the layout is not supported"):
        augment(config, tmp_path / "out", None, QUIET)


def test_a_run_does_not_go_on_with_other_data(compared: Compared) -> None:
    """With two cases more, others are set aside: some that the models were trained on."""
    config = compared.result.config
    before = contents(compared.out)
    added = write_axons(compared.data.parent / "others", 8, seed=9)
    new = [file for name in ("axons-0006", "axons-0007") for file in added.glob(f"*/{name}.png")]
    copies = [compared.data / file.parent.name / file.name for file in new]
    for file, copy in zip(new, copies, strict=True):
        shutil.copy(file, copy)
    with pytest.raises(InvalidParameter, match=r"changed since .* \(added: axons-0006, axons-0007"):
        augment(config, compared.out, None, QUIET)
    for copy in copies:
        copy.unlink()
    augment(config, compared.out, None, QUIET)
    assert contents(compared.out) == before


def test_test_images_must_not_be_among_the_data(tmp_path: Path) -> None:
    """All parts of the data are trained on: the judge is cross-validated over them."""
    for part, seed in (("train", 5), ("val", 8)):
        write_axons(tmp_path / "axons" / part, 3, seed=seed)
        for file in (tmp_path / "axons" / part).glob("*/*.png"):
            file.rename(file.with_name(f"{part}-{file.name}"))
    config = configured(
        tmp_path / "axons", train_segmenter=True, test=str(tmp_path / "axons" / "val")
    )
    with pytest.raises(InvalidParameter, match=r"val: val-axons-0000, .* belong to --data .*axons"):
        augment(config, tmp_path / "out", None, QUIET)
    shutil.copytree(tmp_path / "axons" / "val", tmp_path / "copies")
    config = config.model_copy(update={"test": str(tmp_path / "copies")})
    with pytest.raises(InvalidParameter, match=r"copies: val-axons-0000, .* or are copies"):
        augment(config, tmp_path / "out", None, QUIET)


def test_empty_images_are_no_copies_of_each_other(tmp_path: Path) -> None:
    parts = {}
    for part, seed in (("data", 5), ("test", 8)):
        write_axons(tmp_path / part, 3, seed=seed)
        for kind in ("images", "labels"):
            known = sorted((tmp_path / part / kind).iterdir())[0]
            with Image.open(known) as picture:
                black = picture.point(lambda _: 0)
            black.save(known.with_name(known.name.replace("0000", "black")))
        parts[part] = open_dataset(tmp_path / part)
    config = configured(tmp_path / "data", train_segmenter=True, test=str(tmp_path / "test"))
    found = split(config, parts["data"], parts["data"])
    assert found.test is not None and len(found.test.cases) == 4


@pytest.mark.parametrize("apart", [True, False])
def test_test_images_have_labels_that_can_be_learned(tmp_path: Path, apart: bool) -> None:
    """Of those set aside, and of others: it was said when the first segmenter was trained."""
    data, test = tmp_path / "data", None
    write_axons(data, 6, seed=5)
    labels = sorted((data / "labels").iterdir())
    if not apart:
        test = tmp_path / "test"
        labels = sorted((write_axons(test, 2, seed=8) / "labels").iterdir())
    for file in labels[1:2]:  # of the second of six, which is set aside
        with Image.open(file) as label:
            label.paste(2, (0, 0, 9, 9))
            label.save(file)
    config = configured(data, train_segmenter=True, test=test and str(test))
    with pytest.raises(InvalidInput, match=r"axons-0001.* the label 2, which no image to"):
        augment(config, tmp_path / "out", None, QUIET)


def test_a_value_is_not_given_twice(tmp_path: Path) -> None:
    """One of the two was ignored without a word."""
    app = typer.Typer()
    command.register(app)
    given = ["--data", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--count", "1"]
    for option, value in (
        ("--seed", "seed"), ("--judge", "judge_model"), ("--count", "count"),
        ("--epochs", "generator.epochs"),
    ):  # fmt: skip
        extra = [] if option == "--count" else [option, "3"]
        result = CliRunner().invoke(app, [*given, *extra, "--set", f"{value}=5"])
        told = f"--set {value}: {option} is given, too; leave one out"
        assert isinstance(result.exception, InvalidParameter) and told == str(result.exception)
    result = CliRunner().invoke(app, [*given, "--epochs", "3", "--set", "generator=5"])
    assert isinstance(result.exception, InvalidParameter), result.exception
    assert str(result.exception).startswith("generator: ")


def test_a_seed_below_0_is_refused_with_the_option(tmp_path: Path) -> None:
    app = typer.Typer()
    command.register(app)
    given = ["--data", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--count", "1"]
    result = CliRunner().invoke(app, [*given, "--seed", "-1"])
    assert result.exit_code == 2 and "--seed" in result.output


def test_epochs_of_a_generator_that_is_given_are_refused(tmp_path: Path) -> None:
    app = typer.Typer()
    command.register(app)
    given = ["--data", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--count", "1"]
    result = CliRunner().invoke(app, [*given, "--model", "axons", "--epochs", "5"])
    assert "--epochs: only used where a generator is trained" in str(result.exception)


@pytest.mark.parametrize(
    ("value", "option"),
    [("generator.steps", "--model"), ("judge.steps", "--judge"), ("segmenter.steps", "")],
)
def test_values_of_what_is_not_trained_are_refused(value: str, option: str, tmp_path: Path) -> None:
    app = typer.Typer()
    command.register(app)
    given = ["--data", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--count", "1"]
    chosen = [option, "axons"] if option else []
    result = CliRunner().invoke(app, [*given, *chosen, "--set", f"{value}=5"])
    name = value.partition(".")[0]
    assert f"only used where a {name} is trained; leave it out, or" in str(result.exception)


def test_nothing_is_written_into_the_test_images(tmp_path: Path) -> None:
    """A continued run would have taken them for images to test on."""
    app = typer.Typer()
    command.register(app)
    (tmp_path / "test").mkdir()
    given = ["--data", str(tmp_path / "in"), "--out", str(tmp_path / "test" / "out")]
    more = ["--count", "1", "--train-segmenter", "--test", str(tmp_path / "test")]
    result = CliRunner().invoke(app, [*given, *more])
    assert "lies inside the data, which are never changed" in str(result.exception)


def test_each_label_map_is_read_once_for_discovery_and_check(compared: Compared) -> None:
    assert compared.discoveries == {"axons": 1, "out": 1}
    real = sorted((compared.data / "labels").iterdir())
    synthetic = sorted((compared.out / "labels").iterdir())
    assert compared.reads["discovery and check"] == dict.fromkeys([*real, *synthetic], 1)
    assert set(compared.reads) <= set(PURPOSES.values()), "every other read has a named use"
    assert max(compared.reads["shapes of the new label maps"].values()) == 1


@pytest.mark.parametrize("count", [6, 20])
def test_both_ways_hold_the_same_images_out_and_half_is_real(
    count: int, done: Path, tmp_path: Path
) -> None:
    """Of six images or of twenty, and four synthetic ones."""
    given = write_axons(tmp_path / "given", count, seed=5)
    real = load_source(open_dataset(given), tmp_path / "real")
    both = half_synthetic(real, load_source(open_dataset(done), tmp_path / "more"))
    held = [[np.asarray(s["image"]) for s in source.validation] for source in (real, both)]
    assert all(np.array_equal(a, b) for a, b in zip(*held, strict=True))
    synthetic = sum(group.startswith("synthetic") for group in both.groups)
    assert synthetic % 4 == 0
    assert 0.4 < synthetic / len(both.training) < 0.6


@pytest.mark.parametrize(
    ("gain", "verdict", "said"),
    [(0.05, "better", "helped: +5"), (-0.05, "worse", "Do not train on them"),
     (0.0, "no difference shown", "may be chance")],
)  # fmt: skip
def test_what_the_difference_shows_is_said(gain: float, verdict: str, said: str) -> None:
    rng = np.random.default_rng(0)
    cases = {f"case{k}": f"case{k}" for k in range(12)}
    dice: dict[str, list[dict[str, float]]] = {REAL: [], BOTH: []}
    for _ in range(3):
        for way in dice:
            noise = rng.normal(0.7 + gain * (way == BOTH), 0.01, len(cases))
            dice[way].append(dict(zip(cases, noise.tolist(), strict=True)))
    recipe = SegmentationRecipe.model_validate({"data": "x", "seed": 0})
    found = summarized(dice, cases, recipe, AugmentConfig(data="x", count=1, test="y"))
    assert found.verdict == verdict
    assert said in found.summary


def test_the_threshold_follows_from_the_held_out_scores() -> None:
    assert threshold_of([0.8, 0.8]) == pytest.approx(0.72)
    assert threshold_of([0.9, 0.8, 0.7]) == pytest.approx(0.6)
    assert threshold_of([0.9, 0.1]) == pytest.approx(0.25)


def test_a_judge_of_8_bits_sees_synthetic_images_of_16_bits_as_real_ones() -> None:
    """White is 65535 in them: on a scale up to 255 nearly all of them would be white."""
    real = MedicalImage(np.full((1, 4, 4), 30_000, np.uint16), format="png", white=65535)
    judge = Normalization(window=(0, 255))
    label = MedicalImage(np.ones((1, 4, 4), np.uint8), format="png", kind="labels")
    made = Scale.of([real, real], judge).image(label, np.full((1, 4, 4), 0.5, np.float32), 0)
    assert made.array.dtype == np.uint16
    seen = judge.for_white(made.white).apply(made.array)
    np.testing.assert_allclose(seen, 0.5, atol=1e-4)


def test_intensities_are_those_of_the_files() -> None:
    rng = np.random.default_rng(0)
    image = read_image(_tiff(rng.integers(200, 5000, (32, 32)).astype(np.uint16)))
    scale = Scale.of([image], Normalization())
    restored = scale.restore(Normalization().apply(image.array), 0)
    assert restored.dtype == np.uint16
    middle = np.abs(restored.astype(int) - image.array.astype(int))
    assert np.percentile(middle, 98) <= 1, "all but what the percentiles clip"
    hounsfield = Scale(levels=(((-160, 240),),), dtype="int16", masked=False)
    np.testing.assert_array_equal(hounsfield.restore(np.array([[0, 0.5, 1]]), 3), [[-160, 40, 240]])
    masked = Scale(levels=(((0, 100),),), dtype="float32", masked=True)
    np.testing.assert_array_equal(masked.restore(np.array([[0.01, 0.5]]), 0), [[0, 50]])


def test_each_sequence_keeps_its_own_intensities() -> None:
    """Of two MR sequences, one is a hundred times brighter."""
    values = np.random.default_rng(0).uniform(10, 30, (2, 32, 32)).astype(np.float32)
    values[1] *= 100
    normalization = Normalization(lower=0, upper=100, per_channel=True)
    scale = Scale.of([MedicalImage(values)], normalization)
    restored = scale.restore(normalization.apply(values), 0)
    np.testing.assert_allclose(restored.astype(np.float64), values, rtol=1e-4)


def _tiff(pixels: np.ndarray) -> bytes:
    import io

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "TIFF")
    return stream.getvalue()


def test_volumes_of_several_classes_come_back_as_such(tmp_path: Path) -> None:
    grid = np.indices((40, 36, 8))
    rng = np.random.default_rng(1)
    affine = np.diag([-1.0, 1.0, 2.0, 1.0])
    for k in range(4):
        middle = np.array([18 + k, 18, 4]).reshape(3, 1, 1, 1)
        scaled = np.array([1, 1, 2.5]).reshape(3, 1, 1, 1)
        distance = np.linalg.norm((grid - middle) * scaled, axis=0)
        ball = np.where(distance < 8 + k, 2, 0).astype(np.uint8)
        ball[distance < 5] = 5
        image = (ball * 50 + rng.normal(50, 10, ball.shape)).astype(np.int16)
        for kind, array in (("images", image), ("labels", ball)):
            (tmp_path / "data" / kind).mkdir(parents=True, exist_ok=True)
            name = tmp_path / "data" / kind / f"v{k}.nii.gz"
            nibabel.save(nibabel.Nifti1Image(array, affine), name)
    augment(configured(tmp_path / "data", count=1), tmp_path / "out", None, QUIET)
    written = nibabel.load(tmp_path / "out" / "images" / "new-00000.nii.gz")
    assert written.shape == (40, 36, 8)
    assert written.get_data_dtype() == np.int16
    np.testing.assert_array_equal(written.affine, affine)
    labels = nibabel.load(tmp_path / "out" / "labels" / "new-00000.nii.gz")
    assert set(np.unique(labels.dataobj)) == {0, 2, 5}
    assert open_dataset(tmp_path / "out").trainable


def test_the_segmenter_is_planned_for_slices_of_the_chosen_plane(tmp_path: Path) -> None:
    """Coronal slices of these volumes have pixels of 5 mm by 1 mm, and are narrow."""
    volume = np.zeros((96, 80, 12), np.uint8)
    volume[30:60, 30:50, 3:9] = 1
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
        for k in range(3):
            image = nibabel.Nifti1Image(volume + k * (kind == "images"), np.diag([1, 1, 5, 1]))
            nibabel.save(image, tmp_path / kind / f"v{k}.nii.gz")
    parts: Any = SimpleNamespace(dataset=open_dataset(tmp_path))
    segmenter = {"preparation": {"plane": "coronal"}}
    config = configured(tmp_path, segmenter=segmenter)
    run = AugmentRun(config, AugmentFolder(tmp_path / "out"), parts, None, QUIET)
    recipe = segmenter_recipe(run, segmenter)
    assert recipe.preparation is not None
    assert recipe.preparation.spacing_mm == (5.0, 1.0)
    assert recipe.crop == 48


def test_trainings_start_from_models_of_the_given_repository(
    phantoms: Path, tmp_path: Path
) -> None:
    """Only the models of the run itself, and built-in ones, were found."""
    write_tiny(tmp_path / "models", "own", tiny_binary("UNet", "axon"))
    few = {"epochs": 1, "steps": 1, "batch_size": 1, "start_from": "own"}
    parts: Any = SimpleNamespace(dataset=open_dataset(phantoms))
    config = configured(phantoms, judge=few, segmenter=few)
    run = AugmentRun(config, AugmentFolder(tmp_path / "out"), parts, tmp_path / "models", QUIET)
    values = {"seed": 0, **segmenter_values(run, config.judge)}
    judge = judging._train(run, "segmentation", "judge", values)
    assert judge.path.is_relative_to(tmp_path / "out" / "models")
    assert judge.card.network.name == "UNet"
    assert judge.card.network.arguments["features"] == [4, 4, 8, 8, 8, 4]
    assert segmenter_recipe(run, few).features == (4, 4, 8, 8, 8, 4)


def test_the_duration_follows_from_numbers_as_a_recipe_takes_them(phantoms: Path) -> None:
    """2.0 epochs were a ValueError, after the check of the data."""
    config = configured(phantoms, generator={"epochs": 2.0, "steps": "3"})
    assert duration(config, 6) == "a minute or two"


@pytest.mark.parametrize(
    ("part", "model", "told"),
    [
        ("judge", "nope", "no model 'nope'"),
        ("segmenter", "tiny-synthesis", "--set segmenter.start_from: tiny-synthesis: a model for"),
    ],
)
def test_a_model_to_start_from_is_looked_for_before_anything_is_trained(
    part: str, model: str, told: str, phantoms: Path, models: Path, tmp_path: Path
) -> None:
    config = configured(phantoms, **{part: {**TINY[part], "start_from": model}})
    with pytest.raises(ValueError, match=told):
        augment(config, tmp_path / "out", models, QUIET)
    assert not (tmp_path / "out" / "models").exists()


@pytest.mark.parametrize(
    ("part", "card", "asked", "told"),
    [
        ("judge", tiny_binary("UNet", "axon"), {"network": "segcaps"}, r"\(UNet where SegCaps is"),
        ("segmenter", tiny_binary("UNet", "axon"), {"features": [8] * 6}, "wrong shape"),
        ("segmenter", tiny_card("segmentation"), {}, "wrong shape"),  # of more classes
    ],
)
def test_a_model_of_another_network_is_refused_before_anything_is_trained(
    part: str, card: ModelCard, asked: Mapping[str, Any], told: str, phantoms: Path, tmp_path: Path
) -> None:
    """It was once the generator was trained, or all images were made."""
    write_tiny(tmp_path / "models", "own", card)
    config = configured(phantoms, **{part: {"start_from": "own", **asked}})
    with pytest.raises(InvalidParameter, match=f"start_from=own: its network is a .*{told}"):
        augment(config, tmp_path / "out", tmp_path / "models", QUIET)
    assert not (tmp_path / "out" / "models").exists()


@pytest.mark.parametrize(
    ("option", "task", "channels", "told"),
    [
        ("model", "synthesis", {"label_channels": 1, "image_channels": 2}, "images of 2 channels"),
        ("judge_model", "segmentation", {"out_channels": 1, "in_channels": 2}, "axons-0000.png: "),
    ],
)
def test_a_given_model_of_other_images_is_refused_before_the_other_one_is_trained(
    option: str, task: str, channels: Mapping[str, int], told: str, phantoms: Path, tmp_path: Path
) -> None:
    """By their channels."""
    card = tiny_card(task, None, labels={0: "background", 1: "axon"})
    network = card.network.model_copy(update={"arguments": {"atoms": 4, **channels}})
    write_tiny(tmp_path / "models", "own", card.model_copy(update={"network": network}))
    with pytest.raises(InvalidInput, match=told):
        augment(
            configured(phantoms, **{option: "own"}), tmp_path / "out", tmp_path / "models", QUIET
        )
    assert not (tmp_path / "out" / "models").exists()


def test_a_picture_without_labels_in_its_right_fifth_says_nothing_of_the_judge(
    phantoms: Path, tmp_path: Path
) -> None:
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
        shutil.copy(min((phantoms / kind).iterdir()), tmp_path / kind)
    (file,) = (tmp_path / "labels").iterdir()
    with Image.open(file) as label:
        label.paste(0, (label.width // 2, 0, label.width, label.height))
        label.save(file)
    run: Any = SimpleNamespace(
        folder=AugmentFolder(tmp_path / "out"),
        parts=SimpleNamespace(dataset=open_dataset(tmp_path)),
    )
    values = {"data": "one", "epochs": 1, "steps": 1, "batch_size": 1, "crop": 32, "seed": 0}
    RunFolder(run.folder.runs / "judge").write(SegmentationRecipe.model_validate(values))
    bundle: Any = SimpleNamespace(load_network=lambda: SegCaps(2, 1, 1, variant="r1", atoms=1))
    assert judging._held_out_dice(run, bundle, 0) == {"right": 0.0}


def test_the_judge_has_no_fold_without_labels(
    phantoms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(phantoms, tmp_path / "data")
    for file in sorted((tmp_path / "data" / "labels").iterdir())[:3]:
        with Image.open(file) as label:
            blank = Image.new(label.mode, label.size)
            if (palette := label.getpalette()) is not None:
                blank.putpalette(palette)
            blank.save(file)
    dataset = open_dataset(tmp_path / "data")
    parts = SimpleNamespace(dataset=dataset, originals=read_originals(dataset))
    run: Any = SimpleNamespace(config=configured(tmp_path / "data"), parts=parts)
    asked: list[int] = []
    monkeypatch.setattr(judging, "_train", lambda *given: asked.append(given[-1]))
    monkeypatch.setattr(judging, "_held_out_dice", lambda *_: {"a": 1.0})
    monkeypatch.setattr(judging, "_described", lambda *_, **__: {})
    judging.train_judge(run)
    assert (len(dataset.groups), asked) == (6, [3])


def test_a_segmenter_that_starts_again_is_published_and_resumed_as_it_became(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SegCaps starts again with normalized votes, which has other weights."""
    monkeypatch.setattr(collapse, "MIN_STEPS", 1)
    looked = iter([True, False])
    monkeypatch.setattr(
        collapse.CollapseWatch,
        "collapsed",
        lambda self, step, *_: step == self.deadline and next(looked),
    )
    folder, data = AugmentFolder(tmp_path / "out"), open_dataset(discs)
    run: Any = SimpleNamespace(
        folder=folder,
        models=None,
        parts=SimpleNamespace(dataset=data),
        config=SimpleNamespace(command=""),
    )
    recipe = SegmentationRecipe.model_validate(
        {
            **{"data": str(discs), "network": "segcaps", "variant": "r1", "atoms": 2, "seed": 1},
            **{"epochs": 1, "steps": 5, "batch_size": 2, "crop": 32},
        }
    )
    found = _train_and_test(run, "segmenter", recipe, None, data)
    models = folder.work / "models"
    assert ModelRepository(models).find("segmenter").card.network.arguments["normalize"]
    shutil.rmtree(models)  # as after a kill before it was published
    assert _train_and_test(run, "segmenter", recipe, None, data) == found
