"""Tests of `aioproducer.net.in_flight_requests`: the queue, the slots, and when another request may be sent."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from jumping import jumping, settle, until
from nodes import running
from scripted import ScriptedDialer

from aioproducer.net.in_flight_requests import InFlightRequest, InFlightRequests
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable


def request(number: int, deadline: float = 0.0) -> InFlightRequest:
    return InFlightRequest(number, ApiKey.METADATA, 9, deadline, lambda _: None)


# Slots


@jumping
async def test_as_many_slots_as_the_limit() -> None:
    """A call without a free slot returns False and does not wait."""
    in_flight = InFlightRequests(2)
    assert [in_flight.try_acquire() for _ in range(3)] == [True, True, False]
    in_flight.release()
    assert [in_flight.try_acquire() for _ in range(2)] == [True, False]


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
    sniffio.current_async_library, sniffio.AsyncLibraryNotFoundError = current_async_library, LookupError
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
async def test_the_semaphore_is_anyios() -> None:
    """No task waits for it: a drain is synchronous."""
    in_flight = InFlightRequests(3)
    assert isinstance(in_flight._slots, anyio.Semaphore)
    assert (in_flight._slots.value, in_flight._slots.max_value) == (3, 3)


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


@jumping
async def test_its_length_is_that_of_the_queue() -> None:
    """A slot that is taken for batches that are being encoded is no request yet."""
    in_flight = InFlightRequests(1)
    assert in_flight.try_acquire()
    assert not in_flight
    in_flight.requests.append(request(0))
    assert len(in_flight) == 1


@pytest.mark.parametrize("change", [lambda _: None, lambda in_flight: in_flight.extend(10.0)], ids=["as sent", "extended"])
@jumping
async def test_the_first_to_expire_need_not_be_the_oldest(change: Callable[[InFlightRequests], object]) -> None:
    """Each request has a time-out of its own."""
    in_flight = InFlightRequests(1)
    for number, deadline in enumerate([3.0, 1.0, 2.0]):
        in_flight.requests.append(request(number, deadline))
    change(in_flight)
    assert in_flight.first_to_expire.correlation_id == 1
    assert in_flight.requests[0].correlation_id == 0


@jumping
async def test_deadlines_are_extended_in_place() -> None:
    """The requests stay in their order (NET-14)."""
    in_flight = InFlightRequests(1)
    for number in range(3):
        in_flight.requests.append(request(number, float(number)))
    in_flight.extend(0.5)
    assert [in_flight.requests.popleft()[::3] for _ in range(3)] == [(0, 0.5), (1, 1.5), (2, 2.5)]
