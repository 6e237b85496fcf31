from __future__ import annotations

import io
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import torch
from ignite.engine import Engine, Events
from typing_extensions import Buffer

from training.engine.interrupts import interrupts_between_steps, interrupts_held
from training.engine.run_folder import RunFolder


class Pressing(io.FileIO):
    """A file during each of whose writes Ctrl-C is pressed."""

    def write(self, data: Buffer) -> int:
        signal.raise_signal(signal.SIGINT)
        return super().write(data)


def test_ctrl_c_waits_until_the_block_is_over() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        signal.raise_signal(signal.SIGINT)
        done.append(True)
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_ctrl_c_nothing_is_raised_and_errors_are_as_they_were() -> None:
    with interrupts_held():
        pass
    with pytest.raises(OSError, match="full"), interrupts_held():
        raise OSError("full")


def test_another_meaning_of_ctrl_c_is_left_to_it() -> None:
    pressed = []
    usual = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            assert not pressed
        assert pressed
    finally:
        signal.signal(signal.SIGINT, usual)


def test_other_threads_hold_nothing() -> None:
    entered = []

    def work() -> None:
        with interrupts_held():
            entered.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered == [signal.default_int_handler]


def test_a_checkpoint_that_is_being_written_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, network = RunFolder(tmp_path), torch.nn.Linear(200, 200)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda path, mode: Pressing(path, mode))
        with pytest.raises(KeyboardInterrupt):
            folder.save(folder.checkpoint, {"network": network})
    other = torch.nn.Linear(200, 200)
    folder.load(folder.checkpoint, {"network": other})
    assert torch.equal(other.weight, network.weight)
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


class Steps:
    """A trainer of two epochs of three steps, and what it did."""

    def __init__(self, press: Callable[[Steps, int], None]) -> None:
        self.done: list[int] = []
        self.epochs: list[int] = []
        self.trainer = Engine(lambda _, step: self._step(step, press))
        self.trainer.logger.setLevel(logging.CRITICAL)
        self.trainer.add_event_handler(
            Events.EPOCH_COMPLETED, lambda engine: self.epochs.append(engine.state.epoch)
        )

    def _step(self, step: int, press: Callable[[Steps, int], None]) -> None:
        press(self, step)
        self.done.append(step)

    def run(self, batches: Iterable[int] = (0, 1, 2)) -> None:
        with interrupts_between_steps(self.trainer):
            self.trainer.run(batches, max_epochs=2, epoch_length=3)


def press_in(step: int) -> Callable[[Steps, int], None]:
    """Ctrl-C in that step of the first epoch."""
    return lambda steps, at: press() if at == step and not steps.epochs else None


def press() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_step_is_not_interrupted(
    terminal: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "isatty", lambda _: terminal)  # which shows a progress bar
    steps = Steps(press_in(1))
    with pytest.raises(KeyboardInterrupt):
        steps.run()
    assert steps.done == [0, 1]
    told = "stopping after this step; Ctrl-C again stops at once\n"
    assert capfd.readouterr().err == ("\n" if terminal else "") + told
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_epoch_is_finished_after_its_last_step(capfd: pytest.CaptureFixture[str]) -> None:
    steps = Steps(press_in(2))
    with pytest.raises(KeyboardInterrupt):
        steps.run()
    assert steps.epochs == [1]
    assert steps.done == [0, 1, 2]
    told = "stopping once epoch 1 is validated and saved; Ctrl-C again stops at once"
    assert told in capfd.readouterr().err


def test_while_an_epoch_is_validated_that_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    """It may take minutes: a step that is waited for would not."""
    steps = Steps(lambda *_: None)
    steps.trainer.add_event_handler(Events.EPOCH_COMPLETED(once=1), press)
    with pytest.raises(KeyboardInterrupt):
        steps.run()
    assert steps.done == [0, 1, 2]
    assert "stopping once epoch 1 is validated and saved" in capfd.readouterr().err


def test_the_last_step_of_all_is_followed_by_the_end() -> None:
    steps = Steps(lambda steps, at: press() if (steps.epochs, at) == ([1], 2) else None)
    with pytest.raises(KeyboardInterrupt):
        steps.run()
    assert steps.epochs == [1, 2]


def test_twice_is_at_once() -> None:
    def twice(_: Steps, step: int) -> None:
        press()
        press()

    steps = Steps(twice)
    with pytest.raises(KeyboardInterrupt):
        steps.run()
    assert not steps.done


def test_it_is_not_lost_where_the_step_fails() -> None:
    """Out of memory, a training begins again with a smaller batch."""

    def fail(_: Steps, step: int) -> None:
        press()
        raise MemoryError

    with pytest.raises(KeyboardInterrupt):
        Steps(fail).run()


def test_a_batch_is_not_waited_for() -> None:
    def batches() -> Iterator[int]:
        yield 0
        press()
        yield 1

    steps = Steps(lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        steps.run(batches())
    assert steps.done == [0]
