"""Transactions as a program sees them: on a real Kafka, and on the fake cluster."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from aioproducer import (
    BrokerError,
    CommitFailed,
    DeliveryError,
    DeliveryTimeout,
    Persisted,
    ProducerFenced,
    RecordTooLarge,
    TransactionAbortable,
    TransactionAborted,
    TransactionMisuse,
    TransactionTimeout,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Side

    from aioproducer import PreparedTransaction

pytestmark = pytest.mark.asyncio


def transactional(side: Side, *, name: str = "", **options: Any) -> Any:
    return side.producer(transactional_id=name or f"contract-{uuid.uuid4().hex[:8]}", **options)


async def test_committed_records_are_visible(side: Side) -> None:
    """All records of all ways to send are visible after the commit, and none before it."""
    topic = await side.topic()
    async with transactional(side) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"0", partition=0)
        await producer.send_many(topic, [b"many"] * 3)
        assert await side.visible(topic, is_open=True) == {0: [], 1: [], 2: []}
        await producer.commit_transaction()
        found = await side.visible(topic)
    assert sorted(value for values in found.values() for value in values if value) == [
        b"0",
        b"many",
        b"many",
        b"many",
    ]
    assert found[0][0] == b"0"


async def test_aborted_records_are_not(side: Side) -> None:
    """Aborted records are not visible, nor those of a body that raised. Later records are."""
    topic = await side.topic()
    async with transactional(side) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted", partition=0)
        await producer.abort_transaction()
        with pytest.raises(LookupError, match="mine"):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"raised", partition=0)
                raise LookupError("mine")
        async with producer.transaction():
            await producer.send(topic, b"kept", partition=0)
        assert await side.visible(topic) == {0: [b"kept"], 1: [], 2: []}


async def test_a_function_runs_again_after_an_abort(side: Side) -> None:
    """`run_in_transaction` returns its result. Records of the attempts that were aborted are not visible."""
    topic = await side.topic()
    runs: list[bytes] = []
    async with transactional(side, retry_backoff_ms=1) as producer:

        async def write() -> int:
            runs.append(b"%d" % len(runs))
            await producer.send_and_wait(topic, runs[-1], partition=0)
            if len(runs) < 3:
                raise TransactionAbortable("of this test")
            return 7

        assert await producer.run_in_transaction(write) == 7
        assert runs == [b"0", b"1", b"2"]
        assert (await side.visible(topic))[0] == [b"2"]


@pytest.mark.parametrize(
    ("error", "runs"),
    [
        (LookupError("mine"), 1),
        (TransactionAbortable("of this test"), 2),
        (CommitFailed("of this test"), 1),
        (ProducerFenced("of this test"), 1),
        (TransactionTimeout("of this test"), 1),
        (DeliveryTimeout("of this test", "t", 0, Persisted.MAYBE, 1), 2),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_function_runs_no_more_often_than_it_may(
    side: Side, error: Exception, runs: int
) -> None:
    """The last error is raised as it was, and the transaction was aborted."""
    topic = await side.topic()
    ran = 0
    async with transactional(side, retry_backoff_ms=1) as producer:

        async def write() -> None:
            nonlocal ran
            ran += 1
            await producer.send_and_wait(topic, b"aborted", partition=0)
            raise error

        with pytest.raises(type(error), match=r"mine|of this test"):
            await producer.run_in_transaction(write, attempts=2)
        assert ran == runs
        async with producer.transaction():
            await producer.send(topic, b"kept", partition=0)
        assert (await side.visible(topic))[0] == [b"kept"]
        for attempts in (0, -1, True, "2", None):
            with pytest.raises(UsageError, match=r"attempts=.*: it is a number from 1 on"):
                await producer.run_in_transaction(write, attempts)
        assert ran == runs


async def test_offsets_go_with_their_records(side: Side) -> None:
    """The offsets are committed or aborted with their records. The later of two offsets counts."""
    topic, group = await side.topic(), f"group-{uuid.uuid4().hex[:8]}"
    async with transactional(side) as producer:
        async with producer.transaction():
            await producer.send(topic, b"v", partition=0)
            await producer.send_offsets_to_transaction({(topic, 0): 1, (topic, 2): 3}, group)
            await producer.send_offsets_to_transaction({(topic, 0): 2}, group)
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({(topic, 0): 50}, group)
        await producer.abort_transaction()
        assert await side.committed(producer, group, topic) == {0: 2, 2: 3}


async def test_a_position_goes_with_its_records(side: Side) -> None:
    """The position is committed or aborted with the records, and is that of the latest commit."""
    topic, job = await side.topic(), f"job-{uuid.uuid4().hex[:8]}"
    async with transactional(side) as producer:
        assert await producer.committed_position(job, topic=topic) is None
        async with producer.transaction():
            await producer.send(topic, b"v", partition=0)
            await producer.send_position_to_transaction(job, 1, topic=topic)
            await producer.send_position_to_transaction(job, 2, "page 7", topic=topic)
        await producer.begin_transaction()
        await producer.send_position_to_transaction(job, 50, topic=topic)
        with pytest.raises(TransactionMisuse, match=r"committed_position\(\)"):
            await producer.committed_position(job, topic=topic)
        await producer.abort_transaction()
        assert await producer.committed_position(job, topic=topic) == (2, "page 7")


async def test_a_record_that_was_refused_spoils_it(side: Side) -> None:
    """TXN-08: after a refused record the commit raises with the record's error as its cause. The abort succeeds."""
    topic = await side.topic()
    async with transactional(side, max_request_size=1_000) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"lost", partition=0)
        with pytest.raises(RecordTooLarge):
            await producer.send(topic, b"x" * 2_000, partition=0)
        for call in (
            producer.commit_transaction,
            lambda: producer.send(topic, b"v"),
            lambda: producer.send_offsets_to_transaction({}, "g"),
        ):
            with pytest.raises(TransactionAbortable) as raised:
                await call()
            assert isinstance(raised.value.__cause__, RecordTooLarge)
        with pytest.raises(TransactionMisuse):
            await producer.begin_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"kept", partition=0)
        assert await side.visible(topic) == {0: [b"kept"], 1: [], 2: []}


