"""Callbacks in which a bug may hide."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer.engine.tasks.guarded_loop import GuardedLoop
from aioproducer.errors import ProtocolError


@pytest.mark.asyncio
async def test_what_a_callback_raises_is_told_and_not_raised() -> None:
    """Soon, at a time, and from elsewhere; what runs well is not touched."""
    told: list[BaseException] = []
    ran: list[Any] = []
    loop = GuardedLoop(asyncio.get_running_loop(), told.append)

    def crash(*_: object) -> None:
        raise ZeroDivisionError

    loop.call_soon(crash)
    loop.call_soon(ran.append, 1)
    loop.call_at(loop.time(), crash, "argument")
    loop.call_at(loop.time(), ran.append, 2)
    loop.guarded(crash)(7)
    loop.guarded(ran.append)(0)
    loop.call_soon(crash).cancel()
    await asyncio.sleep(0.001)
    assert ran == [0, 1, 2]
    assert [type(error) for error in told] == [ZeroDivisionError] * 3


@pytest.mark.asyncio
async def test_a_brokers_nonsense_is_no_bug() -> None:
    """It goes on to the connection, which ends."""
    told: list[BaseException] = []

    def refuse(_answer: object) -> None:
        raise ProtocolError("nonsense")

    with pytest.raises(ProtocolError):
        GuardedLoop(asyncio.get_running_loop(), told.append).guarded(refuse)(None)
    assert told == []
