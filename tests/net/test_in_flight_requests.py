"""Tests of `aioproducer.net.in_flight_requests`: the queue, the slots, and when another request may be sent."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from jumping import jumping, settle, until
from nodes import running
from scripted import ScriptedDialer

from aioproducer.net.in_flight_requests import InFlightRequest, InFlightRequests
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    pass


def request(number: int, deadline: float = 0.0) -> InFlightRequest:
    return InFlightRequest(number, ApiKey.METADATA, 9, deadline, lambda _: None)


# Slots


@jumping
async def test_a_slot_that_was_not_taken_cannot_be_released() -> None:
    """Otherwise more requests would be in flight than may be."""
    in_flight = InFlightRequests(2)
    assert in_flight.try_acquire()
    in_flight.release()
    with pytest.raises(ValueError, match="too many times"):
        in_flight.release()
    assert [in_flight.try_acquire() for _ in range(3)] == [True, True, False]


@jumping
async def test_another_request_may_be_sent_while_the_buffer_and_the_slots_have_space() -> None:
    """A slot counts before its request is written, because its batches may be encoded in another thread."""
    in_flight = InFlightRequests(2)
    assert in_flight.can_send_more(is_written=True)
    assert not in_flight.can_send_more(is_written=False)
    assert in_flight.try_acquire()
    assert in_flight.can_send_more(is_written=True)
    assert in_flight.try_acquire()
    assert not in_flight.can_send_more(is_written=True)
    in_flight.release()
    assert in_flight.can_send_more(is_written=True)


@jumping
async def test_a_callback_of_the_event_loop_uses_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with sniffio, for which a callback, which is no task, is outside of every event loop."""

    def current_async_library() -> str:
        if asyncio.current_task() is None:
            raise LookupError
        return "asyncio"

    sniffio: Any = ModuleType("sniffio")
    sniffio.current_async_library, sniffio.AsyncLibraryNotFoundError = (
        current_async_library,
        LookupError,
    )
    monkeypatch.setattr(sys.modules["anyio._core._eventloop"], "sniffio", sniffio, raising=False)
    taken: list[bool] = []

    def drain(in_flight: InFlightRequests) -> None:
        taken.extend(in_flight.try_acquire() for _ in range(2))
        in_flight.release()
        taken.append(in_flight.can_send_more(is_written=True))

    asyncio.get_running_loop().call_soon(drain, InFlightRequests(1))
    await settle()
    assert taken == [True, False, True]


@jumping
async def test_a_connection_has_as_many_slots_as_requests_may_be_in_flight() -> None:
    """`max_in_flight_requests_per_connection`. The node is ready while one is free."""
    async with running(ScriptedDialer(), max_in_flight=3) as node:
        node.produce.request_connection()
        await until(lambda: node.is_ready)
        assert node.produce.connection is not None
        in_flight = node.produce.connection.in_flight_requests
        assert [in_flight.try_acquire() for _ in range(4)] == [True, True, True, False]
        assert not node.is_ready
        in_flight.release()
        assert node.is_ready


@jumping
async def test_a_slot_of_a_lost_connection_is_none_of_the_next() -> None:
    """The next connection begins with all slots. The late releases of the lost one raise nothing and add none."""
    dialer = ScriptedDialer()
    async with running(dialer, max_in_flight=2) as node:
        node.produce.request_connection()
        await until(lambda: node.is_ready)
        assert node.produce.connection is not None
        lost = node.produce.connection.in_flight_requests
        assert [lost.try_acquire(), lost.try_acquire()] == [True, True]
        dialer.streams[0].lose()
        node.produce.request_connection()
        await asyncio.sleep(0.06)
        in_flight = node.produce.connection.in_flight_requests
        assert in_flight is not lost
        assert in_flight.try_acquire()
        lost.release()
        lost.release()
        assert [in_flight.try_acquire() for _ in range(2)] == [True, False]


# The queue
