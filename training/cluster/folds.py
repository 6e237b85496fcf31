"""A cross-validation whose folds are trained side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from caps_med.bundles import Bundle
from caps_med.ray_connection import ClusterError, connected
from training.cluster.member import RETRIES, Member
from training.cluster.progress import progress_bar
from training.cluster.share import share_of
from training.engine.run_folder import RunFolder
from training.tasks.pipeline import Prepared, TrainRequest, prepare, publish_trained, train_folds

#: Seconds between two looks at the folds.
PAUSE = 1.0


def train_folds_together(request: TrainRequest, address: str, console: Console) -> Bundle:
    """As `training.tasks.pipeline.train` with folds, which are trained on the nodes of a cluster.

    A fold whose process or node is lost continues on another one from its checkpoint.

    Args:
        address: see `connected`.

    Raises:
        MissingExtra, ClusterError: see `connected`; or a fold was lost too often.
        InvalidInput, InvalidParameter, KeyboardInterrupt: see `training.tasks.pipeline.train`.
    """
    prepared = prepare(request, console)
    members = _members(prepared)
    with connected(address, "training folds in parallel"):
        _train_all(members, console)
    finished = replace(prepared, request=replace(request, resume=True))
    trained = train_folds(finished, Console(quiet=True))  # loads what is trained
    return publish_trained(finished, trained, console)


def _members(prepared: Prepared) -> list[Member]:
    request = prepared.request
    sources = prepared.source.folds(request.folds)
    return [
        Member(
            request.task, source, prepared.recipe, request.folder.fold(number).path, Path.cwd(),
            request.started_from, request.workers,
        )
        for number, source in enumerate(sources, start=1)
    ]  # fmt: skip


def _train_all(members: Sequence[Member], console: Console) -> None:
    """Train them, as many at a time as the cluster has room for.

    Raises:
        CapsMedError: one of them failed; those that run are ended.
    """
    import ray

    share = share_of(len(members))
    task = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_retries=RETRIES)(_train)
    pending = {task.remote(member): number for number, member in enumerate(members, start=1)}
    epochs = sum(member.recipe.epochs for member in members)
    with progress_bar(f"{len(members)} folds", epochs, console) as bar:
        while pending:
            done, _ = ray.wait(list(pending), timeout=PAUSE)
            for reference in done:
                number = pending.pop(reference)
                best = outcome(number, reference)
                bar.say(f"fold {number} of {len(members)}: score {best.score:.4f}")
            bar.advance_to(sum(RunFolder(member.folder).epochs for member in members))


def outcome(number: int, reference: Any) -> Any:  # noqa: ANN401 - see Member.train
    """What the training of a fold has returned.

    Raises:
        CapsMedError: what it ended with.
        ClusterError: its process or node was lost once more than it is tried again.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise error.cause from error
    except RayError as error:
        said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ClusterError(
            f"fold {number} could not be completed on the cluster, which retries a lost fold "
            f"{RETRIES} times: {said}; once there is enough memory and the nodes are stable, "
            "continue with --resume"
        ) from error


def _train(member: Member) -> Any:  # noqa: ANN401 - see Member.train
    return member.train()