MISUSES: dict[str, Callable[[Any, str], Any]] = {
    "send": lambda producer, topic: producer.send(topic, b"v"),
    "send_and_wait": lambda producer, topic: producer.send_and_wait(topic, b"v"),
    "send_nowait": lambda producer, topic: producer.send_nowait(topic, b"v"),
    "send_many": lambda producer, topic: producer.send_many(topic, [b"v"] * 100),
    "send_columns": lambda producer, topic: producer.send_columns(
        topic, values=pa.array([b"v"] * 100)
    ),
    "commit_transaction": lambda producer, _topic: producer.commit_transaction(),
    "abort_transaction": lambda producer, _topic: producer.abort_transaction(),
    "send_offsets_to_transaction": lambda producer, topic: producer.send_offsets_to_transaction(
        {(topic, 0): 1}, "g"
    ),
    "send_position_to_transaction": lambda producer, topic: producer.send_position_to_transaction(
        "job", 1, topic=topic
    ),
}


@pytest.mark.parametrize("misuse", MISUSES)
async def test_without_an_open_transaction(side: Side, misuse: str) -> None:
    """Each call raises an error that names the missing call, and sends nothing."""
    topic = await side.topic()
    async with transactional(side) as producer:
        with pytest.raises(
            TransactionMisuse, match=r"has no transaction open: call begin_transaction\(\)"
        ):
            await MISUSES[misuse](producer, topic)
        assert await side.visible(topic) == {0: [], 1: [], 2: []}


async def test_two_at_once(side: Side) -> None:
    """Only one transaction is open at a time, and an empty one is allowed."""
    async with transactional(side) as producer:
        async with producer.transaction():
            with pytest.raises(TransactionMisuse, match="has a transaction open"):
                await producer.begin_transaction()
        await producer.begin_transaction()
        await producer.abort_transaction()


