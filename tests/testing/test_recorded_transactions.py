"""Tests of `aioproducer.testing.recorded_transactions`: what a test can see and script, beside what tests/contract shows of all sides."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer import (
    ConsumerGroupMetadata,
    DeliveryError,
    OffsetAndMetadata,
    ProducerFenced,
    TransactionAbortable,
    TransactionAborted,
    TransactionMisuse,
    TransactionTimeout,
)
from aioproducer.testing import RecordingProducer

pytestmark = pytest.mark.asyncio


def made(**options: Any) -> RecordingProducer[Any, Any]:
    return RecordingProducer.started(transactional_id="tx", **options)


async def test_what_is_open_is_uncommitted() -> None:
    """MCK-02: records and offsets move over at the commit, and count."""
    producer = made()
    async with producer.transaction():
        await producer.send("orders", b"v")
        await producer.send_offsets_to_transaction({("in", 0): 5}, "group")
        assert producer.in_transaction
        assert [sent.value for sent in producer.uncommitted] == [b"v"]
        assert len(producer.uncommitted_offsets) == 1
        assert producer.history == producer.offsets == []
    assert not producer.in_transaction
    assert producer.values("orders") == [b"v"]
    assert producer.offsets == [(ConsumerGroupMetadata("group"), {("in", 0): OffsetAndMetadata(5)})]
    assert producer.uncommitted == producer.uncommitted_offsets == []
    assert (producer.commits, producer.aborts) == (1, 0)


async def test_what_is_aborted_is_forgotten() -> None:
    producer = made(auto_complete=False)
    await producer.begin_transaction()
    delivery = await producer.send("orders", b"v")
    await producer.abort_transaction()
    assert producer.history == producer.uncommitted == []
    assert (producer.commits, producer.aborts, producer.pending) == (0, 1, 0)
    with pytest.raises(DeliveryError) as raised:
        await delivery
    assert isinstance(raised.value.__cause__, TransactionAborted)


@pytest.mark.parametrize("error", ["NOT_ENOUGH_REPLICAS", DeliveryError("mine", "orders", 0, "no", 1)])  # type: ignore[arg-type]
async def test_a_record_that_a_test_lets_fail(error: Any) -> None:
    """The commit is refused for it, an abort helps."""
    producer = made(auto_complete=False)
    await producer.begin_transaction()
    delivery = await producer.send("orders", b"v")
    producer.fail_next(error)
    with pytest.raises(TransactionAbortable, match=r"NOT_ENOUGH_REPLICAS|mine"):
        await producer.commit_transaction()
    with pytest.raises(DeliveryError):
        await delivery
    await producer.abort_transaction()
    async with producer.transaction():
        await producer.send("orders", b"w")
    assert producer.values("orders") == [b"w"]


async def test_within_the_context_it_is_aborted() -> None:
    producer = made(auto_complete=False)
    with pytest.raises(TransactionAbortable):
        async with producer.transaction():
            delivery = await producer.send("orders", b"v")
            producer.fail_next()
    with pytest.raises(DeliveryError):
        await delivery
    assert (producer.in_transaction, producer.aborts) == (False, 1)


async def test_a_fence() -> None:
    """Each call of the fenced producer raises, and no record of it is visible."""
    producer = made()
    with pytest.raises(ProducerFenced):
        async with producer.transaction():
            await producer.send("orders", b"v")
            producer.fence()
    for call in (
        producer.begin_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
        lambda: producer.send("orders", b"v"),
    ):
        with pytest.raises(ProducerFenced):
            await call()
    assert producer.history == []


ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "begin_transaction": ((), {}),
    "commit_transaction": ((), {}),
    "abort_transaction": ((), {}),
    "send_offsets_to_transaction": (({("in", 0): 1}, "g"), {}),
    "send_position_to_transaction": (("job", 1), {"topic": "orders"}),
    "committed_position": (("job",), {"topic": "orders"}),
}


@pytest.mark.parametrize("method", ARGUMENTS)
async def test_a_call_that_a_test_lets_raise(method: str) -> None:
    """Once; what it would have done is not done."""
    producer = made()
    if method not in {"begin_transaction", "committed_position"}:
        await producer.begin_transaction()
        await producer.send("orders", b"v")
    before = producer.in_transaction
    producer.raise_on(method, TransactionTimeout("late"), times=1)
    arguments, options = ARGUMENTS[method]
    with pytest.raises(TransactionTimeout):
        await getattr(producer, method)(*arguments, **options)
    assert producer.in_transaction is before
    await getattr(producer, method)(*arguments, **options)


async def test_a_body_that_ends_its_transaction_itself() -> None:
    """The producer keeps the body's own commit or abort."""
    producer = made()
    async with producer.transaction():
        await producer.send("orders", b"v")
        await producer.commit_transaction()
    async with producer.transaction():
        await producer.abort_transaction()
    assert (producer.commits, producer.aborts) == (1, 1)


async def test_an_exception_of_a_body_that_has_committed() -> None:
    """It is the body's own; what was committed is."""
    producer = made()
    with pytest.raises(LookupError):
        async with producer.transaction():
            await producer.send("orders", b"v")
            await producer.commit_transaction()
            raise LookupError
    assert producer.values("orders") == [b"v"]


async def test_without_a_name_nothing_is_held_back() -> None:
    """Records of a producer without transactions are in `history` at once."""
    producer = RecordingProducer.started()
    await producer.send("orders", b"v")
    assert producer.values("orders") == [b"v"]
    with pytest.raises(TransactionMisuse):
        await made().commit_transaction()
