"""Tests of `aioproducer.net.connection`. Those of `Connection` cover it further."""

from __future__ import annotations

import asyncio

from jumping import jumping, settle

from aioproducer.net.connection import RequestTimer
from aioproducer.net.in_flight_requests import InFlightRequest, InFlightRequests
from aioproducer.wire.api import ApiKey


class Watched:
    """Requests with a timer, and the correlation ids of those that it reported."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.requests = InFlightRequests(5)
        self.reported: list[int] = []
        self.timer = RequestTimer(self.loop, self.requests, lambda request: self.reported.append(request.correlation_id))

    def add(self, number: int, timeout: float) -> None:
        deadline = self.loop.time() + timeout
        self.requests.requests.append(InFlightRequest(number, ApiKey.METADATA, 9, deadline, lambda _: None))
        if deadline < self.timer.armed_for:
            self.timer.arm(deadline)


@jumping
async def test_it_reports_the_request_with_the_earliest_deadline() -> None:
    """Once, at its deadline."""
    watched = Watched()
    for number, timeout in enumerate([3.0, 1.0, 2.0]):
        watched.add(number, timeout)
    await asyncio.sleep(0.9)
    assert watched.reported == []
    await asyncio.sleep(0.2)
    assert watched.reported == [1]


@jumping
async def test_an_answered_request_is_not_reported() -> None:
    """The timer is armed again for the next deadline."""
    watched = Watched()
    watched.add(0, 1.0)
    watched.add(1, 5.0)
    watched.requests.requests.popleft()
    await asyncio.sleep(4.9)
    assert watched.reported == []
    await asyncio.sleep(0.2)
    assert watched.reported == [1]


@jumping
async def test_an_answer_in_the_iterations_after_the_deadline_is_in_time() -> None:
    """The loop may have been held, and reads the socket then."""
    watched = Watched()
    watched.add(0, 1.0)
    watched.loop.call_later(1.0, lambda: watched.loop.call_soon(watched.requests.requests.popleft))
    await asyncio.sleep(1.0)
    await settle()
    assert watched.reported == []


@jumping
async def test_after_a_cancel_nothing_is_reported() -> None:
    """The connection is lost, and its requests have failed. Cancelling twice is cancelling once."""
    watched = Watched()
    watched.add(0, 1.0)
    watched.timer.cancel()
    watched.timer.cancel()
    await asyncio.sleep(5.0)
    assert watched.reported == []
