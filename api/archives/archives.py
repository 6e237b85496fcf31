"""The archives that the settings name, for all requests: a few exchanges at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from api.access.rights import require_scope
from api.budget import current
from api.fair_queue import FairQueue
from api.record import note
from api.settings import Settings
from caps_med.archives import Archive, SeriesFound, SeriesReference, find_archive
from caps_med.extras import require_extra
from caps_med.inference.passes import Cancelled

T = TypeVar("T")

#: The scope that a key needs for whatever an archive holds.
SCOPE = "archive"


class Archives:
    """Finds, retrieves and stores, each within the bounds on an upload.

    Whoever waits for an archive waits on threads of its own, so that a slow archive stops nothing
    else; clients take turns, as at the decoders.

    Args:
        settings: of the service.

    Raises:
        MissingExtra: they name an archive, and dicomweb-client is not installed.
    """

    def __init__(self, settings: Settings) -> None:
        if settings.archives:
            require_extra("dicomweb", "an archive")
        self._configured = settings.archives
        self._bounds = settings.archive_bounds
        self._queue = FairQueue(settings.archives_at_once, settings.max_queue, "an archive")

    @property
    def names(self) -> list[str]:
        """The archives that the settings name."""
        return sorted(self._configured)

    def check(self, name: str) -> None:
        """Check that this request may use the archive.

        Raises:
            Refusal: its key lacks the scope "archive".
            ArchiveNotFound: the settings name no such archive.
        """
        self._found(name)

    async def find(
        self, name: str, study: str | None = None, series: str | None = None
    ) -> list[SeriesFound]:
        """The series of a study, or those with a UID; see `caps_med.archives.Archive.find`.

        Raises:
            Refusal, ArchiveNotFound: see `check`.
            Busy: too many requests wait for archives.
            CapsMedError: see `caps_med.archives.Archive.find`.
        """
        archive = self._found(name)
        return await self._in_turn(lambda _: archive.find(study, series))

    async def retrieve(self, reference: SeriesReference) -> bytes:
        """The files of a series in a zip; what arrives is added to the claim of the request.

        Raises:
            Refusal, ArchiveNotFound: see `check`.
            Busy: too many requests wait for archives.
            InputTooLarge, NoRoom: it does not fit, see `api.budget`.
            CapsMedError: see `caps_med.archives.Archive.retrieve`.
        """
        archive = self._found(reference.archive)
        return await self._in_turn(lambda admit: archive.retrieve(reference, admit))

    async def store(self, name: str, contents: Sequence[bytes]) -> None:
        """Store DICOM files that the service has made.

        Raises: as `retrieve`.
        """
        archive = self._found(name)
        await self._in_turn(lambda _: archive.store(contents))

    def _found(self, name: str) -> Archive:
        require_scope(SCOPE)
        archive = find_archive(name, self._configured, self._bounds)
        note(archive=archive.name)
        return archive

    async def _in_turn(self, work: Callable[[Callable[[int], None]], T]) -> T:
        """The result of blocking work, which a client that leaves ends with its next byte."""
        claim, left = current(), threading.Event()

        def admit(size: int) -> None:
            if left.is_set():
                raise Cancelled
            if claim is not None:
                claim.add(size)

        try:
            return await self._queue.run(claim, 1, lambda: work(admit))
        except asyncio.CancelledError:
            left.set()
            raise
