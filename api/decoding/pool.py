"""The decoders: shared by all clients, and replaced when one dies."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from typing import TypeVar

from api.budget import Claim
from api.decoding.choice import NOTHING, Choice
from api.decoding.decoder import Decoder, NoDecoder
from api.decoding.wire import FilesOfImages
from api.fair_queue import FairQueue
from caps_med.images import Kind, Limits, MedicalImage

log = logging.getLogger("caps_med.api")

T = TypeVar("T")


class DecodePool:
    """A few decoders; a file waits for its turn, see `FairQueue`.

    Args:
        decoders: how many files are decoded at once.
        memory: bytes that one may take beyond what it starts with.
        seconds: that one file may take.
        limits: on one file, before and after it is decoded.
        length: files that may wait.
    """

    def __init__(
        self, decoders: int, memory: int, seconds: float, limits: Limits, length: int
    ) -> None:
        self._memory, self._seconds, self._limits = memory, seconds, limits
        self._free: queue.LifoQueue[Decoder | None] = queue.LifoQueue()
        for _ in range(decoders):
            self._free.put(None)
        self._running: set[Decoder] = set()
        self._queue = FairQueue(decoders, length, "a decoder")

    async def start(self) -> None:
        """Start a decoder now, so that the first request need not wait for it."""
        await self._queue.in_thread(lambda: self._give(self._take()))

    async def decode(
        self,
        content: bytes,
        kind: Kind,
        claim: Claim | None = None,
        choice: Choice = NOTHING,
    ) -> MedicalImage:
        """An image or label map from bytes, in a process that may die.

        Args:
            claim: of its request, to which the bytes of the image are added; its client decides
                on the order.
            choice: the series and volume to read.

        Raises:
            CapsMedError: as `caps_med.images.read_image`; `DecodeTimeout`, `DecoderDied`.
            InputTooLarge, NoRoom: the decoded image does not fit, see `api.budget`.
            Busy: too many files wait.
        """

        def admit(size: int) -> None:
            if claim is not None:
                claim.add(size)

        return await self._in_turn(
            content,
            claim,
            lambda decoder: decoder.decode(
                content, kind, self._limits, self._seconds, admit, choice
            ),
        )

    async def files_of_images(self, content: bytes, claim: Claim | None = None) -> FilesOfImages:
        """How the DICOM files of a zip form images.

        Raises:
            CapsMedError: as `caps_med.images.series.series_of_zip`; `DecodeTimeout`, `DecoderDied`.
            Busy: too many files wait.
        """
        return await self._in_turn(
            content, claim, lambda decoder: decoder.files_of_images(content, self._seconds)
        )

    async def _in_turn(
        self, content: bytes, claim: Claim | None, work: Callable[[Decoder], T]
    ) -> T:
        """Let a decoder work on a file, once its turn has come."""
        self._limits.check_file(len(content))
        # a client that leaves still occupies its decoder
        return await self._queue.run(claim, len(content), lambda: self._with_decoder(work))

    def pids(self) -> list[int]:
        """The processes that are alive now."""
        return [decoder.pid for decoder in tuple(self._running)]

    def close(self) -> None:
        """End all processes."""
        for decoder in tuple(self._running):
            decoder.kill()
        self._running.clear()

    def _with_decoder(self, work: Callable[[Decoder], T]) -> T:
        decoder = self._take()
        try:
            return work(decoder)
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
            decoder = self._started()
        except BaseException:
            self._free.put(None)
            raise
        self._running.add(decoder)
        return decoder

    def _started(self) -> Decoder:
        """A new decoder; one that is killed while it starts is replaced once."""
        try:
            return Decoder(self._memory)
        except NoDecoder:
            log.warning("a decoder did not start; another one is tried")
            return Decoder(self._memory)

    def _give(self, decoder: Decoder) -> None:
        self._free.put(decoder)
