"""Holds rows about sequence numbers and transactions: mixed outcomes, cancellation at each await, kills."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pathlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer import Producer
from aioproducer.errors import TransactionMisuse
from aioproducer.testing import FakeCluster

from .coded import row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

_ROOT = pathlib.Path(__file__).parents[3]


def _numbered(number: int) -> bytes:
    return b"%d" % number + b"." * 60


def _logged(cluster: FakeCluster) -> list[int]:
    return [int(value.split(b".")[0]) for value in cluster.values("orders", 0) if value is not None]


def _visible(cluster: FakeCluster) -> list[bytes | None]:
    return cluster.values("orders", isolation="read_committed")


# --- 57, 61


def _script(cluster: FakeCluster, outcomes: Iterable[str]) -> None:
    for outcome in outcomes:
        if outcome in {"before", "after"}:
            cluster.fail("Produce", disconnect=outcome)  # type: ignore[arg-type]  # one of the two
        elif outcome:
            cluster.fail("Produce", outcome)
        else:
            cluster.segment("Produce", 1 << 20, times=1)  # no fault: a piece that is larger than the answer


@row(57, "five in flight, the first refused, the others refused or not", "the log has all in call order, each once", "every mixture")
async def every_mixture() -> None:
    refusals = ("NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT", "after")
    mixtures = itertools.product(refusals, *[("", *refusals)] * 4)
    async with FakeCluster(memory=True) as cluster:
        for outcomes in mixtures:
            cluster.create_topic("orders")
            async with Producer(**cluster.client_options, batch_size=100, batch_max_size=1, retry_backoff_ms=20) as producer:
                await producer.send_and_wait("orders", _numbered(0), partition=0)
                cluster.delay("Produce", 0.01)
                _script(cluster, outcomes)
                sent = [await producer.send("orders", _numbered(number), partition=0) for number in range(1, 7)]
                told = await asyncio.gather(*sent)
            assert _logged(cluster) == list(range(7)), outcomes
            assert [one.offset for one in told] == list(range(1, 7)), outcomes
            assert {batch.producer_epoch for batch in cluster.log("orders", 0).batches()} == {0}, outcomes
            cluster.faults.clear()
            cluster.delete_topic("orders")


@row(61, "numbers come to their end", "after 2147483647 comes 0, whatever is sent again meanwhile", "sequence numbers")
async def numbers_wrap() -> None:
    last = 2**31 - 1
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options, batch_size=100, batch_max_size=1) as producer:
            await producer.send_and_wait("orders", _numbered(0), partition=0)
            engine: Any = producer._engine
            numbers = engine.parts.partition_queues.routings["orders"].queues[0].numbers
            first = cluster.log("orders", 0).batches()[0]
            cluster.log("orders", 0).producers.set(first.producer_id, first.producer_epoch, last - 3)
            numbers.next, numbers.acked = last - 2, last - 3
            cluster.delay("Produce", 0.01)
            _script(cluster, ("after", "NOT_ENOUGH_REPLICAS", "", "REQUEST_TIMED_OUT", "", "after"))
            await asyncio.gather(*[await producer.send("orders", _numbered(number), partition=0) for number in range(1, 10)])
        assert _logged(cluster) == list(range(10))
        batches = cluster.log("orders", 0).batches()[1:]
        assert [batch.base_sequence for batch in batches] == [*range(last - 2, last + 1), *range(6)]
        assert {batch.producer_epoch for batch in batches} == {first.producer_epoch}


# --- 74

_CANCELLED = "begin, commit or abort is cancelled, or the body of `async with` ends badly"


@contextlib.asynccontextmanager
async def _transactional(version: int) -> AsyncIterator[tuple[FakeCluster, Producer[Any, Any]]]:
    async with FakeCluster(memory=True, transaction_version=version) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options, transactional_id="tx") as producer:
            yield cluster, producer
        assert producer.buffer_available == producer.config.buffer_memory


async def _was_cancelled(turns: int, call: Awaitable[Any]) -> bool:
    """Cancel a call after `turns` event-loop iterations. Returns whether that ended it."""
    task = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


async def _cancel_everywhere(method: str, ends: Callable[[Producer[Any, Any]], Awaitable[Any]]) -> None:
    """Cancel the call after each number of event-loop iterations. Another end of the transaction must work, and so must the next one."""
    for version in (1, 2):
        turns, cancelled = 0, True
        while cancelled:
            async with _transactional(version) as (cluster, producer):
                if method != "begin":
                    await producer.begin_transaction()
                    await producer.send("orders", b"1")
                cancelled = await _was_cancelled(turns, getattr(producer, f"{method}_transaction")())
                with contextlib.suppress(TransactionMisuse):  # no transaction is open any more, or its commit is in flight
                    await ends(producer)
                with contextlib.suppress(TransactionMisuse):
                    await producer.commit_transaction()
                async with producer.transaction():
                    await producer.send("orders", b"2")
                assert _visible(cluster) in ([b"2"], [b"1", b"2"]), turns
                if method == "abort":
                    assert _visible(cluster) == [b"2"], turns
            turns += 1
        assert turns > (1 if method != "begin" else 0)  # eager tasks need fewer of them


@row(74, _CANCELLED, "the producer goes on: an abort or a commit ends it, the next is well", "begin, at any await")
async def begin_is_cancelled() -> None:
    await _cancel_everywhere("begin", lambda producer: producer.abort_transaction())


@row(74, _CANCELLED, "the producer goes on: an abort or a commit ends it, the next is well", "commit, at any await")
async def commit_is_cancelled() -> None:
    await _cancel_everywhere("commit", lambda producer: producer.abort_transaction())


@row(74, _CANCELLED, "the producer goes on: an abort or a commit ends it, the next is well", "abort, at any await")
async def abort_is_cancelled() -> None:
    await _cancel_everywhere("abort", lambda producer: producer.abort_transaction())


@row(74, _CANCELLED, "aborted, or committed whole; the cancellation is kept", "`async with`, at any await")
async def the_body_is_cancelled_anywhere() -> None:
    async def transact(producer: Producer[Any, Any]) -> None:
        async with producer.transaction():
            for value in (b"1", b"2", b"3"):
                await producer.send_and_wait("orders", value)

    for version in (1, 2):
        turns, cancelled, whole = 0, True, 0
        while cancelled:
            async with _transactional(version) as (cluster, producer):
                cancelled = await _was_cancelled(turns, transact(producer))
                seen = _visible(cluster)
                assert seen in ([], [b"1", b"2", b"3"]), turns
                whole += bool(seen)
                async with producer.transaction():
                    await producer.send("orders", b"4")
                assert _visible(cluster) == [*seen, b"4"], turns
            turns += 1
        assert turns - whole > 10


def _ends_badly(body: Callable[[], Awaitable[None]], kind: type[BaseException]) -> None:
    """The records of the transaction are not visible, the exception is the body's own, and the next transaction works."""

    async def main() -> None:
        async with FakeCluster() as cluster:
            cluster.create_topic("orders")
            async with asyncio.timeout(30), Producer(**cluster.client_options, transactional_id="tx") as producer:
                with pytest.raises(kind, match=r"^mine$|^$"):
                    async with producer.transaction():
                        await producer.send_and_wait("orders", b"1")
                        await body()
                async with producer.transaction():
                    await producer.send_and_wait("orders", b"2")
            assert cluster.values("orders") == [b"1", b"2"]
            assert _visible(cluster) == [b"2"]

    asyncio.run(main())


