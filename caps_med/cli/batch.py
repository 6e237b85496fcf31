"""A folder in, a folder out: the options and the output shared by the batch commands."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias

import typer
from rich.markup import escape
from typer.core import TyperCommand

from caps_med.cli.interrupts import INTERRUPTED
from caps_med.cli.options import errors, say, say_input
from caps_med.cli.progress import new_bars
from caps_med.errors import InvalidParameter
from caps_med.wording import counted

if TYPE_CHECKING:
    from rich.progress import TaskID

    from caps_med.batch import Action, BatchRun, Case, CaseResult
    from caps_med.batch.places import Place

Inputs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--input", "-i",
        help="Process many images: a folder, a pattern such as 'scans/**/*.nii.gz', "
        "s3://bucket/prefix, or, alone, a text file with one input per line. Each image is a "
        "case, and --out is a folder or s3:// location. May be repeated.",
    ),
]  # fmt: skip
Files: TypeAlias = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Image in NIfTI, NRRD, MetaImage, PNG, JPEG, TIFF, BMP, npy, npz or DICOM (a file, "
        "or the folder or zip of a series). Several files are the channels of one image, in "
        "the model's order, or the slices of a DICOM series. With --input: more inputs.",
    ),
]
OutPath: TypeAlias = Annotated[
    str,
    typer.Option(
        "--out", "-o", metavar="PATH",
        help="Output file; its suffix determines the format. With --input: a folder or s3:// "
        "location.",
    ),
]  # fmt: skip
Format: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="With --input: suffix of the outputs, such as nii.gz; by default that of the input."
    ),
]
Jobs: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        help="With --input: number of processes, which share the cores; by default 1, or on a "
        "cluster as many as it has room for.",
    ),
]
Resume: TypeAlias = Annotated[
    bool, typer.Option("--resume", help="With --input: skip the cases that are already done.")
]

OnCluster: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="[ADDRESS]",
        help="With --input: run on the Ray cluster at this address, such as HOST:6379. Without an "
        "address: the cluster in RAY_ADDRESS, or the one on this machine. local: start one "
        "on this machine.",
    ),
]

#: Exit statuses: some case failed; Ctrl-C.
SOME_FAILED = 1


class BatchCommand(TyperCommand):
    """A command whose ``--cluster`` may be given without an address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: D102, ANN401
        return super().parse_args(ctx, list(with_address(args)))


def with_address(args: Sequence[str]) -> Iterator[str]:
    """The arguments, with ``auto`` as the address of a cluster that has none."""
    for arg, after in pairwise((*args, "-")):
        yield "--cluster=auto" if arg == "--cluster" and after.startswith("-") else arg


def check_batch(series: str | None) -> None:
    """Reject options that a batch decides by itself.

    Raises:
        InvalidParameter: a series is chosen.
    """
    if series is not None:
        raise InvalidParameter(
            "--series: cannot be combined with --input, where each DICOM series is a case of its "
            "own"
        )


def check_single(files: Sequence[Path] | None, **batch_only: object) -> list[Path]:
    """The files of a single input, after checking that no option for batches is given.

    Raises:
        InvalidParameter: there is no file, or an option needs ``--input``.
    """
    check_no_batch(**batch_only)
    if not files:
        raise InvalidParameter("no image given: name a file, or a folder with --input")
    if files[0].is_dir() and len(files) == 1 and not _holds_dicom(files[0]):
        raise InvalidParameter(
            f"{files[0]} is a folder without DICOM files: to process all images in it, give it "
            "with --input, and a folder with --out"
        )
    return list(files)


def check_no_batch(**batch_only: object) -> None:
    """Check that no option is given that only batches have.

    Raises:
        InvalidParameter: an option needs ``--input``.
    """
    for name, value in batch_only.items():
        if value:
            raise InvalidParameter(
                f"--{name}: only for many images, given with --input; leave it out for a single one"
            )


