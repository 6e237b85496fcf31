"""Ctrl-C while training: libraries are not interrupted in the middle of what they do.

Python raises a KeyboardInterrupt wherever it happens to be, also in code that compiled code calls
back, or between taking a lock and the block that gives it back.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import ignite.distributed as idist
from ignite.engine import Engine, Events

_STDERR = 2
_STEP = "after this step"
_STOPPING = "stopping {}; Ctrl-C again stops at once\n"


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait until the block is over; for short work.

    In other threads than the main one, which none reaches, nothing is done.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed within the block, if that is what it means.
    """
    usual = signal.getsignal(signal.SIGINT)
    if not heard_by(usual):
        yield
        return
    pressed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if pressed:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def interrupts_between_steps(trainer: Engine) -> Iterator[None]:
    """Let Ctrl-C end the block before the trainer's next step, or at its end; twice at once.

    After the last step of an epoch, its validation and checkpoint are still done. While a batch is
    waited for, it is at once: of the processes that prepare it, Ctrl-C in a terminal ends each. Of
    several that train together nothing is held, as they would end in different steps.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    usual, process = signal.getsignal(signal.SIGINT), os.getpid()
    if not heard_by(usual) or idist.get_world_size() > 1:
        yield
        return
    pressed: list[int] = []
    fetching: list[bool] = []
    awaited = [_STEP]

    def note(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # it prepares batches, until this one ends it
            return
        pressed.append(number)
        signal.signal(signal.SIGINT, usual)
        if fetching:
            signal.raise_signal(signal.SIGINT)
        below_the_bar = b"\n" if os.isatty(_STDERR) else b""
        with suppress(OSError):
            # print may be what was interrupted
            os.write(_STDERR, below_the_bar + _STOPPING.format(*awaited).encode())

    def stop() -> None:
        if pressed:
            raise KeyboardInterrupt

    def await_step() -> None:
        awaited[:] = [_STEP]

    def await_epoch() -> None:
        if trainer.state.iteration % (trainer.state.epoch_length or 1) == 0:
            awaited[:] = [f"once epoch {trainer.state.epoch} is validated and saved"]

    trainer.add_event_handler(Events.EPOCH_STARTED, await_step)
    trainer.add_event_handler(Events.ITERATION_STARTED, await_epoch)
    trainer.add_event_handler(Events.GET_BATCH_STARTED, stop)
    trainer.add_event_handler(Events.GET_BATCH_STARTED, lambda: fetching.append(True))
    trainer.add_event_handler(Events.GET_BATCH_COMPLETED, fetching.clear)
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        stop()  # also where a step failed: a training that begins again would forget it


def heard_by(handler: object) -> bool:
    """Whether Ctrl-C comes to this thread, and to this handler: it is neither ignored nor left to
    the system.
    """
    return threading.current_thread() is threading.main_thread() and callable(handler)
