"""Images that a client has sent once, for several calls: bounded in number, bytes and time."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass

from api.background.quota import Quota
from api.problems import OVERLOADED, Refusal
from caps_med.errors import InputTooLarge


@dataclass(eq=False)
class Session:
    """One image in memory.

    Attributes:
        owner: the key that sent it; None if no key is needed.
        content: of its file.
        seconds: after its last use it is forgotten.
        created, used: seconds since 1970.
    """

    id: str
    owner: str | None
    content: bytes
    seconds: float
    created: float
    used: float

    def view(self) -> dict[str, object]:
        """The description for clients."""
        return {
            "name": self.id,
            "create_ts": int(self.created),
            "last_access_ts": int(self.used),
            "expiry": int(self.seconds),
        }


class Sessions:
    """The sessions of all clients. All methods belong to the event loop.

    A session is known to the key that made it only. Clients do not end their sessions: where a key
    has too many, the one that it has not used for longest makes room, and a client whose session is
    gone sends its image again.

    Args:
        most: sessions that are held; one key gets at most half of them.
        size: their bytes; one key gets at most half of them.
        seconds: after its last use a session is forgotten.
    """

    def __init__(self, most: int, size: int, seconds: float) -> None:
        self._places, self._bytes, self._seconds = Quota(most), Quota(size), seconds
        self._sessions: dict[str, Session] = {}  # the one used last comes last
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def add(self, owner: str | None, content: bytes, seconds: float | None = None) -> Session:
        """Hold an image.

        Args:
            seconds: to forget it earlier than the others.

        Raises:
            InputTooLarge: it is more than one key may hold.
            Refusal: there is no room beside the sessions of others (503).
        """
        if len(content) > self._bytes.share:
            raise InputTooLarge(
                f"the image has {len(content)} bytes, but sessions hold only {self._bytes.share}: "
                "send it with each call"
            )
        self._make_room(owner, len(content))
        now = time.time()
        kept = min(seconds or self._seconds, self._seconds)
        session = Session(uuid.uuid4().hex, owner, content, kept, now, now)
        self._places.take(owner, 1)
        self._bytes.take(owner, len(content))
        self._keep(session)
        return session

    def get(self, identity: str, owner: str | None) -> Session | None:
        """The session of this key with this id, which is used now."""
        session = self._sessions.get(identity)
        if session is None or session.owner != owner:
            return None
        session.used = time.time()
        self._keep(session)
        return session

    def remove(self, session: Session) -> None:
        """Forget a session."""
        self._timers.pop(session.id).cancel()
        del self._sessions[session.id]
        self._places.free(session.owner, 1)
        self._bytes.free(session.owner, len(session.content))

    def _make_room(self, owner: str | None, size: int) -> None:
        """Remove the oldest sessions of a key until one more fits; none if that is not enough."""
        own = [each for each in self._sessions.values() if each.owner == owner]
        held = sum(len(each.content) for each in own)
        if not self._fits(owner, 1 - len(own), size - held):
            detail = "other sessions are using all the memory for sessions: try again later"
            raise Refusal(OVERLOADED, detail, {"Retry-After": "60"})
        for each in own:
            if self._fits(owner, 1, size):
                return
            self.remove(each)

    def _fits(self, owner: str | None, count: int, size: int) -> bool:
        return self._places.fits(owner, count) and self._bytes.fits(owner, size)

    def _keep(self, session: Session) -> None:
        """Count its time from now on."""
        if timer := self._timers.pop(session.id, None):
            timer.cancel()
        self._sessions.pop(session.id, None)
        self._sessions[session.id] = session
        loop = asyncio.get_running_loop()
        self._timers[session.id] = loop.call_later(session.seconds, self.remove, session)