async def test_a_producer_without_a_name(side: Side) -> None:
    """Each call raises an error that names the missing option."""
    async with side.producer() as producer:
        for call in (
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
        ):
            with pytest.raises(UsageError, match="give it transactional_id"):
                await call()
        with pytest.raises(UsageError, match="give it transactional_id"):
            producer.transaction()


@pytest.mark.parametrize("offsets", [5, {"orders": 1}, {("orders", -1): 1}, {("orders", 0): -1}])
async def test_offsets_that_are_none(side: Side, offsets: Any) -> None:
    """The call refuses the offsets at once, and the transaction can still commit."""
    async with transactional(side) as producer, producer.transaction():
        with pytest.raises(UsageError):
            await producer.send_offsets_to_transaction(offsets, "group")


async def test_stop_aborts_what_is_open(side: Side) -> None:
    """`stop` aborts the open transaction, and none of its records becomes visible."""
    topic = await side.topic()
    async with transactional(side) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open", partition=0)
    assert await side.visible(topic) == {0: [], 1: [], 2: []}


async def test_a_cancelled_body(side: Side) -> None:
    """The producer aborts the transaction, and the cancellation continues."""
    topic = await side.topic()
    async with transactional(side) as producer:
        entered = asyncio.Event()

        async def body() -> None:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"cancelled", partition=0)
                entered.set()
                await asyncio.sleep(1_000)

        task = asyncio.create_task(body())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction():
            await producer.send(topic, b"kept", partition=0)
        assert await side.visible(topic) == {0: [b"kept"], 1: [], 2: []}


