"""Tests of `aioproducer.net.connection`: closing unused connections (`connections_max_idle_ms`, NET-35)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from jumping import jumping
from nodes import now
from scripted import Asked, ScriptedStream

from aioproducer.net.connection import Connection
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import codec, message

BODY = codec("Metadata.request", 9).encode(message("Metadata.request", topics=[]))


class Table:
    """A connection that is closed after 10 idle seconds, and when it was lost."""

    def __init__(self, max_idle: float = 10.0) -> None:
        self.lost_at: list[float] = []
        self.connection = Connection(
            "broker:9092",
            "me",
            lambda _: self.lost_at.append(now()),
            lambda: None,
            max_in_flight=5,
            max_idle=max_idle,
        )
        self.stream = ScriptedStream(self.connection)

    def send(self) -> Asked:
        self.connection.send(ApiKey.METADATA, 9, BODY, lambda _: None, 100.0)
        return self.stream.asked[-1]


@jumping
async def test_each_use_begins_anew() -> None:
    """The last of request and answer counts."""
    table, began = Table(), now()
    await asyncio.sleep(8)
    asked = table.send()
    await asyncio.sleep(4)
    table.stream.answer(asked)
    await asyncio.sleep(30)
    assert table.lost_at == [pytest.approx(began + 8 + 4 + 10)]
    # gently: what is written has left
    assert not table.stream.aborted


@jumping
async def test_nor_is_one_whose_unanswered_requests_have_no_room_yet() -> None:
    """acks=0 into a full buffer."""
    table = Table()
    table.connection.pause_writing()
    table.connection.send_unanswered(ApiKey.METADATA, 9, BODY, lambda _: None)
    await asyncio.sleep(50)
    assert table.lost_at == []
    table.connection.resume_writing()
    await asyncio.sleep(50)
    assert len(table.lost_at) == 1


@jumping
async def test_never() -> None:
    """0 keeps it for ever, and costs no timer."""
    table = Table(max_idle=0.0)
    loop: Any = asyncio.get_running_loop()
    assert loop._scheduled == []
    await asyncio.sleep(10**6)
    assert table.lost_at == []


@jumping
async def test_a_lost_connection_leaves_no_timer() -> None:
    """The connection cancels its timer when it is lost."""
    table = Table()
    table.send()
    table.stream.lose()
    loop: Any = asyncio.get_running_loop()
    assert [timer for timer in loop._scheduled if not timer.cancelled()] == []


@jumping
async def test_a_close_that_takes_long_is_one_close() -> None:
    """The peer does not read, and the time is over meanwhile."""
    table = Table()
    table.stream.lingers = True
    table.connection.close()
    await asyncio.sleep(50)
    assert table.lost_at == []
    table.stream.lose()
    assert len(table.lost_at) == 1