@row(74, _CANCELLED, "aborted; the exception is kept", "the body raises")
def the_body_raises() -> None:
    async def body() -> None:
        raise LookupError("mine")

    _ends_badly(body, LookupError)


@row(74, _CANCELLED, "aborted; the cancellation is kept", "the body is cancelled")
def the_body_is_cancelled() -> None:
    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(60)
        finally:
            task.uncancel()

    _ends_badly(body, asyncio.CancelledError)


# --- 76


async def _killed(version: int) -> None:
    async with FakeCluster(transaction_version=version) as cluster:
        cluster.create_topic("orders")
        for first, end in ((0, "killed"), (5, "commit")):
            command = [sys.executable, "-m", "tests.tools.faults.programs.transacting", cluster.bootstrap_servers, str(first), end]
            process = await asyncio.create_subprocess_exec(*command, cwd=_ROOT, stdout=subprocess.PIPE)
            assert process.stdout is not None
            try:
                async with asyncio.timeout(40):
                    told = (await process.stdout.readline()).decode().strip()
                    assert told == ("sent" if end == "killed" else "committed"), told
            finally:
                with contextlib.suppress(ProcessLookupError):  # uvloop raises it for a process that has ended
                    process.kill()
                await process.communicate()
        assert cluster.values("orders") == [b"%d" % number for number in range(10)]
        assert _visible(cluster) == [b"%d" % number for number in range(5, 10)]


_KILLED = "the process is killed within a transaction, and started again"


@row(76, _KILLED, "the old transaction is aborted, the new one is well", "version 1")
def killed_in_version_1() -> None:
    asyncio.run(_killed(1))


@row(76, _KILLED, "the old transaction is aborted, the new one is well", "version 2")
def killed_in_version_2() -> None:
    asyncio.run(_killed(2))