async def test_a_delivery_of_an_aborted_transaction(side: Side) -> None:
    """The unsent record's delivery fails with TransactionAborted, also when it is awaited only after the abort."""
    topic = await side.topic()
    async with transactional(side, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        await producer.begin_transaction()
        delivery = await producer.send(topic, b"v", partition=0)
        await producer.abort_transaction()
        with pytest.raises(DeliveryError) as raised:
            await delivery
        assert isinstance(raised.value.__cause__, TransactionAborted)
        assert raised.value.persisted == "no"


async def test_a_prepared_transaction(side: Side) -> None:
    """It takes no more records, and its producer commits or aborts it. An empty one is not prepared."""
    topic = await side.topic()
    async with transactional(side) as producer:
        for value, is_commit in ((b"kept", True), (b"dropped", False)):
            await producer.begin_transaction()
            with pytest.raises(TransactionMisuse, match="no record or offset was sent"):
                await producer.prepare_transaction()
            await producer.send(topic, value, partition=0)
            prepared = await producer.prepare_transaction()
            assert prepared.transactional_id == producer.config.transactional_id
            assert await producer.prepare_transaction() == prepared
            for call in (lambda: producer.send(topic, b"v"), producer.begin_transaction):
                with pytest.raises(TransactionMisuse, match="has a prepared transaction"):
                    await call()
            await (producer.commit_transaction if is_commit else producer.abort_transaction)()
        with pytest.raises(TransactionMisuse, match="has no transaction open"):
            await producer.prepare_transaction()
        assert await side.visible(topic) == {0: [b"kept"], 1: [], 2: []}


async def test_another_transactional_id(side: Side) -> None:
    """What was prepared with the first one stays open."""
    topic = await side.topic()
    async with transactional(side) as producer:
        first = producer.config.transactional_id
        await producer.begin_transaction()
        await producer.send(topic, b"open", partition=0)
        with pytest.raises(
            TransactionMisuse,
            match=r"init_transactions\(\) has no place here: the producer has a transaction open",
        ):
            await producer.init_transactions("other")
        assert (await producer.prepare_transaction()).transactional_id == first
        for wrong in ("", 7):
            with pytest.raises(UsageError, match="transactional_id="):
                await producer.init_transactions(wrong)
        await producer.init_transactions(f"{first}-other")
        async with producer.transaction():
            await producer.send(topic, b"kept", partition=1)
        await producer.begin_transaction()
        await producer.send(topic, b"open", partition=2)
        assert (await producer.prepare_transaction()).transactional_id == f"{first}-other"
    assert await side.visible(topic, is_open=True) == {0: [], 1: [b"kept"], 2: []}


async def prepared_by(side: Side, topic: str, value: bytes, **options: Any) -> PreparedTransaction:
    """Return a transaction with a record and a position; its producer is gone."""
    async with transactional(side, **options) as producer:
        await producer.begin_transaction()
        await producer.send(topic, value, partition=0)
        await producer.send_position_to_transaction(
            producer.config.transactional_id, 7, topic=topic
        )
        prepared: PreparedTransaction = await producer.prepare_transaction()
    return prepared


async def test_a_resolver_ends_what_is_prepared(side: Side) -> None:
    """After the producers are gone; both ends may be said again."""
    topic = await side.topic()
    kept, dropped = (
        await prepared_by(side, topic, b"kept"),
        await prepared_by(side, topic, b"dropped"),
    )
    assert await side.visible(topic, is_open=True) == {0: [], 1: [], 2: []}
    async with side.resolver() as resolver:
        for _ in range(2):
            await resolver.commit(kept)
            await resolver.abort(dropped)
    assert await side.visible(topic) == {0: [b"kept"], 1: [], 2: []}


async def test_what_a_resolver_is_refused(side: Side) -> None:
    """The other end of what has ended, an older epoch, an id that no producer had; each by its name."""
    topic, name = await side.topic(), f"contract-{uuid.uuid4().hex[:8]}"

    async def refusal(call: Any) -> str:
        with pytest.raises(BrokerError) as raised:
            await call
        return raised.value.name

    async with side.resolver() as resolver:
        kept, dropped = (
            await prepared_by(side, topic, b"kept"),
            await prepared_by(side, topic, b"dropped"),
        )
        await resolver.commit(kept)
        assert await refusal(resolver.abort(kept)) == "INVALID_TXN_STATE"
        await resolver.abort(dropped)
        assert await refusal(resolver.commit(dropped)) == "INVALID_TXN_STATE"
        first, second = [
            await prepared_by(side, topic, value, name=name) for value in (b"first", b"second")
        ]
        assert await refusal(resolver.commit(first)) == "PRODUCER_FENCED"
        await resolver.commit(second)
        third = await prepared_by(side, topic, b"third", name=name)
        assert await refusal(resolver.commit(second)) == "PRODUCER_FENCED"
        await resolver.abort(third)
        assert (
            await refusal(resolver.commit(third._replace(transactional_id=uuid.uuid4().hex)))
            == "INVALID_PRODUCER_ID_MAPPING"
        )
        assert (
            await refusal(resolver.commit(third._replace(producer_id=third.producer_id + 1_000)))
            == "INVALID_PRODUCER_ID_MAPPING"
        )
    assert await side.visible(topic) == {0: [b"kept", b"second"], 1: [], 2: []}


async def test_a_position_that_is_prepared(side: Side) -> None:
    """A stable read waits until the transaction has ended; the other one shows what was committed before."""
    topic = await side.topic()
    async with side.resolver() as resolver:
        prepared = await prepared_by(side, topic, b"v")
        group = prepared.transactional_id
        assert await resolver.committed_offset(group, topic, stable=False) is None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await resolver.committed_offset(group, topic)
        reading = asyncio.create_task(resolver.committed_offset(group, topic))
        await resolver.commit(prepared)
        assert await reading == (7, "")
        await resolver.commit_offsets(group, {(topic, 0): 5, (topic, 2): (6, "note")})
        assert await resolver.committed_offset(group, topic) == (5, "")
        listed = await resolver.list_transactions(group)
        assert [(one.transactional_id, one.producer_id) for one in listed] == [prepared[:2]]
        (described,) = await resolver.describe_transactions([group, uuid.uuid4().hex])
        assert (described.transactional_id, described.producer_id, described.timeout_ms) == (
            *prepared[:2],
            60_000,
        )
        # real markers may still be on their way
        assert described.state in ("PrepareCommit", "CompleteCommit")
