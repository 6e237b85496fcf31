"""A search over recipes: trials side by side, of which the worse ones are stopped early.

Random values (`training.tasks.search`), stopped by asynchronous successive halving: Li et al.,
A system for massively parallel hyperparameter tuning, MLSys 2020; here Ray Tune's.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from caps_med.bundles import Bundle
from caps_med.cli.tables import print_table
from caps_med.errors import CapsMedError
from caps_med.printing import print_line
from caps_med.ray_connection import ClusterError, connected
from training.cluster.member import RETRIES, Member
from training.cluster.progress import progress_bar
from training.cluster.share import share_of
from training.cluster.trials import State, Trial, TrialsFolder
from training.data import Source
from training.engine.interrupts import heard_by
from training.engine.run_folder import RunFolder, Stateful
from training.tasks.pipeline import Prepared, TrainRequest, prepare, publish_trained, train_one
from training.tasks.search import check_something_varies, draw, recipe_of
from training.tasks.segmentation import SegmentationRecipe

if TYPE_CHECKING:
    from ray.tune import ResultGrid, Tuner

#: Of the trials that reach one of the steps at which they are compared, one in this many goes on.
REDUCTION = 3
#: Seconds between two looks at the trials.
PAUSE = 1.0


def tune(request: TrainRequest, count: int, address: str, console: Console) -> Bundle:
    """Try `count` recipes, and publish the best by its score on the validation cases.

    The first trial is the recipe as planned. A trial whose process or node is lost continues from
    its checkpoint; so do all of an interrupted search with ``request.resume``. Values are drawn by
    the recipe's seed; which trials are stopped early also depends on which were faster.

    Args:
        address: see `connected`.

    Raises:
        MissingExtra, ClusterError: see `connected`; or every trial failed.
        InvalidInput, InvalidParameter, KeyboardInterrupt: see `training.tasks.pipeline.train`.
        InvalidParameter: nothing is left to search.
    """
    folder = TrialsFolder(request.folder.path)
    fixed = {*request.overrides, *(("network",) if "start_from" in request.overrides else ())}
    check_something_varies(fixed, count)
    if not request.resume:
        folder.refuse_started()
    prepared = prepare(request, console, plan_again=True)
    assert isinstance(prepared.recipe, SegmentationRecipe)  # noqa: S101 - by the command
    folder.start(draw(prepared.recipe, fixed, count, prepared.recipe.seed), request.resume)
    members = [_member(prepared, folder, trial) for trial in folder.read()]
    with connected(address, "--tune"), _shown(folder, members, console):
        trials = _outcomes(_fitted(_tuner(members, folder, request.resume)), folder.read())
    folder.write(trials)
    _print(trials, folder, console)
    best = best_of(trials)
    run = folder.run(best.number)
    console.print(f"best: trial {best.number}", highlight=False)
    chosen = replace(
        prepared,
        recipe=run.read_recipe(prepared.task.recipe),
        request=replace(request, resume=True),  # which loads what is trained
    )
    network = train_one(chosen, prepared.source, run)
    rows = [trial.row for trial in trials]
    return publish_trained(chosen, [(network, prepared.source)], console, run, rows)


def _member(prepared: Prepared, folder: TrialsFolder, trial: Trial) -> Member:
    request = prepared.request
    planned, source = prepared.recipe, prepared.source
    assert isinstance(planned, SegmentationRecipe) and isinstance(source, Source)  # noqa: S101 - by the command
    recipe = recipe_of(planned, trial.values, request.overrides, source)
    run = folder.run(trial.number).path
    models, workers = request.started_from, request.workers
    return Member(request.task, source, recipe, run, Path.cwd(), models, workers)


def _tuner(members: Sequence[Member], folder: TrialsFolder, resume: bool) -> Tuner:
    """The search, from the beginning or as Ray Tune last wrote it down."""
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    from ray import tune as ray_tune
    from ray.tune.schedulers import ASHAScheduler

    share, epochs = share_of(len(members)), members[0].recipe.epochs
    trainable = ray_tune.with_resources(
        ray_tune.with_parameters(_run_trial, members=members),
        {"cpu": share.cpus, "gpu": share.gpus},
    )
    space = {"number": ray_tune.grid_search(list(range(1, len(members) + 1)))}
    engine = folder.engine.absolute()
    if resume and ray_tune.Tuner.can_restore(engine):
        return ray_tune.Tuner.restore(
            str(engine), trainable, restart_errored=True, param_space=space
        )
    stopping = ASHAScheduler(
        time_attr="epoch", max_t=epochs + 1, reduction_factor=REDUCTION,
        grace_period=max(1, epochs // REDUCTION**2),
    )  # fmt: skip
    return ray_tune.Tuner(
        trainable,
        param_space=space,
        tune_config=ray_tune.TuneConfig(metric="score", mode="max", scheduler=stopping),
        run_config=ray_tune.RunConfig(
            name=engine.name,
            storage_path=str(engine.parent),
            failure_config=ray_tune.FailureConfig(max_failures=RETRIES),
            verbose=0,
        ),
    )


def _fitted(tuner: Tuner) -> ResultGrid:
    """What the trials have come to.

    Ctrl-C lets Ray Tune write down its state and end the trials; twice ends at once. Raised in the
    middle of what Ray does, it might leave a lock taken that the end of Python waits for.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    usual = signal.getsignal(signal.SIGINT)
    heard = heard_by(usual)
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "0" if heard else "1"
    try:
        results = tuner.fit()
        pressed = heard and signal.getsignal(signal.SIGINT) is usual  # until then Ray Tune's own is
    finally:
        if heard:
            signal.signal(signal.SIGINT, usual)
    if pressed:
        raise KeyboardInterrupt
    return results


