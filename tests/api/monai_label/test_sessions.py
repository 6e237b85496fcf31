"""Sessions are bounded in number, bytes and time, and clients need not end them."""

from __future__ import annotations

import asyncio

import pytest

from api.monai_label.sessions import Sessions
from api.problems import Refusal
from caps_med.errors import InputTooLarge
from tests.api.running import run_async


def test_the_least_recently_used_session_of_a_key_makes_room() -> None:
    async def check() -> None:
        sessions = Sessions(6, 1000, 60)
        made = [sessions.add("one", b"x") for _ in range(3)]
        assert sessions.get(made[0].id, "one")
        sessions.add("one", b"x")
        assert sessions.get(made[1].id, "one") is None
        assert sessions.get(made[0].id, "one")
        for _ in range(1000):
            sessions.add("one", b"x")
        assert len(sessions) == 3

    run_async(check())


def test_their_bytes_are_bounded() -> None:
    async def check() -> None:
        sessions = Sessions(100, 100, 60)
        with pytest.raises(InputTooLarge, match="send it with each call"):
            sessions.add("one", bytes(51))
        first = sessions.add("one", bytes(30))
        sessions.add("one", bytes(30))
        assert sessions.get(first.id, "one") is None
        for who in ("one", "two"):
            sessions.add(who, bytes(50))
        with pytest.raises(Refusal, match="other sessions are using all the memory"):
            sessions.add("three", bytes(1))

    run_async(check())


def test_sessions_stay_whose_room_would_not_be_enough() -> None:
    async def check() -> None:
        sessions = Sessions(100, 100, 60)
        own = [sessions.add("one", bytes(10)) for _ in range(2)]
        sessions.add("two", bytes(50))
        sessions.add("three", bytes(10))
        with pytest.raises(Refusal, match="other sessions are using all the memory"):
            sessions.add("one", bytes(45))
        assert all(sessions.get(each.id, "one") for each in own)
        sessions.add("one", bytes(30))
        assert sessions.get(own[0].id, "one") is None and sessions.get(own[1].id, "one")

    run_async(check())


def test_they_are_forgotten_in_time_though_nobody_asks() -> None:
    async def check() -> None:
        sessions = Sessions(10, 100, 60)
        sessions.add("one", bytes(10), 0.01)
        kept = sessions.add("one", bytes(10))
        while len(sessions) > 1:
            await asyncio.sleep(0.005)
        sessions.remove(kept)
        sessions.add("one", bytes(50))  # all room is free again

    run_async(asyncio.wait_for(check(), 60))
