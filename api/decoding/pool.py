"""The decoders: started, given files, watched, and replaced when one dies."""

from __future__ import annotations

import logging
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import BinaryIO, ClassVar, TypeVar

import anyio
from anyio import to_thread

from api.decoding import wire
from api.processes import import_path, module_command
from caps_med import errors
from caps_med.errors import CapsMedError, InvalidInput
from caps_med.images import Kind, Limits, MedicalImage

log = logging.getLogger("caps_med.api")

T = TypeVar("T")

#: A decoder that does not start within this many seconds never will.
START_SECONDS = 60.0
#: A decoder is replaced after this many files, so that no library's leak grows.
FILES = 2000
#: What a decoder inherits of the service's environment: nothing that could be a secret.
_KEPT = ("PATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LANG", "SYSTEMROOT")
_SINGLE = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


class DecoderDied(CapsMedError):
    """The process that decoded the file was killed, or crashed."""

    code: ClassVar[str] = "decoder_died"


class DecodeTimeout(CapsMedError):
    """The file took longer to decode than is allowed."""

    code: ClassVar[str] = "decode_timeout"


#: The errors that a decoder may report, by their stable codes.
_ERRORS: Mapping[str, type[CapsMedError]] = {
    error.code: error
    for error in (
        errors.UnsupportedFormat,
        errors.InputTooLarge,
        errors.InvalidInput,
        errors.InvalidParameter,
    )
}


class Decoder:
    """One process."""

    def __init__(self, memory: int) -> None:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._process = subprocess.Popen(  # noqa: S603
            module_command("api.decoding.worker", str(memory)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, **_SINGLE, **import_path()},
            start_new_session=True,
        )
        self.files = 0
        try:
            with self._within(START_SECONDS):
                wire.receive_line(self._answers)
        except (EOFError, wire.Garbled) as error:
            self.kill()
            raise RuntimeError("a decoder does not start") from error

    @property
    def pid(self) -> int:
        """The process' id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be given a file."""
        return self._process.poll() is None and self.files < FILES

    def decode(self, content: bytes, kind: Kind, limits: Limits, seconds: float) -> MedicalImage:
        """`read_image` of `content`, within `seconds`.

        Raises:
            DecodeTimeout, DecoderDied: the process has ended.
            CapsMedError: what is wrong with the file.
        """
        self.files += 1
        deadline = self._within(seconds)
        try:
            with deadline:
                return self._ask(content, kind, limits)
        except (EOFError, OSError, wire.Garbled) as error:
            self.kill()
            if deadline.expired:
                raise DecodeTimeout(
                    f"not decoded within {seconds:g} s: send a smaller or simpler file"
                ) from error
            log.warning("a decoder died (%s)", self._process.returncode)
            raise DecoderDied(
                "the process that decoded the file died: the file is broken or needs too much, or "
                "the system ended it; try once more, then save the file anew"
            ) from error

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # what was left to be written
                    continue
        self._process.wait()

    def _ask(self, content: bytes, kind: Kind, limits: Limits) -> MedicalImage:
        bounds = (limits.max_bytes, limits.max_inflated_bytes, limits.max_voxels)
        request = {"size": len(content), "kind": kind, "limits": bounds}
        wire.send(self._requests, request, content)
        answer = wire.receive_line(self._answers)
        if "image" in answer:
            # rescaled integers may become twice as large as they were
            return wire.receive_image(self._answers, answer["image"], 8 * limits.max_inflated_bytes)
        if "unforeseen" in answer:
            log.warning("unforeseen while decoding: %s", str(answer["unforeseen"])[:80])
            raise InvalidInput(str(answer["message"]))
        if answer.get("error") not in _ERRORS:
            raise wire.Garbled("no answer")
        raise _ERRORS[answer["error"]](str(answer["message"]))

    @property
    def _requests(self) -> BinaryIO:
        assert self._process.stdin is not None  # noqa: S101 - it was asked for
        return self._process.stdin  # type: ignore[return-value]

    @property
    def _answers(self) -> BinaryIO:
        assert self._process.stdout is not None  # noqa: S101
        return self._process.stdout  # type: ignore[return-value]

    def _within(self, seconds: float) -> _Deadline:
        return _Deadline(seconds, self._process)


class _Deadline:
    """Kills a process when a block takes too long; its reader then sees the end of the pipe."""

    def __init__(self, seconds: float, process: subprocess.Popen[bytes]) -> None:
        self.expired = False
        self._process = process
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _expire(self) -> None:
        self.expired = True
        self._process.kill()


class DecodePool:
    """A few decoders; a file waits for a free one.

    Args:
        decoders: how many files are decoded at once.
        memory: bytes that one may take beyond what it starts with.
        seconds: that one file may take.
        limits: on one file, before and after it is decoded.
    """

    def __init__(self, decoders: int, memory: int, seconds: float, limits: Limits) -> None:
        self._memory, self._seconds, self._limits = memory, seconds, limits
        self._free: queue.LifoQueue[Decoder | None] = queue.LifoQueue()
        for _ in range(decoders):
            self._free.put(None)
        self._decoders = decoders
        self._running: set[Decoder] = set()
        self._limiter: anyio.CapacityLimiter | None = None

    async def start(self) -> None:
        """Start a decoder now, so that the first request need not wait for it."""
        await self._in_thread(lambda: self._give(self._take()))

    async def decode(self, content: bytes, kind: Kind) -> MedicalImage:
        """An image or label map from bytes, in a process that may die.

        Raises:
            CapsMedError: as `caps_med.images.read_image`; `DecodeTimeout`, `DecoderDied`.
        """
        self._limits.check_file(len(content))
        return await self._in_thread(lambda: self._decode(content, kind))

    def pids(self) -> list[int]:
        """The processes that are alive now."""
        return [decoder.pid for decoder in tuple(self._running)]

    def close(self) -> None:
        """End all processes."""
        for decoder in tuple(self._running):
            decoder.kill()
        self._running.clear()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._decoders)
        return await to_thread.run_sync(work, limiter=self._limiter)

    def _decode(self, content: bytes, kind: Kind) -> MedicalImage:
        decoder = self._take()
        try:
            return decoder.decode(content, kind, self._limits, self._seconds)
        finally:
            self._give(decoder)

    def _take(self) -> Decoder:
        """A live decoder: one that died while idle is replaced."""
        decoder = self._free.get()
        if decoder is not None and decoder.alive:
            return decoder
        try:
            if decoder is not None:
                self._running.discard(decoder)
                decoder.kill()
            decoder = Decoder(self._memory)
        except BaseException:
            self._free.put(None)
            raise
        self._running.add(decoder)
        return decoder

    def _give(self, decoder: Decoder) -> None:
        self._free.put(decoder)
