"""A decoder: a process that is given files, and watched."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, ClassVar, TypeAlias, TypeVar, cast

from api.decoding import processors, wire
from api.decoding.choice import NOTHING, Choice
from api.processes import import_path, module_command, start
from caps_med import errors
from caps_med.errors import CapsMedError, InvalidInput
from caps_med.images import Kind, Limits, MedicalImage

log = logging.getLogger("caps_med.api")

T = TypeVar("T")

#: Called with the bytes of a decoded image; raises if there is no room for them.
Admit: TypeAlias = Callable[[int], None]

#: A decoder that does not start within this many seconds never will.
START_SECONDS = 60.0
#: A decoder is replaced after this many files, so that no library's leak grows.
FILES = 2000
#: Share of the seconds that a small file may take of the processor, and bytes of one that may take
#: all: a few bytes shall not keep a decoder from others for long.
SMALL_SHARE, LARGE_FILE = 1 / 6, 64 * 2**20
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
        errors.SeveralSeries,
        errors.SeveralVolumes,
        errors.InvalidParameter,
    )
}


def processor_seconds(size: int, seconds: float) -> float:
    """Seconds of the processor for a file of `size` bytes that may take `seconds` by the clock."""
    return seconds * min(1.0, SMALL_SHARE + size / LARGE_FILE)


class NoDecoder(Exception):
    """No process could be started to decode the file."""


class Decoder:
    """One process.

    Raises:
        NoDecoder: it does not start.
    """

    def __init__(self, memory: int) -> None:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            self._process = start(
                module_command("api.decoding.worker", str(memory), str(os.getpid())),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**kept, **_SINGLE, **import_path()},
                start_new_session=True,
            )
        except OSError as error:  # too many processes or open files
            raise NoDecoder("the decoding process cannot be started") from error
        self.files = 0
        try:
            with self._within(START_SECONDS):
                wire.receive_line(self._answers)
        except (EOFError, OSError, wire.Garbled) as error:
            self.kill()
            raise NoDecoder("the decoding process does not start") from error

    @property
    def pid(self) -> int:
        """The process' id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be given a file."""
        return self._process.poll() is None and self.files < FILES

    def decode(
        self,
        content: bytes,
        kind: Kind,
        limits: Limits,
        seconds: float,
        admit: Admit,
        choice: Choice = NOTHING,
    ) -> MedicalImage:
        """`read_image` of `content`, within `seconds`.

        A small file gets less of the processor than that: see `processor_seconds`.

        Args:
            admit: called with the bytes of the decoded image before they are read; whatever it
                raises leaves them in the process.
            choice: the series and volume to read.

        Raises:
            DecodeTimeout, DecoderDied: the process has ended.
            CapsMedError: what is wrong with the file.
        """
        bounds = (limits.max_bytes, limits.max_inflated_bytes, limits.max_voxels)
        request = {"series_only": False, "kind": kind, "limits": bounds, **vars(choice)}
        return self._answered(
            content, seconds, request, "image", lambda line: self._image(line, limits, admit)
        )

    def files_of_images(self, content: bytes, seconds: float) -> wire.FilesOfImages:
        """How the DICOM files of a zip form images.

        Raises: as `decode`.
        """
        return self._answered(
            content,
            seconds,
            {"series_only": True},
            "series",
            lambda size: wire.receive_series(self._answers, size),
        )

    def _answered(
        self,
        content: bytes,
        seconds: float,
        request: dict[str, Any],
        wanted: str,
        read: Callable[[Any], T],
    ) -> T:
        """What `read` makes of what is `wanted` in the answer to a request about `content`."""
        self.files += 1
        deadline = self._within(seconds)
        processors.allow(self.pid, processor_seconds(len(content), seconds))
        try:
            with deadline:
                wire.send(self._requests, {"size": len(content), **request}, content)
                answer = wire.receive_line(self._answers)
                if wanted not in answer:
                    raise _refused(answer)
                return read(answer[wanted])
        except (EOFError, OSError, wire.Garbled) as error:
            self.kill()
            if deadline.expired or processors.used_up(self._process.returncode):
                raise DecodeTimeout(
                    f"the file was not decoded within {seconds:g} s (less for a small file): send "
                    "a smaller or simpler file"
                ) from error
            log.warning("a decoder died (%s)", self._process.returncode)
            raise DecoderDied(
                "the process that decoded the file ended unexpectedly: the file is damaged or "
                "needs too much memory, or the system stopped the process; try again once, then "
                "save the file again"
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

    def _image(self, line: Any, limits: Limits, admit: Admit) -> MedicalImage:  # noqa: ANN401
        # rescaled integers may become twice as large as they were
        size = wire.announced_bytes(line, 8 * limits.max_inflated_bytes)
        try:
            admit(size)
        except Exception:
            wire.send(self._requests, {"wanted": False})
            raise
        wire.send(self._requests, {"wanted": True})
        return wire.receive_image(self._answers, line, size)

    @property
    def _requests(self) -> BinaryIO:
        return cast(BinaryIO, self._process.stdin)

    @property
    def _answers(self) -> BinaryIO:
        return cast(BinaryIO, self._process.stdout)

    def _within(self, seconds: float) -> _Deadline:
        return _Deadline(seconds, self._process)


def _refused(answer: dict[str, Any]) -> CapsMedError:
    try:
        if "unforeseen" in answer:
            log.warning("unforeseen while decoding: %s", str(answer["unforeseen"])[:80])
            return InvalidInput(str(answer["message"]))
        return refusal(answer)
    except wire.MALFORMED as error:
        raise wire.Garbled("no answer") from error


def refusal(answer: dict[str, Any]) -> CapsMedError:
    """What a decoder has refused, with what there is to choose from.

    Raises:
        Garbled: it offers something impossible.
    """
    kind, message = _ERRORS[answer["error"]], str(answer["message"])
    try:
        if kind is errors.SeveralVolumes:
            return errors.SeveralVolumes(message, int(answer["members"]["volumes"]))
        if kind is errors.SeveralSeries:
            listed = answer["members"]["series"]
            titles = {str(one["uid"]): str(one["title"]) for one in listed}
            return errors.SeveralSeries(message, titles)
    except wire.MALFORMED as error:
        raise wire.Garbled("an impossible choice") from error
    return kind(message)


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
