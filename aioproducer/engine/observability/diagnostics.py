"""Makes texts about the history of a batch, and about the reason why a batch waits.

A batch keeps two entries for each attempt: its broker and its answer. Nothing is kept for a record. The texts are made only when
`explain` asks for them, or when a batch fails. They contain no keys, values or headers.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from aioproducer.core.drain_policy import Linger
from aioproducer.core.producer_batch import State
from aioproducer.core.sequence_numbers import NO_IDENTITY, WINDOW
from aioproducer.counting import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.net.broker_node import BrokerNode
    from aioproducer.net.cluster import Cluster

__all__ = ["backlog", "story", "waits_for"]

# Entries of a long history that the text contains, at its beginning and at its end.
_FIRST: Final = 6
_LAST: Final = 14
# Batches that the text of a backlog contains.
_MOST: Final = 20


def story(batch: ProducerBatch, now: float, lifetime: float, end: str) -> tuple[str, ...]:
    """Return the history of a batch, one text for each change of its state, with seconds since it was opened."""
    born = batch.expires_at - lifetime
    lines = [f"{batch.queue.topic}-{batch.queue.partition}, a batch of {counted(batch.count, 'record')}:", _line(0.0, "queued")]
    history = batch.history
    told = [_line(when - born, f"sent to {what}" if isinstance(what, str) else f"{type(what).__name__}: {what}") for when, what in history]
    if len(told) > _FIRST + _LAST:
        told[_FIRST:-_LAST] = [f"           ... {counted(len(told) - _FIRST - _LAST, 'line')} more ..."]
    return (*lines, *told, _line(now - born, end))


def _line(seconds: float, what: str) -> str:
    return f"  {seconds:+8.3f} s {what}"


def waits_for(batch: ProducerBatch, cluster: Cluster, partition_queues: PartitionQueues) -> str:
    """Return the reason why a batch that has not ended waits now."""
    queue = batch.queue
    numbers = queue.numbers
    node = cluster.node(queue.leader)
    where = node.where if node is not None else "its broker"
    trouble = partition_queues.idempotence.trouble
    why = f" ({trouble})" if trouble is not None else ""
    reasons = (
        (batch.on_wire, f"the answer of {where}"),
        (batch.state is State.ENCODING, "its compression"),
        (node is None, "a leader of its partition"),
        (queue.is_muted, "its partition's circuit breaker, which leaves it alone for a while"),
        (queue.retry_at, "the end of a pause after a failure (retry_backoff_ms)"),
        (queue.in_flight and queue.one_at_a_time, "the batch before it: after a failure one goes at a time"),
        (queue.is_held, f"its transaction's coordinator, which is to learn of the partition{why}"),
        (partition_queues.idempotence.granted == NO_IDENTITY, f"a producer id{why}"),
        (numbers is not None and (numbers.lost >= 0 or numbers.gap >= 0), "the batches before it: then its partition begins a new epoch"),
        (numbers is not None and len(numbers.outstanding) >= WINDOW, f"one of the {WINDOW} batches before it: brokers remember no more"),
        *(_of_node(node) if node is not None else ()),
        (
            batch.state is State.OPEN and partition_queues.policy.linger is Linger.LOAD and queue.in_flight,
            "more records, or the end of what its partition has in flight (linger_ms='auto')",
        ),
        (batch.state is State.OPEN, "more records (linger_ms), the next turn of the loop, or one of many requests on their way"),
    )
    full = f"an answer of {where}: it has as many requests as max_in_flight_requests_per_connection allows, or does not read"
    return next((reason for applies, reason in reasons if applies), full)


def _of_node(node: BrokerNode) -> tuple[tuple[bool, str], ...]:
    trouble = f" ({node.last_error})" if node.last_error is not None else ""
    return (
        (node.is_muted, f"{node.where}, which throttles"),
        (node.produce.is_renewing, f"{node.where}, which renews the session of the connection (KIP-368)"),
        (node.produce.connection is None, f"a connection to {node.where}{trouble}"),
    )


def backlog(partition_queues: PartitionQueues, cluster: Cluster, now: float, lifetime: float) -> Iterator[str]:
    """Yield one text for each of the oldest batches, with the reason why it waits."""
    remaining = iter(partition_queues.incomplete)
    for batch in islice(remaining, _MOST):
        age = now - (batch.expires_at - lifetime)
        records = counted(batch.open.count if batch.open is not None else batch.count, "record")
        sent = f", sent {counted(batch.attempts, 'time')}" if batch.attempts else ""
        error = f", last {type(batch.error).__name__}: {batch.error}" if batch.error is not None else ""
        waits = waits_for(batch, cluster, partition_queues)
        yield f"  {batch.queue.topic}-{batch.queue.partition}: {records}, {age:.3f} s old{sent}{error}; waits for {waits}"
    if more := sum(1 for _ in remaining):
        yield f"  and {counted(more, 'batch')} more"
