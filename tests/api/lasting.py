"""Decoders that outlive the service that started them, for tests that each begin a service."""

from __future__ import annotations

import queue
from collections import defaultdict
from contextlib import suppress
from typing import ClassVar

from api.decoding.decoder import Decoder
from api.decoding.pool import DecodePool


class LastingDecoders(DecodePool):
    """The next service of this process takes them over: one takes a second to start.

    Those that are decoding when their service ends are killed, as ever.
    """

    #: By the memory that they may take.
    spare: ClassVar[defaultdict[int, queue.SimpleQueue[Decoder]]] = defaultdict(queue.SimpleQueue)

    def _started(self) -> Decoder:
        with suppress(queue.Empty):
            while True:
                decoder = self.spare[self._memory].get_nowait()
                if decoder.alive:
                    return decoder
        return super()._started()

    def close(self) -> None:
        """Hand over those that are idle, and end all others; the service may begin again."""
        idle = []
        with suppress(queue.Empty):
            while True:
                idle.append(self._free.get_nowait())
        for decoder in idle:
            self._free.put(None)
            if decoder is not None and decoder.alive:
                self._running.discard(decoder)
                self.spare[self._memory].put(decoder)
        super().close()

    @classmethod
    def end(cls) -> None:
        """End all that no service has."""
        for spare in cls.spare.values():
            while not spare.empty():
                spare.get_nowait().kill()
