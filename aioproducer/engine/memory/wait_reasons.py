"""Holds the texts of the reasons why a record waits, in errors and in diagnostics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from aioproducer.engine.memory.pending_send import (
    FOR_FULL_PARTITION,
    FOR_LOOP_BUDGET,
    FOR_MEMORY,
    FOR_METADATA,
    FOR_OTHERS,
    FOR_PARTITION,
    FOR_SERIALIZER,
    FOR_TOPIC,
)
from aioproducer.errors import (
    BufferExhausted,
    MetadataTimeout,
    PartitionUnavailable,
    ProducerClosed,
    WouldBlock,
)
from aioproducer.model import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.core.partition_queues import PartitionQueue, TopicRouting
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.engine.memory.pending_send import PendingSend
    from aioproducer.errors import KafkaError

_ADVICE: Final = {
    FOR_TOPIC: ", which is asked for now: `await producer.partitions_for(...)` first",
    FOR_PARTITION: ", which is asked for now",
    FOR_SERIALIZER: ", which begins now: `await topic.ready()` first",
    FOR_MEMORY: ", which is used up: send less, or raise it",
    FOR_FULL_PARTITION: ", which holds as much of buffer_memory as is free",
    FOR_OTHERS: ", which wait for memory",
    FOR_LOOP_BUDGET: ": this one took its part. Let the loop go on, say by `await asyncio.sleep(0)`",
}
# Reasons that `told` returns at most.
_MOST: Final = 20


def would_block(record: PendingSend, reason: str) -> WouldBlock:
    """Return the error of a send that may not wait, but would have to."""
    name = (
        f" ({record.unencoded.encoding.name})"
        if record.unencoded is not None and reason == FOR_SERIALIZER
        else ""
    )
    return WouldBlock(
        f"a record for {record.topic!r} would wait for {reason}{name}{_ADVICE[reason]}. It was not queued."
    )


def late(
    record: PendingSend,
    pool: BufferPool,
    routing: TopicRouting | None,
    trouble: KafkaError | None,
    max_block_ms: float,
) -> KafkaError:
    """Return the error of a record that waited for `max_block_ms`.

    `trouble` is the error because of which its topic is not known yet, if there is one.
    """
    if record.behind is not None:
        return _late_share(record, record.behind, pool, max_block_ms)
    if record.reason not in FOR_METADATA:
        return _late_memory(record, pool, max_block_ms)
    if record.reason == FOR_SERIALIZER:
        return _late_serializer(record, max_block_ms)
    return _late_metadata(record, routing, trouble, max_block_ms)


def _late_serializer(record: PendingSend, max_block_ms: float) -> MetadataTimeout:
    """Return the error of a record that waited for a serializer to be prepared, or for a record before it that did."""
    what = (
        record.unencoded.encoding.name
        if record.unencoded is not None
        else "the serializer of a record before it"
    )
    end = "." if record.asks else ". The record was not queued."
    return MetadataTimeout(
        f"{what} was not prepared for {record.topic!r} within max_block_ms={max_block_ms:.15g}{end}"
    )


def _late_metadata(
    record: PendingSend,
    routing: TopicRouting | None,
    trouble: KafkaError | None,
    max_block_ms: float,
) -> MetadataTimeout:
    """Return the error of a record that waited for its topic or its partition to exist."""
    what = f"{record.topic!r} was not found in the cluster's metadata"
    if routing is not None:
        what = f"{record.topic!r} has {counted(len(routing.queues), 'partition')}, and partition {record.partition} did not come"
    why = f" ({trouble})" if trouble else ""
    end = "." if record.asks else ". The record was not queued."
    error = MetadataTimeout(f"{what} within max_block_ms={max_block_ms:.15g}{why}{end}")
    error.__cause__ = trouble
    return error


def _late_memory(record: PendingSend, pool: BufferPool, max_block_ms: float) -> BufferExhausted:
    """Return the error of a record that waited for memory."""
    return BufferExhausted(
        f"no memory for {record.size} bytes within max_block_ms={max_block_ms:.15g}: "
        f"{pool.available} of {pool.size} bytes of buffer_memory are free. "
        "The record was not queued. Brokers are slower than the sends: send less, or raise buffer_memory."
    )


def _late_share(
    record: PendingSend, queue: PartitionQueue, pool: BufferPool, max_block_ms: float
) -> KafkaError:
    """Return the error of a record that waited for its full partition."""
    if queue.circuit is not None:
        return unavailable(
            queue,
            f"There was no room for the record within max_block_ms={max_block_ms:.15g}; it was not queued.",
        )
    return BufferExhausted(
        f"no memory for {record.size} bytes within max_block_ms={max_block_ms:.15g}: {queue.topic}-{queue.partition} holds {queue.bytes} bytes of "
        f"buffer_memory, and {pool.available} of {pool.size} are free; with a circuit breaker no partition may hold more than is free. "
        "The record was not queued. Its broker is slower than the sends: send less, or raise buffer_memory."
    )


def unavailable(queue: PartitionQueue, end: str) -> PartitionUnavailable:
    """Return the error of a record for a muted partition. `end` is the last sentence of its text."""
    circuit = queue.circuit
    cause = circuit.cause if circuit is not None else None
    why = f" ({cause})" if cause is not None else ""
    error = PartitionUnavailable(
        f"the circuit breaker has muted the partition{why}. {end}", queue.topic, queue.partition
    )
    error.__cause__ = cause
    return error


def closed(record: PendingSend, event: str) -> ProducerClosed:
    """Return the error of a record that still waits when the producer ends, by this event."""
    end = "" if record.asks else ". The record was not queued, and is not sent."
    return ProducerClosed(f"{event} during a wait for {_in_full(record)}{end}")


def told(records: Iterable[PendingSend]) -> list[str]:
    """Return a text for each reason why records wait, with the number of sends."""
    reasons = Counter(map(_in_full, records))
    return [
        f"  {counted(number, 'send')} waiting for {reason}"
        for reason, number in reasons.most_common(_MOST)
    ]


def _in_full(record: PendingSend) -> str:
    """Return what a record waits for, with the name of the partition or topic that it needs."""
    if record.behind is not None and record.reason == FOR_FULL_PARTITION:
        return f"{record.reason} {record.behind.topic}-{record.behind.partition}"
    return f"{record.reason} {record.topic!r}" if record.reason in FOR_METADATA else record.reason
