"""Processes that tests end, forked from one that has imported what takes seconds to import."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import torch

#: For `multiprocessing`.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["training.tasks.pipeline", "training.cli.augment"])


def start(work: Callable[..., object], *arguments: object, folder: Path) -> ForkServerProcess:
    """Do some work in a process of its own, with one thread, in a folder."""
    process = CONTEXT.Process(target=_in_folder, args=(folder, work, arguments))
    process.start()
    return process


def _in_folder(folder: Path, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    torch.set_num_threads(1)
    os.chdir(folder)
    work(*arguments)


def succeeds(process: ForkServerProcess) -> bool:
    """Whether it ends by itself, with status 0."""
    process.join()
    return process.exitcode == 0


def killed_when(process: ForkServerProcess, ready: Callable[[], bool]) -> bool:
    """Kill -9 once something is there; whether it was in time."""
    while process.is_alive() and not ready():
        time.sleep(0.002)
    process.kill()
    process.join()
    return process.exitcode == -9