class _ReportedRun(RunFolder):
    """A run folder that reports every epoch whose checkpoint is saved."""

    def __init__(self, path: Path, report: Callable[[RunFolder], None]) -> None:
        super().__init__(path)
        self._report = report

    def save(self, file: Path, parts: Mapping[str, Stateful]) -> None:
        """See `RunFolder.save`."""
        super().save(file, parts)
        if file == self.checkpoint:
            self._report(self)


def _run_trial(config: Mapping[str, Any], members: Sequence[Member]) -> None:
    """One trial, in a process of Ray Tune."""
    from ray import tune as ray_tune

    member = members[config["number"] - 1]
    unkept = member.recipe.epochs_before_best

    def report(run: RunFolder) -> None:
        ray_tune.report({"epoch": run.epochs, "score": _score(run, unkept)})

    try:
        member.train(lambda path: _ReportedRun(path, report))
        error = ""
    except CapsMedError as found:  # of this recipe: another attempt would end the same way
        error = str(found)
    run = RunFolder(member.folder)
    score = _score(run, unkept)
    ray_tune.report({"epoch": run.epochs, "score": score, "ended": True, "error": error})


def _outcomes(results: ResultGrid, trials: Sequence[Trial]) -> list[Trial]:
    """The trials as they ended."""
    found = {result.config["number"]: result for result in results if result.config}
    return [_outcome(trial, found[trial.number]) for trial in trials]


def _outcome(trial: Trial, result: Any) -> Trial:  # noqa: ANN401 - ray.tune.Result
    last = result.metrics or {}
    error = last.get("error") or _told(result.error)
    state: State = "failed" if error else "trained" if last.get("ended") else "stopped"
    return replace(
        trial, state=state, epochs=last.get("epoch", 0), score=last.get("score"), error=error
    )


def _told(error: BaseException | None) -> str:
    """What ended a trial unexpectedly, in one line; Ray wraps what was raised."""
    if error is None:
        return ""
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {cause}".strip(": ").splitlines()[0]


def best_of(trials: Sequence[Trial]) -> Trial:
    """The best of those trained to the end; of equal ones the first.

    Raises:
        ClusterError: there is none.
    """
    trained = [trial for trial in trials if trial.state == "trained"]
    if not trained:
        reason = next((trial.error for trial in trials if trial.error), "all were stopped")
        raise ClusterError(f"no trial was completed: {reason}")
    return max(trained, key=lambda trial: (trial.score or 0.0, -trial.number))


@contextmanager
def _shown(folder: TrialsFolder, members: Sequence[Member], console: Console) -> Iterator[None]:
    """Show the progress of all trials, read from their folders, until the block ends."""
    runs = [folder.run(number) for number, _ in enumerate(members, start=1)]
    epochs, over = sum(member.recipe.epochs for member in members), threading.Event()
    with progress_bar(f"{len(members)} trials", epochs, console) as bar:

        def look() -> None:
            while not over.wait(PAUSE):
                bar.advance_to(sum(run.epochs for run in runs))

        watching = threading.Thread(target=look, daemon=True)
        watching.start()
        try:
            yield
        finally:
            over.set()
            watching.join()


def _score(run: RunFolder, unkept: int) -> float:
    """The best so far; once there are epochs whose weights are kept, theirs."""
    logged = run.logged()
    kept = [each for each in logged if each["epoch"] > unkept] or logged
    return max((each["score"] for each in kept), default=0.0)


def _print(trials: Sequence[Trial], folder: TrialsFolder, console: Console) -> None:
    names = list(trials[0].row)
    rows = [["" if v is None else str(v) for v in trial.row.values()] for trial in trials]
    print_table(console, names, rows)
    for trial in trials:
        if trial.state == "failed" and (trace := folder.run(trial.number).trace).exists():
            said = f"trial {trial.number} failed unexpectedly: its traceback is in {trace}"
            print_line(console, said)
