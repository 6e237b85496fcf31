"""The stages of ``caps-med augment``: from few labelled images to many.

Each stage runs once: a run that was killed at any moment and is restarted ends with the same bytes
as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

import caps_med
from caps_med.bundles import ModelRepository
from caps_med.cli.progress import new_bars
from caps_med.errors import InvalidInput
from caps_med.inference import Model
from caps_med.printing import print_line
from caps_med.wording import counted, shell_command
from training.atomic import write_text
from training.augment.benefit import Benefit, compare
from training.augment.config import CHECK, AugmentConfig, AugmentFolder
from training.augment.estimate import duration
from training.augment.generate import (
    GeneratedImage,
    ImageGenerator,
    manifest,
    scale_of,
)
from training.augment.models import (
    AugmentRun,
    check_given,
    recipes_of,
    train_generator,
    train_judge,
)
from training.augment.result import Result, write_pages
from training.augment.split import split, test_groups
from training.data import Dataset, open_dataset
from training.engine.run_folder import RunFolder
from training.labelmaps.generator import LabelMaker


def augment(config: AugmentConfig, out: Path, models: Path | None, console: Console) -> Result:
    """Run the stages that are not done yet.

    Args:
        config: what to do.
        out: folder of the result; see `AugmentFolder`.
        models: the repository of `config.model` and `config.judge_model`.
        console: for progress.

    Raises:
        InvalidInput: the data have errors.
        InvalidParameter: an impossible value, `out` holds something else, the data have changed
            since the run began, or another process works there.
        ImplausibleShapes: no plausible label map can be derived from those of the data.
        KeyboardInterrupt: on Ctrl-C; finished stages are kept.
    """
    recipes_of(config)  # before hours of training
    folder = AugmentFolder(out)
    with RunFolder(folder.work).claimed("name another folder"):
        return _augment(config, folder, models, console)


def _augment(
    config: AugmentConfig, folder: AugmentFolder, models: Path | None, console: Console
) -> Result:
    if folder.open(config):
        print_line(console, f"continuing in {folder.out}")
    whole = open_dataset(config.data)
    # the training images are chosen before the check, whose one pass gives them a card, too
    apart = test_groups(whole) if config.holds_out_test else frozenset()
    training = whole.subset(set(whole.groups) - apart) if apart else whole
    folder.once(CHECK, lambda: _check(whole, console))
    parts = split(config, whole, training)
    run = AugmentRun(config, folder, parts, models, console)
    _print_stage(
        run,
        1,
        f"{len(training.cases)} labelled images to learn from; "
        f"{duration(config, len(training.groups))}",
    )
    maker = LabelMaker.like(parts.originals, config.seed, config.tolerance, config.symmetries)
    maker.draw(0)  # fails now, rather than after an hour of training
    check_given(run)
    folder.require_cases(parts.cases)  # until here more could be added

    _print_stage(run, 2, "the generator")
    generator = folder.once("generator", lambda: train_generator(run))
    _print_stage(run, 3, "the judge: a segmenter for the real images")
    judge = folder.once("judge", lambda: train_judge(run))

    _print_stage(
        run, 4, f"new label maps, their images, and the judgement (Dice {judge['threshold']})"
    )
    images = _generate(run, maker, generator, judge)
    benefit = None
    if config.train_segmenter:
        _print_stage(run, 5, "segmenters with and without the synthetic images")
        saved = folder.once("benefit", lambda: compare(run).model_dump(mode="json"))
        benefit = Benefit.model_validate(saved)
    _print_stage(run, 6, "report")
    result = Result(config, parts, images, generator, judge, benefit)
    write_pages(result, folder)
    return result


def _print_stage(run: AugmentRun, stage: int, what: str) -> None:
    run.console.print(f"[bold]{stage} of 6[/bold] {what}", highlight=False, soft_wrap=True)


def _check(dataset: Dataset, console: Console) -> Mapping[str, Any]:
    """Print the findings of the data.

    Raises:
        InvalidInput: there are errors among them.
    """
    for found in dataset.findings:
        print_line(console, str(found))
    if not dataset.trainable:
        errors = [found for found in dataset.findings if found.severity == "error"]
        check = shell_command(["caps-med", "data", "check", str(dataset.data)])
        raise InvalidInput(
            f"{dataset.data}: cannot be trained on: {counted(len(errors), 'error')}, the first: "
            f"{errors[0]}; `{check}` shows all"
        )
    return {"findings": [found.model_dump(mode="json") for found in dataset.findings]}


def _generate(
    run: AugmentRun, maker: LabelMaker, generator: Mapping[str, Any], judge: Mapping[str, Any]
) -> list[GeneratedImage]:
    """Synthetic images until enough are kept, and the manifest of all of them."""
    source = _image_generator(run, maker, generator, judge)
    count = run.config.count
    images: list[GeneratedImage] = []
    kept = 0
    with new_bars() as bar:
        task = bar.add_task("drawing", total=count)
        for number in range(source.most(count)):
            images.append(source.draw(number))
            kept += images[-1].kept
            bar.update(task, completed=kept, description=f"drawing, {len(images) - kept} dropped")
            if kept == count:
                break
    if not kept:
        best = max(one.dice for one in images)
        raise InvalidInput(
            f"the geometry survived in none of {counted(len(images), 'image')} "
            f"(the best Dice is {best:.3f}, but {judge['threshold']} is needed): train the "
            "generator longer (--epochs), or give more labelled images"
        )
    about = {
        "caps_med": caps_med.__version__,
        "command": run.config.command,
        "seed": run.config.seed,
    }
    write_text(run.folder.out / "manifest.json", manifest(images, generator, judge, about))
    return images


def _image_generator(
    run: AugmentRun, maker: LabelMaker, generator: Mapping[str, Any], judge: Mapping[str, Any]
) -> ImageGenerator:
    models = _load(generator), _load(judge)
    return ImageGenerator(
        folder=run.folder,
        parts=run.parts,
        maker=maker,
        generator=models[0],
        judge=models[1],
        threshold=judge["threshold"],
        scale=scale_of(run.parts, models[0]),
        seed=run.config.seed,
    )


def _load(saved: Mapping[str, Any]) -> Model:
    models = saved["models"]
    return Model(ModelRepository(None if models is None else Path(models)).find(saved["model"]))
