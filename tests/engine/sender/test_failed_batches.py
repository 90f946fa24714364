"""Tests of `aioproducer.engine.sender.failed_batches`: what a failed batch holds until its records are handed out."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.engine.memory.buffer_pool import BATCH_OVERHEAD
from aioproducer.engine.sender.failed_batches import FailedBatches
from aioproducer.errors import DeliveryError, Persisted, TransactionAborted
from aioproducer.model import FailedRecord
from tests.engine.append.parts import Parts, engine_context

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="outside")


class Handing:
    """The part under test, in the running loop."""

    def __init__(self, hook: Any, **options: Any) -> None:
        self.parts = Parts(1, on_failed=hook, **options)
        loop = asyncio.get_running_loop()
        context = engine_context(self.parts.config, self.parts.clock)
        shared: Any = SimpleNamespace(config=context.config, loop=loop)
        self.batches = FailedBatches(shared, self.parts.pool)

    def fail(self, *values: bytes, error: DeliveryError | None = None) -> Any:
        """Fail a batch of these values. Returns it."""
        for value in values:
            self.parts.place(value, partition=0)
        (batch,) = self.parts.sent()
        self.batches.add(batch, error or failure())
        return batch


def failure(persisted: Persisted = Persisted.MAYBE) -> DeliveryError:
    return DeliveryError("refused", "orders", 0, persisted, 1)


@pytest.mark.asyncio
async def test_a_call_for_each_batch_in_an_iteration_of_its_own() -> None:
    """The first call comes one whole iteration after the failure. The bytes are taken until then, and the context is an empty one."""
    calls: list[tuple[str, list[bytes | None], int]] = []
    PLACE.set("inside")

    def hook(error: DeliveryError, records: list[FailedRecord]) -> None:
        assert error is not given
        assert str(error) == str(given)
        calls.append((PLACE.get(), [record.value for record in records], handing.parts.pool.available))

    handing = Handing(hook)
    given = failure()
    before = handing.parts.pool.available
    first = handing.fail(b"1", b"2", error=given)
    second = handing.fail(b"3", error=given)
    credit = len(first.payload) + BATCH_OVERHEAD, len(second.payload) + BATCH_OVERHEAD
    free = before - first.credit - second.credit
    assert handing.parts.pool.available == free - sum(credit)
    seen = []
    for _ in range(6):
        seen.append(len(calls))
        await asyncio.sleep(0)
    assert seen == [0, 0, 1, 1, 2, 2]
    assert calls == [("outside", [b"1", b"2"], free - sum(credit)), ("outside", [b"3"], free - credit[1])]
    assert handing.parts.pool.available == free
    assert handing.batches.is_empty


@pytest.mark.asyncio
async def test_a_wait_is_for_what_had_failed_by_then() -> None:
    """Batches that fail later do not prolong it, and a wait that is cancelled harms no other."""
    calls: list[Any] = []
    handing = Handing(lambda *told: calls.append(told))
    await handing.batches.handed_out()
    handing.fail(b"1")
    first, cancelled = asyncio.ensure_future(handing.batches.handed_out()), asyncio.ensure_future(handing.batches.handed_out())
    await asyncio.sleep(0)
    for number in range(5):
        handing.fail(b"%d" % number)
    all_of_them = asyncio.ensure_future(handing.batches.handed_out())
    cancelled.cancel()
    await first
    # The task of the wait runs one iteration after the call.
    assert len(calls) in {1, 2}
    await all_of_them
    assert len(calls) == 6
    assert cancelled.cancelled()


@pytest.mark.asyncio
async def test_what_is_dropped_with_its_transaction_is_left_out() -> None:
    """Nothing is taken for it, and the function is not called."""
    calls: list[Any] = []
    handing = Handing(lambda *told: calls.append(told))
    error = failure()
    error.__cause__ = TransactionAborted("aborted")
    batch = handing.fail(b"v", error=error)
    assert handing.batches.is_empty
    assert handing.parts.pool.available == handing.parts.config.buffer_memory - batch.credit
    for _ in range(4):
        await asyncio.sleep(0)
    assert calls == []


@pytest.mark.asyncio
async def test_a_base_exception_reaches_the_loop_and_the_next_batch_is_handed_out() -> None:
    """SystemExit of the function is the loop's. The other batches have their calls."""
    calls: list[int] = []

    class Ending(BaseException):
        pass

    def hook(_error: DeliveryError, _records: list[FailedRecord]) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise Ending

    handing = Handing(hook)
    handing.fail(b"1")
    handing.fail(b"2")
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
    await handing.batches.handed_out_at_stop(5)
    assert len(calls) == 2
    assert [type(error) for error in reported] == [Ending]


@pytest.mark.asyncio
async def test_bytes_that_do_not_decode_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A damaged payload costs its own records alone."""
    calls: list[Any] = []
    handing = Handing(lambda _error, records: calls.append(records))
    for value in (b"1", b"2"):
        handing.parts.place(value, partition=0)
        (batch,) = handing.parts.sent()
        if value == b"1":
            batch.payload = bytes(batch.payload)[:-1]
        handing.batches.add(batch, failure())
    await handing.batches.handed_out_at_stop(5)
    assert [[record.value for record in records] for records in calls] == [[b"2"]]
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "could not take 1 record of orders-0" in line.getMessage()


def test_a_failed_record_does_not_show_its_bytes() -> None:
    """`repr` shows no bytes of a record; the arguments of `send` are its first fields."""
    record = FailedRecord("orders", b"canary", b"canary", 3, 7, (("name", b"canary"),), Persisted.MAYBE)
    assert repr(record) == "<FailedRecord for orders-3 of 7, persisted=maybe: 1 header>"
    assert record[:6] == ("orders", b"canary", b"canary", 3, 7, (("name", b"canary"),))
