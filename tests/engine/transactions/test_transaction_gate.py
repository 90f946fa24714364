"""Tests of `aioproducer.engine.transactions.transaction_gate`: what happens to records, and what it makes of the transaction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.core.sequence_numbers import ProducerIdAndEpoch
from aioproducer.core.transactions.transaction import State
from aioproducer.engine.chosen_build import FastPath
from aioproducer.engine.transactions.transaction_gate import TransactionGate
from aioproducer.errors import (
    DeliveryError,
    Persisted,
    RecordTooLarge,
    TransactionAbortable,
    UsageError,
    broker_error,
)
from tests.engine.append.parts import Clock, Parts


def made(level: int = 2) -> TransactionGate:
    """Return the gate of a producer that has no producer id yet."""
    loop: Any = Clock()
    cluster: Any = SimpleNamespace(feature=lambda _name: level)
    path = FastPath(lambda: 0, None)  # type: ignore[arg-type]
    return TransactionGate(
        ProducerConfig(bootstrap_servers="here:1", transactional_id="mine"), loop, path, cluster
    )


def begun(level: int = 2) -> tuple[Parts, Any, Any]:
    """Return the parts that append, their gate, in a transaction, and the fast path, which is open."""
    gate = made(level)
    parts = Parts(1, on_open=gate.on_open)
    gate.transaction.granted(ProducerIdAndEpoch(7, 0), 6)
    gate.transaction.begin(0.0)
    gate.wake.clear()
    gate._fast_path.fast = {"orders": parts.routing}
    return parts, gate, gate._fast_path


@pytest.mark.parametrize(("level", "newest_produce"), [(1, 11), (2, 0x7FFF)])
def test_a_partition_is_held_until_the_transaction_has_it(level: int, newest_produce: int) -> None:
    """Its first batch asks for that; in version 2 the Produce request adds it, and needs a version that does so."""
    parts, gate, _ = begun(level)
    assert parts.place() is not None
    queue = parts.routing.queues[0]
    assert (queue.is_held, gate.wake.is_set(), gate.newest_produce) == (
        level == 1,
        level == 1,
        newest_produce,
    )
    assert gate.added() == []
    gate.transaction.pending.clear()
    assert gate.added() == ([queue] if level == 1 else [])
    assert gate.added() == [], "each partition once"


@pytest.mark.parametrize(
    ("error", "fails"),
    [
        (RecordTooLarge("it is"), True),
        (broker_error("TOPIC_AUTHORIZATION_FAILED"), True),
        (UsageError("no topic"), False),
        (None, False),
    ],
)
def test_a_refused_record_that_is_missing_fails_its_transaction(error: Any, fails: bool) -> None:
    """A mistake of the caller's does not: it was told."""
    _, gate, path = begun()
    changed = gate.changed
    gate.on_refused("orders", error)
    assert gate.transaction.state is (State.ABORTABLE_ERROR if fails else State.IN_TRANSACTION)
    assert (gate.is_open, path.fast == {}, gate.wake.is_set(), changed.is_set()) == (
        not fails,
        fails,
        fails,
        fails,
    )
    assert gate.changed.is_set() is False, "the next wait is for the next change"


def test_a_failed_batch_fails_its_transaction() -> None:
    """Later sends raise its error, and the fast path is closed at once."""
    parts, gate, path = begun()
    gate.check_send()
    parts.place()
    (batch,) = parts.sent()
    gate.on_failure(
        batch,
        DeliveryError("it broke", topic="orders", partition=0, persisted=Persisted.NO, attempts=1),
    )
    assert (gate.is_open, path.fast) == (False, {})
    with pytest.raises(TransactionAbortable, match="it broke"):
        gate.check_send()
