"""From few labelled images to many: the stages of ``caps-med augment``, one after another.

Each is done once: a run that was killed, at whatever moment, and is started again ends with the
bytes of an undisturbed one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.progress import track as progress

import caps_med
from caps_med.bundles import ModelRepository
from caps_med.errors import InvalidInput
from caps_med.inference import Model
from training.atomic import write_text
from training.augment.benefit import Usefulness, compare
from training.augment.config import AugmentOrder, Workshop
from training.augment.estimate import told
from training.augment.generate import Drawn, Studio, check_labels, manifest, scale_of
from training.augment.models import train_generator, train_judge
from training.augment.result import Result, write_pages
from training.augment.split import Parts, set_aside, split
from training.data import Dataset, open_dataset
from training.data.check.findings import Finding
from training.labelmaps.generator import LabelMaker


def augment(order: AugmentOrder, out: Path, models: Path | None, console: Console) -> Result:
    """Do what is not done yet of an order.

    Args:
        order: what is asked for.
        out: the folder of the result; see `Workshop`.
        models: the repository of `order.model` and `order.judge_model`.
        console: tells what is going on.

    Raises:
        InvalidInput: the data are not fit to learn from; the message says why.
        InvalidParameter: the order cannot be met, or `out` holds something else.
        ImplausibleShapes: no plausible label maps can be made of those that there are.
        KeyboardInterrupt: on Ctrl-C; what is done stays.
    """
    workshop = Workshop(out)
    again = workshop.open(order)
    if again:
        console.print(f"going on in {out}", highlight=False, soft_wrap=True)
    whole = open_dataset(order.data, track=lambda cases: progress(cases, "reading", transient=True))
    apart = set_aside(whole) if order.test_apart else frozenset()
    learned = whole.subset(set(whole.groups) - apart) if apart else whole
    _check(whole, workshop, console)
    parts = split(order, whole, learned)
    _say(
        console,
        1,
        f"{len(learned.cases)} labelled images to learn from; {told(order, len(learned.groups))}",
    )
    maker = LabelMaker.like(parts.originals, order.seed, order.tolerance, order.symmetries)
    maker.draw(0)  # shapes that cannot be met are told before an hour of training

    _say(console, 2, "the generator")
    generator = workshop.once(
        "generator", lambda: train_generator(order, parts, workshop, models, console)
    )
    _say(console, 3, "the judge: a segmenter of the real images")
    judge = workshop.once("judge", lambda: train_judge(order, parts, workshop, models, console))

    _say(console, 4, f"new label maps, their images, and the judgement (Dice {judge['threshold']})")
    drawn = _draw(order, parts, workshop, maker, generator, judge, console)
    usefulness = None
    if order.train_segmenter:
        _say(console, 5, "segmenters with and without the synthetic images")
        found = workshop.once(
            "usefulness",
            lambda: compare(order, parts, workshop, lambda what: console.print(what)).model_dump(
                mode="json"
            ),
        )
        usefulness = Usefulness.model_validate(found)
    _say(console, 6, "report")
    result = Result(order, parts, drawn, generator, judge, usefulness)
    write_pages(result, workshop)
    return result


def _say(console: Console, stage: int, what: str) -> None:
    console.print(f"[bold]{stage} of 6[/bold] {what}", highlight=False, soft_wrap=True)


def _check(dataset: Dataset, workshop: Workshop, console: Console) -> None:
    """Refuse data that cannot be learned from, with everything that is wrong with them."""

    def look() -> dict[str, Any]:
        for found in dataset.findings:
            console.print(_line(found), markup=False, highlight=False, soft_wrap=True)
        if not dataset.trainable:
            errors = [found for found in dataset.findings if found.severity == "error"]
            raise InvalidInput(
                f"{dataset.data}: cannot be learned from: {len(errors)} errors, the first: "
                f"{_line(errors[0])}; `caps-med data check {dataset.data}` shows all"
            )
        return {"findings": [found.model_dump(mode="json") for found in dataset.findings]}

    workshop.once("check", look)


def _line(found: Finding) -> str:
    return f"{found.severity}: {found.code}: {found.file or 'the data set'} {found.what}"


def _draw(
    order: AugmentOrder,
    parts: Parts,
    workshop: Workshop,
    maker: LabelMaker,
    generator: Mapping[str, Any],
    judge: Mapping[str, Any],
    console: Console,
) -> list[Drawn]:
    """Synthetic images until enough are kept, and the manifest of all."""
    studio = _studio(order, parts, workshop, maker, generator, judge)
    drawn: list[Drawn] = []
    kept = 0
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("drawing", total=order.count)
        for number in range(studio.enough(order.count)):
            one = studio.draw(number)
            drawn.append(one)
            kept += one.kept
            said = f"drawing, {len(drawn) - kept} dropped"
            bar.update(task, completed=kept, description=said)
            if kept == order.count:
                break
    if not kept:
        best = max(one.dice for one in drawn)
        raise InvalidInput(
            f"the geometry survived in none of {len(drawn)} images (the best Dice is {best:.3f}, "
            f"{judge['threshold']} is needed): train the generator longer (--epochs), or give more "
            "labelled images"
        )
    about = {"caps_med": caps_med.__version__, "command": order.command, "seed": order.seed}
    write_text(workshop.out / "manifest.json", manifest(drawn, generator, judge, about))
    return drawn


def _studio(
    order: AugmentOrder,
    parts: Parts,
    workshop: Workshop,
    maker: LabelMaker,
    generator: Mapping[str, Any],
    judge: Mapping[str, Any],
) -> Studio:
    makes, judges = _loaded(generator), _loaded(judge)
    check_labels(parts, (makes, judges))
    return Studio(
        workshop=workshop,
        parts=parts,
        maker=maker,
        generator=makes,
        judge=judges,
        threshold=judge["threshold"],
        scale=scale_of(parts, makes),
        seed=order.seed,
    )


def _loaded(found: Mapping[str, Any]) -> Model:
    models = found["models"]
    return Model(ModelRepository(None if models is None else Path(models)).find(found["model"]))
