"""The subcommands ``caps-med data``; found through the entry-point group ``caps_med.commands``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text

from caps_med.cli.options import AsJson, is_given, say_json
from caps_med.cli.tables import Cell, print_table
from caps_med.drafts import filling
from caps_med.errors import InvalidParameter
from caps_med.printing import Terminal, print_line
from caps_med.wording import counted, listed
from training.cli.options import (
    Binary,
    Channels,
    IgnoreLabel,
    Instances,
    Labels,
    SymmetriesOption,
    Tolerance,
    check_new_folder,
    check_out_folder,
    command_line,
    interpretation_of,
    progress_bar,
)

if TYPE_CHECKING:
    from training.data import Dataset
    from training.data.check.card import DataCard
    from training.data.classified.check import ClassCard
    from training.data.interface import CheckedData

data = typer.Typer(no_args_is_help=True, help="Check labelled images, or create some.")
console = Terminal()
#: Rows shown of findings of one code, and of classes.
_SHOWN = 10


def register(app: typer.Typer) -> None:
    """Add ``data`` to the command line."""
    app.add_typer(data, name="data")


@data.command("check")
def check_data(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder of images, or a .json or .csv list of them."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the report; must be outside the data.")
    ] = None,
    as_json: AsJson = False,
    binary: Binary = False,
    instances: Instances = None,
    labels: Labels = None,
    channels: Channels = "",
    ignore_label: IgnoreLabel = None,
) -> None:
    """Show what a folder of labelled or classified images contains, and everything wrong with it.

    Every file is read once, and none is changed. The exit status is 1 if there are errors, which
    prevent training.

    Example: caps-med data check DIR --out report
    """
    from training.progress import shown_by
    from training.tasks.opening import open_to_check

    if out is not None:
        check_out_folder(out, path)
    understood = interpretation_of(binary, instances, labels, channels, ignore_label)
    dataset = open_to_check(path, understood)
    _refuse_unused(context, dataset)
    with shown_by(progress_bar):  # the first look at the findings reads every file
        if as_json:
            say_json(_as_dict(dataset))
        else:
            _print(dataset)
    if out is not None:
        _write(dataset, out)
        if not as_json:
            print_line(console, f"report in {out}")
    if not dataset.trainable:
        raise typer.Exit(1)


def _refuse_unused(context: typer.Context, dataset: CheckedData) -> None:
    """Refuse what is said of label maps where there are none.

    Raises:
        InvalidParameter: an option says how label maps or their images are understood.
    """
    from training.data import Dataset

    if isinstance(dataset, Dataset) or dataset.error:
        return
    for name in ("binary", "instances", "labels", "channels", "ignore_label"):
        if is_given(context, name):
            option = f"--{name.replace('_', '-')}"
            raise InvalidParameter(
                f"{option}: only for images with label maps, which {dataset.data} "
                f"({dataset.layout}) does not have; leave {option} out"
            )


@data.command("phantoms")
def phantoms(
    count: Annotated[int, typer.Option(help="Number of label maps to draw.", min=1)],
    out: Annotated[Path, typer.Option(help="Folder for images/ and labels/.")],
    kind: Annotated[
        str, typer.Option(help="What to simulate; axons: two-photon images of axons with boutons.")
    ] = "axons",
    size: Annotated[int, typer.Option(help="Edge length in pixels.", min=32, max=2048)] = 128,
    seed: Annotated[
        int, typer.Option(help="Random seed; the same seed gives the same images.", min=0)
    ] = 0,
    repeats: Annotated[int, typer.Option(help="Number of images of each label map.", min=1)] = 1,
) -> None:
    """Simulate labelled images, for a data set without a download.

    Example: caps-med data phantoms --kind axons --count 24 --out phantoms
    """
    from training.labelmaps.phantoms import axon_phantoms, write_phantom

    if kind != "axons":
        raise InvalidParameter(f"--kind {kind}: must be axons")
    check_new_folder(out)
    drawn = axon_phantoms(count, seed, size, repeats)
    with filling(out):
        for name, phantom in progress_bar(drawn, "drawing", count * repeats):
            write_phantom(out, name, phantom)
    print_line(console, f"{counted(count * repeats, 'image')} with label maps in {out}")


@data.command("labels")
def labels(
    context: typer.Context,
    count: Annotated[int, typer.Option(help="Number of new label maps.", min=1)],
    out: Annotated[Path, typer.Option(help="Folder for labels/, manifest.json and sheet.png.")],
    like: Annotated[
        Path | None,
        typer.Option(
            help="Data whose label maps the new ones are made from; images are not needed."
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="axons: drawn by the spline model of `caps-med data phantoms`, in the size of "
            "--like."
        ),
    ] = None,
    size: Annotated[
        int, typer.Option(help="Edge length in pixels, without --like.", min=32, max=2048)
    ] = 128,
    seed: Annotated[
        int, typer.Option(help="Random seed; the same seed gives the same label maps.", min=0)
    ] = 0,
    tolerance: Tolerance = 0.25,
    symmetries: SymmetriesOption = "auto",
    workers: Annotated[
        int, typer.Option(help="Number of label maps that are drawn in parallel.", min=1)
    ] = 1,
) -> None:
    """Make new label maps: deformed and recombined from labelled data, or drawn from scratch.

    Each one stays within the shape statistics of the originals; manifest.json records its origin.

    Example: caps-med data labels --like DIR --count 40 --out new
    """
    from typing import get_args

    from training.data import open_dataset
    from training.labelmaps.generator import LabelMaker, write_labels
    from training.labelmaps.originals import read_originals
    from training.labelmaps.symmetry import Symmetries
    from training.progress import shown_by

    if kind not in (None, "axons"):
        raise InvalidParameter(f"--kind {kind}: must be axons")
    if symmetries not in get_args(Symmetries):
        raise InvalidParameter(f"--symmetries {symmetries}: must be auto, none or all")
    if like is None and kind is None:
        raise InvalidParameter("give --like DIR, whose label maps are varied, or --kind axons")
    if like is not None and is_given(context, "size"):
        raise InvalidParameter(
            "--size: new label maps have the sizes of those in --like; leave one of them out"
        )
    for name in ("tolerance", "symmetries"):
        if like is None and is_given(context, name):
            raise InvalidParameter(f"--{name}: only used with --like; leave it out")
    if like is not None:
        check_out_folder(out, like)
    check_new_folder(out)
    if like is None:
        maker = LabelMaker(seed, None, None, size=size)
    else:
        with shown_by(progress_bar):
            originals = read_originals(open_dataset(like, images=False))
        maker = LabelMaker.like(originals, seed, tolerance, symmetries, kind is not None)  # type: ignore[arg-type]  # checked above
    with shown_by(progress_bar):
        write_labels(maker, count, out, command_line(), workers)
    print_line(console, f"{counted(count, 'label map')} in {out}")


@data.command("patches")
def patches(
    path: Annotated[Path, typer.Option("--data", help="Pictures with label maps.")],
    out: Annotated[Path, typer.Option(help="Folder for the patches and list.json.")],
    size: Annotated[int, typer.Option(help="Edge length in pixels.", min=8, max=1024)] = 32,
    seed: Annotated[
        int,
        typer.Option(
            help="Random seed; the same seed gives the same patches of background.", min=0
        ),
    ] = 0,
) -> None:
    """Cut patches with classes from images of nuclei: single nuclei, touching ones, background.

    A nucleus is a connected component of one label. The patches are data for
    `caps-med train classification`.

    Example: caps-med data patches --data nuclei --out patches --size 32
    """
    from training.data import open_dataset
    from training.data.interpretation import Interpretation
    from training.labelmaps.patches import write_patches
    from training.progress import shown_by

    check_out_folder(out, path)
    check_new_folder(out)
    dataset = open_dataset(path, interpretation=Interpretation("classes"))
    with shown_by(progress_bar):
        counts = write_patches(dataset, out, size, seed)
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    print_line(console, f"{said}: {counted(sum(counts.values()), 'patch', 'patches')} in {out}")


def _print(dataset: CheckedData) -> None:
    console.print(f"[bold]{escape(dataset.name)}[/bold]: {escape(dataset.layout)}", highlight=False)
    if dataset.error:
        print_line(console, dataset.error)
    elif dataset.findings:
        _print_findings(dataset)
    if dataset.strangers:
        names = list(dict.fromkeys(path.name for path in dataset.strangers))
        print_line(console, f"ignored, no images: {listed(names, _SHOWN)}")
    _print_groups(dataset)
    _print_card_of(dataset)
    errors = sum(found.severity == "error" for found in dataset.findings)
    warnings = len(dataset.findings) - errors
    verdict = "[green]ready to train[/green]" if dataset.trainable else "[red]not ready[/red]"
    console.print(
        f"{verdict}: {counted(errors, 'error')}, {counted(warnings, 'warning')}", highlight=False
    )


def _print_findings(dataset: CheckedData) -> None:
    from training.data.check.check import by_code

    rows: list[tuple[Cell, ...]] = []
    for code, found in by_code(dataset.findings):
        color = "red" if found[0].severity == "error" else "yellow"
        rows += [(Text(code, color), one.file, one.what, one.fix) for one in found[:_SHOWN]]
        if len(found) > _SHOWN:
            rows.append((Text(code, color), f"and {len(found) - _SHOWN} more", "", ""))
    print_table(console, ("code", "file", "what", "fix"), rows, "Findings")


def _print_groups(dataset: CheckedData) -> None:
    """The folders that are taken for groups."""
    from training.data import Dataset
    from training.data.groups import folder_groups

    cases = dataset.cases if isinstance(dataset, Dataset) else ()
    if folders := list(folder_groups((case.name, case.group) for case in cases)):
        named = listed(folders, _SHOWN)
        print_line(console, f"groups, each held out as a whole: the folders {named}")


def _print_card_of(dataset: CheckedData) -> None:
    from training.data import ClassifiedDataset, Dataset

    if dataset.card is None:
        return
    if isinstance(dataset, Dataset) and dataset.card is not None:
        _print_card(dataset.card, dataset)
    elif isinstance(dataset, ClassifiedDataset) and dataset.card is not None:
        _print_class_card(dataset.card)
    else:  # of an added task
        rows = [(k.replace("_", " "), str(v)) for k, v in dataset.card.model_dump().items()]
        print_table(console, ("", ""), rows, "Data card")


def _print_class_card(card: ClassCard) -> None:
    from training.reports.card import class_card_rows

    print_table(console, ("", ""), list(class_card_rows(card).items()), "Data card")
    parts = list(card.parts)
    rows = [
        (one.name, str(one.images), f"{one.share:.1%}", *(str(one.parts.get(p, 0)) for p in parts))
        for one in card.classes
    ]
    numbers = ("images", "share", *(parts if len(parts) > 1 else ()))
    shown = [row[: 1 + len(numbers)] for row in rows]
    print_table(console, ("class", *numbers), shown, "Classes", numbers)


def _print_card(card: DataCard, dataset: Dataset) -> None:
    from training.reports.card import card_rows, class_rows

    print_table(console, ("", ""), list(card_rows(card, dataset.channels).items()), "Data card")
    named = class_rows(card, dataset.labels)[:_SHOWN]
    rows = [(str(one.label), *row) for one, row in zip(card.classes, named, strict=False)]
    if len(card.classes) > _SHOWN:
        rows.append(("...", f"and {len(card.classes) - _SHOWN} more", "", "", ""))
    numbers = ("share", "voxels", "cases")
    print_table(console, ("label", "name", *numbers), rows, "Classes", numbers)


def _as_dict(dataset: CheckedData) -> dict[str, Any]:
    """All that the check found, for JSON."""
    return {
        "data": str(dataset.data),
        "layout": dataset.layout,
        "ready": dataset.trainable,
        "error": dataset.error,
        "findings": [found.model_dump() for found in dataset.findings],
        "ignored": [path.name for path in dataset.strangers],
        "card": None if dataset.card is None else dataset.card.model_dump(mode="json"),
    }


def _write(dataset: CheckedData, out: Path) -> None:
    """``card.json``, ``findings.json`` and ``cases.png``."""
    out.mkdir(parents=True, exist_ok=True)
    findings = [found.model_dump() for found in dataset.findings]
    written = {"findings.json": json.dumps(findings, indent=2) + "\n"}
    if dataset.card is not None:
        written["card.json"] = dataset.card.model_dump_json(indent=2) + "\n"
    for name, text in written.items():
        (out / name).write_text(text, encoding="utf-8")
    if dataset.sheet is not None:
        dataset.sheet.save(out / "cases.png")
