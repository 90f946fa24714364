"""`on_failed`: which records it gets, with which bytes, when, and what a call of it costs and delays."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
import signal
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from whole import assert_nothing_left, jumping, running, turns

from aioproducer import (
    DeliveryError,
    FailedRecord,
    Persisted,
    Producer,
    ProducerClosed,
    RecordTooLarge,
    TransactionError,
)
from aioproducer.model import Record
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Failed:
    """Keeps what `on_failed` is called with."""

    def __init__(self) -> None:
        self.errors: list[DeliveryError] = []
        self.batches: list[Sequence[FailedRecord]] = []

    def __call__(self, error: DeliveryError, records: Sequence[FailedRecord]) -> None:
        assert asyncio.get_running_loop()
        self.errors.append(error)
        self.batches.append(records)

    @property
    def records(self) -> list[FailedRecord]:
        return [record for batch in self.batches for record in batch]

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]


RECORDS = [
    Record(b"v", b"k", 0, 1_000, [("trace", b"\x00\xff"), ("trace", None), ("äö", b"")]),
    Record(None, None, 0, 900),
    Record(b"", b"", 0, 2_000_000_000_000, {"source": "shop"}),
    Record(bytes(range(256)) * 20, b"key" * 50, 0, 1_001),
]
EXPECTED = [
    FailedRecord(
        "orders",
        b"v",
        b"k",
        0,
        1_000,
        (("trace", b"\x00\xff"), ("trace", None), ("äö", b"")),
        Persisted.NO,
    ),
    FailedRecord("orders", None, None, 0, 900, (), Persisted.NO),
    FailedRecord("orders", b"", b"", 0, 2_000_000_000_000, (("source", b"shop"),), Persisted.NO),
    FailedRecord("orders", bytes(range(256)) * 20, b"key" * 50, 0, 1_001, (), Persisted.NO),
]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@jumping
async def test_it_gets_what_was_sent(codec: str) -> None:
    """The records are those of the calls, field by field, whichever codec the batch was compressed with."""
    failed = Failed()
    async with running(on_failed=failed, compression_type=codec) as (cluster, producer):
        cluster.fail("Produce", "POLICY_VIOLATION")
        await producer.send_many("orders", RECORDS)
        # A flush returns when the records that it covered have been handed out.
        await producer.flush()
        assert failed.records == EXPECTED
        assert [(error.code, error.persisted) for error in failed.errors] == [
            ("POLICY_VIOLATION", Persisted.NO)
        ]
        # The next batch is acknowledged: nothing of it is handed out.
        await producer.send_and_wait("orders", b"good", partition=0)
    assert failed.records == EXPECTED


@pytest.mark.parametrize(("magic", "times"), [(1, [5, 7]), (0, [5, 5])])
@jumping
async def test_formats_of_old_brokers(magic: int, times: list[int]) -> None:
    """The records are decoded from message sets too. Magic 0 has no timestamps: all records get that of the batch."""
    failed = Failed()
    options = {
        "enable_idempotence": False,
        "message_format_max": magic,
        "compression_type": "gzip",
    }
    async with running(version="0.10", on_failed=failed, **options) as (cluster, producer):
        cluster.fail("Produce", "POLICY_VIOLATION")
        await producer.send_many("orders", [Record(b"a", b"k", 0, 5), Record(None, None, 0, 7)])
        await producer.flush()
        await turns(5)
    assert [record[:5] for record in failed.records] == [
        ("orders", b"a", b"k", 0, times[0]),
        ("orders", None, None, 0, times[1]),
    ]


@jumping
async def test_the_parts_of_a_batch_that_was_cut() -> None:
    """Of a batch that its broker refuses as too large, only the record that is too large by itself is handed out, once."""
    failed = Failed()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2, config={"max.message.bytes": 3000})
        async with running(cluster, on_failed=failed, linger_ms=5) as (_, producer):
            values = [b"a" * 500, b"b" * 3000, b"c" * 500, b"d" * 2000]
            deliveries = [await producer.send("orders", value, partition=0) for value in values]
            await producer.flush()
        assert [type(error.__cause__) for error in failed.errors] == [RecordTooLarge]
        assert failed.values == [b"b" * 3000]
        assert [delivery.exception() is None for delivery in deliveries] == [
            True,
            False,
            True,
            True,
        ]
        assert cluster.values("orders") == [b"a" * 500, b"c" * 500, b"d" * 2000]


@jumping
async def test_expiry_is_handed_out_as_maybe_or_no() -> None:
    """A batch without an answer may be in the log; the batch behind it, which was never sent, is not."""
    failed = Failed()
    options = {
        "max_in_flight_requests_per_connection": 1,
        "delivery_timeout_ms": 3_000,
        "request_timeout_ms": 2_000,
        "batch_size": 100,
    }
    async with running(on_failed=failed, **options) as (cluster, producer):
        await producer.partitions_for("orders")
        hang = cluster.hang("Produce")
        await producer.send("orders", b"1" * 90, partition=0)
        await turns(3)
        await producer.send("orders", b"2" * 90, partition=0)
        await asyncio.sleep(3.1)
        assert [(record.value, record.persisted) for record in failed.records] == [
            (b"1" * 90, Persisted.MAYBE),
            (b"2" * 90, Persisted.NO),
        ]
        assert {error.code for error in failed.errors} == {"TIMED_OUT"}
        hang.release()


@pytest.mark.parametrize("how", ["close_timeout_ms", "cancelled"])
@jumping
async def test_a_stop_hands_out_what_it_fails(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """All records have been handed out when `stop` returns, in call order, also if it is cancelled: open batches, too."""
    failed = Failed()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=1)
        before = asyncio.all_tasks()
        producer = Producer(
            **cluster.client_options,
            on_failed=failed,
            close_timeout_ms=1_000,
            batch_size=2_000,
            batch_max_size=1,
        )
        await producer.start()
        await producer.partitions_for("orders")
        hang = cluster.hang("Produce")
        values = [b"%03d" % number + b"." * 300 for number in range(100)]
        for value in values:
            await producer.send("orders", value, partition=0)
        stopping = asyncio.ensure_future(producer.stop())
        if how == "cancelled":
            await asyncio.sleep(0.5)
            stopping.cancel()
        await asyncio.wait([stopping])
        assert failed.values == values
        assert len(failed.batches) > 10
        assert {error.code for error in failed.errors} == {"ABORTED"}
        assert all(isinstance(error.__cause__, ProducerClosed) for error in failed.errors)
        assert_nothing_left(producer, before)
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
        hang.release()


@jumping
async def test_an_open_batch_is_handed_out_with_its_records() -> None:
    """Its records and their number are known when it closes. It was handed out before that, without any, and metrics counted none."""
    failed = Failed()
    async with running(
        transaction_version=1, partitions=1, on_failed=failed, transactional_id="tx"
    ) as (cluster, producer):
        await producer.begin_transaction()
        hang = cluster.hang("AddPartitionsToTxn")
        for value in (b"1", b"2", b"3"):
            await producer.send("orders", value, partition=0)
        stopping = asyncio.ensure_future(producer.stop())
        await asyncio.sleep(0.1)
        stopping.cancel()
        await asyncio.wait([stopping])
        assert failed.values == [b"1", b"2", b"3"]
        assert producer.metrics().number("record-error-total") == 3
        hang.release()


@jumping
async def test_a_stop_is_bounded_by_time(caplog: pytest.LogCaptureFixture) -> None:
    """`stop` waits 5 s for a slow function, and says then how many records it has not had. It gets them all the same."""
    failed = Failed()
    loop: Any = asyncio.get_running_loop()

    def slow(error: DeliveryError, records: Sequence[FailedRecord]) -> None:
        loop.advance(2)
        failed(error, records)

    async with running(partitions=8, on_failed=slow, close_timeout_ms=1_000) as (cluster, producer):
        hang = cluster.hang("Produce")
        for number in range(8):
            await producer.send("orders", b"%d" % number, partition=number)
        began = loop.time()
        await producer.stop()
        assert 5 < loop.time() - began < 10
        left = 8 - len(failed.values)
        assert 0 < left < 8
        assert f"has not had {left} failed record" in caplog.text
        await turns(40)
        assert sorted(failed.values) == [b"%d" % number for number in range(8)]
        hang.release()


@jumping
async def test_each_batch_has_a_callback_of_its_own_after_the_other_hook() -> None:
    """`on_delivery_error` is called before, for each batch. Between two calls the event loop runs other tasks."""
    told: list[str] = []

    async with running(
        on_delivery_error=lambda _error, _count: told.append("error"),
        on_failed=lambda _error, _records: told.append("failed"),
    ) as (cluster, producer):
        cluster.fail("Produce", "POLICY_VIOLATION", times=None)
        await producer.partitions_for("orders")
        await producer.send("orders", b"v", partition=0)
        await producer.send("orders", b"v", partition=1)
        for _ in range(30):
            told.append(".")
            await asyncio.sleep(0)
    assert [word for word in told if word != "."] in (
        ["error", "error", "failed", "failed"],
        ["error", "failed", "error", "failed"],
    )
    first, second = (at for at, word in enumerate(told) if word == "failed")
    assert "." in told[first:second]


@jumping
async def test_a_flush_waits_for_the_calls() -> None:
    """They are in an empty context. A flush that is cancelled meanwhile harms no other."""
    place = contextvars.ContextVar("place", default="outside")
    place.set("inside")
    seen: list[str] = []
    async with running(on_failed=lambda _error, _records: seen.append(place.get())) as (
        cluster,
        producer,
    ):
        cluster.fail("Produce", "POLICY_VIOLATION", times=None)
        for partition in range(2):
            await producer.send("orders", b"v", partition=partition)
        flushes = [asyncio.create_task(producer.flush()) for _ in range(3)]
        await turns(1)
        flushes[1].cancel()
        assert [flushed.failed for flushed in await asyncio.gather(flushes[0], flushes[2])] == [
            2,
            2,
        ]
        assert seen == ["outside"] * 2
        assert flushes[1].cancelled()


@jumping
async def test_what_ends_a_program_reaches_the_loop_and_the_next_batch_is_handed_out() -> None:
    """As from any callback of the loop."""

    class Ending(BaseException):
        """As SystemExit, which would end the test."""

    failed, reported = Failed(), list[Any]()

    def hook(error: DeliveryError, records: Sequence[FailedRecord]) -> None:
        failed(error, records)
        if len(failed.batches) == 1:
            raise Ending

    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: reported.append(type(context["exception"]))
    )
    async with running(on_failed=hook) as (cluster, producer):
        cluster.fail("Produce", "POLICY_VIOLATION", times=None)
        for number in range(2):
            await producer.send("orders", b"%d" % number, partition=number)
        await producer.flush()
        assert (len(failed.batches), reported) == (2, [Ending])


def test_a_failed_record_does_not_show_its_bytes() -> None:
    """`repr` shows no bytes of a record; the arguments of `send` are its first fields."""
    record = FailedRecord(
        "orders", b"canary", b"canary", 3, 7, (("name", b"canary"),), Persisted.MAYBE
    )
    assert repr(record) == "<FailedRecord for orders-3 of 7, persisted=maybe: 1 header>"
    assert record[:6] == ("orders", b"canary", b"canary", 3, 7, (("name", b"canary"),))


@jumping
async def test_what_it_raises_is_logged_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """Other batches are handed out, and the producer goes on. A kind of exception is logged once in ten seconds."""
    failed = Failed()

    def hook(error: DeliveryError, records: Sequence[FailedRecord]) -> None:
        failed(error, records)
        raise OSError(28, "no space left")

    async with running(on_failed=hook, linger_ms=0) as (cluster, producer):
        cluster.fail("Produce", "POLICY_VIOLATION", times=3)
        for number in range(3):
            await producer.send("orders", b"%d" % number, partition=0)
            await producer.flush()
        await turns(10)
        assert failed.values == [b"0", b"1", b"2"]
        (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert line.getMessage().startswith(
            "on_failed could not take 1 record of orders-0: OSError(28"
        )
        await producer.send_and_wait("orders", b"v", partition=0)


@jumping
async def test_a_coroutine_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """A lambda around a coroutine function is found when it is called."""

    async def later() -> None: ...

    async with running(on_failed=lambda _error, _records: later()) as (cluster, producer):
        cluster.fail("Produce", "POLICY_VIOLATION")
        await producer.send("orders", b"v")
        await producer.flush()
        await turns(5)
    assert "on_failed gave a coroutine: it is a plain function" in caplog.text


@jumping
async def test_the_bytes_stay_counted_until_the_call() -> None:
    """A send waits for the memory of batches that failed, until `on_failed` has had them."""
    failed = Failed()
    free: list[int] = []

    async with running(
        on_failed=lambda *told: (failed(*told), free.append(producer.buffer_available)),
        buffer_memory=40_000,
    ) as (
        cluster,
        producer,
    ):
        await producer.partitions_for("orders")
        cluster.fail("Produce", "POLICY_VIOLATION", times=None)
        tasks = [
            asyncio.ensure_future(producer.send("orders", bytes(9_000), partition=at % 2))
            for at in range(20)
        ]
        await asyncio.wait(tasks)
        await producer.flush()
        await turns(50)
        assert len(failed.values) == 20
        assert max(free) <= 40_000 - 9_000
        assert producer.buffer_available == 40_000


@jumping
async def test_a_send_that_waits_is_served_after_the_call() -> None:
    """Nothing else happens then that would serve it."""
    failed = Failed()
    async with running(
        on_failed=failed, buffer_memory=24_000, max_block_ms=10_000, batch_max_size=16_384
    ) as (cluster, producer):
        await producer.partitions_for("orders")
        cluster.fail("Produce", "POLICY_VIOLATION")
        await producer.send("orders", bytes(14_000), partition=0)
        began = asyncio.get_running_loop().time()
        await producer.send_and_wait("orders", bytes(14_000), partition=1)
        assert len(failed.values) == 1
        assert asyncio.get_running_loop().time() == began


@jumping
async def test_records_that_were_never_queued_are_not_handed_out() -> None:
    """Their caller has them: `send` raised."""
    failed = Failed()
    async with running(
        on_failed=failed, max_block_ms=1_000, max_request_size=1_000, batch_size=500
    ) as (_, producer):
        with pytest.raises(RecordTooLarge):
            await producer.send("orders", bytes(2_000))
        with pytest.raises(Exception, match="partition 9"):
            await producer.send("orders", b"v", partition=9)
    assert failed.batches == []


@jumping
async def test_records_of_an_aborted_transaction() -> None:
    """A record that failed by itself is handed out. Records that are dropped with their transaction are not: its code has them."""
    failed = Failed()
    async with running(on_failed=failed, transactional_id="t", linger_ms=100) as (
        cluster,
        producer,
    ):
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send("orders", b"dropped", partition=0)
                raise ZeroDivisionError
        await turns(5)
        assert failed.batches == []
        cluster.fail("Produce", "POLICY_VIOLATION")
        with pytest.raises(TransactionError):
            async with producer.transaction():
                await producer.send("orders", b"refused", partition=0)
                await producer.flush()
        await turns(5)
        assert failed.values == [b"refused"]


@jumping
async def test_a_producer_that_is_dropped_hands_out() -> None:
    """Without `stop`, the loop hands out what was not acknowledged."""
    failed = Failed()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        producer: Any = Producer(**cluster.client_options, on_failed=failed)
        await producer.start()
        await producer.partitions_for("orders")
        hang = cluster.hang("Produce")
        await producer.send("orders", b"v")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del producer
            gc.collect()
        await asyncio.sleep(2)
        assert failed.values == [b"v"]
        hang.release()


def _in_child(look: Callable[[], None]) -> int:
    """Run `look` in a forked child. Returns its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        look()
        os._exit(0)
    except BaseException:
        os.kill(os.getpid(), signal.SIGKILL)
    return -1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@jumping
async def test_a_forked_child_hands_out_nothing() -> None:
    """What failed in the parent is handed out by the parent alone."""
    failed = Failed()
    async with running(on_failed=failed) as (cluster, producer):
        cluster.fail("Produce", "POLICY_VIOLATION")
        await producer.send("orders", b"v")
        engine = producer._engine
        assert engine is not None
        batches = engine.parts.failed_batches
        assert batches is not None
        while batches.is_empty:
            await asyncio.sleep(0)

        def look() -> None:
            batches._hand_out()
            assert failed.batches == []

        assert _in_child(look) == 0
        await turns(3)
        assert failed.values == [b"v"]