def _holds_dicom(folder: Path) -> bool:
    from caps_med.batch.series import is_dicom
    from caps_med.images.codecs.dicom_series import below

    return any(path.is_file() and is_dicom(path) for path in below(folder))


def run(
    action: Action,
    inputs: Sequence[str],
    files: Sequence[Path] | None,
    out: str,
    *,
    jobs: int | None,
    cluster: str | None,
    resume: bool,
    overwrite: bool,
    as_json: bool = False,
) -> None:
    """Run a batch and report the outcome.

    Raises:
        typer.Exit: a case failed (status 1), or Ctrl-C (130).
    """
    from caps_med.batch import Cluster, run_batch
    from caps_med.batch.places import place_of
    from caps_med.bundles import ModelRepository

    signal.signal(signal.SIGTERM, _interrupt)  # as cluster schedulers end a job
    with new_bars(rate=True) as bars:
        listener = _Bars(bars, action.command)
        try:
            result = run_batch(
                action,
                [*inputs, *map(str, files or ())],
                out,
                jobs=jobs,
                cluster=None if cluster is None else Cluster(cluster),
                resume=resume,
                overwrite=overwrite,
                listener=listener,
            )
        except KeyboardInterrupt:
            bars.stop()
            say(
                f"stopped: {counted(listener.done, 'case')} of {listener.total} done in {out}; to "
                "continue, give the same command with --resume",
                errors,
            )
            raise typer.Exit(INTERRUPTED) from None
    say_input(ModelRepository(action.models).find(action.model))
    _say(result, place_of(out), listener.left_out, as_json)
    if result.failed:
        raise typer.Exit(SOME_FAILED)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _say(result: BatchRun, out: Place, left_out: int, as_json: bool) -> None:
    """Print the skipped files, the failed cases, and the paths of the tables."""
    from caps_med.batch.table import CSV_NAME, JSON_NAME

    for reason, count in Counter(one.reason for one in result.skipped).items():
        say(f"note: {counted(count, 'file')} skipped: {reason}", errors)
    for one in result.results:
        for warning in one.warnings:
            say(f"note: {one.input}: {warning}", errors)
    for one in result.failed:
        say(f"failed: {one.input}: {one.error}", errors)
    if as_json:
        say((out / JSON_NAME).read_text(encoding="utf-8").rstrip())
        return
    done = len(result.results) - len(result.failed)
    before = f", {left_out} of them before" if left_out else ""
    failed = f"; {len(result.failed)} failed" if result.failed else ""
    say(f"{counted(done, 'case')} done{before}{failed} -> {out / CSV_NAME}")


class _Bars:
    """A bar for all cases, including parts of cases, and one for each case in progress."""

    def __init__(self, bars: Any, text: str) -> None:  # noqa: ANN401 - rich is imported late
        self._bars, self._text = bars, text
        self._names: list[str] = []
        self._tasks: dict[int, TaskID] = {}
        self._shares: dict[int, float] = {}
        self.done = self.left_out = self.total = 0

    def begin(self, cases: Sequence[Case], done: Sequence[CaseResult]) -> None:
        self._names = [case.name for case in cases]
        self.left_out = self.done = len(done)
        self.total = len(cases)
        self._all = self._bars.add_task(self._text, total=self.total - self.left_out, rate=True)

    def step(self, index: int, done: int, total: int) -> None:
        if index not in self._tasks:
            self._tasks[index] = self._bars.add_task(f"  {escape(self._names[index])}", total=None)
        if total:
            self._bars.update(self._tasks[index], completed=done, total=total)
            self._shares[index] = done / total
            self._advance()

    def finish(self, index: int, result: CaseResult) -> None:
        if index in self._tasks:
            self._bars.remove_task(self._tasks.pop(index))
        self._shares.pop(index, None)
        self.done += 1
        self._advance()

    def _advance(self) -> None:
        share = self.done - self.left_out + sum(self._shares.values())
        self._bars.update(self._all, completed=share)
