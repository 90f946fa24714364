"""Holds helpers of the core tests: an open batch without an encoder, and topics as metadata describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from aioproducer.core.batch_splitting import Piece
from aioproducer.core.drain_policy import DrainPolicy, Linger
from aioproducer.core.metadata.cluster_metadata import NO_ID, PartitionView, TopicView
from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues
from aioproducer.core.producer_batch import NEXT, Event
from aioproducer.core.retries import ProduceAttempts
from aioproducer.core.topic_updates import installing, retiring

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.core.topic_routing import TopicRouting

__all__ = [
    "FULL",
    "OpenBatch",
    "answered",
    "install",
    "more",
    "partition_queues",
    "put",
    "sent",
    "split",
    "topic",
    "whole",
]

RECORD_SIZE = 10
T = TypeVar("T")


def whole(steps: Generator[None, None, T]) -> T:
    """Run all steps at once and return their value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def install(partition_queues: PartitionQueues, view: TopicView) -> TopicRouting:
    """Apply the metadata of a topic in one step."""
    routing = whole(installing(partition_queues, view))
    whole(retiring(partition_queues, view))
    return routing


class Full:
    """No open batch."""

    def append(self, *_record: Any) -> int:
        return -1


FULL = Full()


class OpenBatch:
    """Takes numbers; its payload names them, ten bytes each."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.is_closed = False

    @property
    def count(self) -> int:
        return len(self.records)

    def put(self, record: int) -> None:
        assert not self.is_closed, "a record was put into a closed batch"
        self.records.append(record)

    def close(self) -> tuple[bytes, int, int]:
        assert not self.is_closed, "a batch was closed twice"
        self.is_closed = True
        return (
            b"".join(b"%10d" % record for record in self.records),
            min(self.records),
            max(self.records),
        )


def topic(*leaders: int, name: str = "t", topic_id: bytes = NO_ID, epoch: int = 0) -> TopicView:
    return TopicView(name, topic_id, tuple(PartitionView(leader, epoch) for leader in leaders))


def partition_queues(
    *leaders: int, linger: float = 0.0, by_load: bool = False, lifetime: float = 1000.0
) -> tuple[PartitionQueues, list[PartitionQueue]]:
    """Return partition queues with the topic t, and the queues of its partitions."""
    policy = DrainPolicy(Linger.LOAD if by_load else Linger.TIME if linger else Linger.NONE)
    made = PartitionQueues(
        FULL, linger=linger, policy=policy, lifetime=lifetime, on_close=lambda batch: None
    )
    return made, list(install(made, topic(*leaders)).queues)


def put(
    rules: PartitionQueues, queue: PartitionQueue, record: int = 0, *, now: float = 0.0
) -> ProducerBatch:
    """Append a record as the engine does; the batch that has it."""
    if queue.current is None:
        rules.open(queue, OpenBatch(), None, now=now)
    queue.open.put(record)
    assert queue.current is not None
    return queue.current


def more(
    rules: PartitionQueues, queue: PartitionQueue, count: int = 1, *, size: int = 1
) -> list[ProducerBatch]:
    """Append so many batches, each of `size` records, and close them. Return them."""
    batches = []
    for _ in range(count):
        for record in range(size):
            batch = put(rules, queue, record)
        batches.append(batch)
        rules.close(queue)
    return batches


def sent(
    rules: PartitionQueues,
    node_id: int,
    connection: object = "connection",
    limit: int = 1000,
    **options: Any,
) -> list[ProducerBatch]:
    """Drain and send."""
    batches = rules.drain(node_id, connection, limit, **options)
    for batch in batches:
        batch.state = NEXT[batch.state, Event.SEND]
    return batches


def answered(
    rules: PartitionQueues, batch: ProducerBatch, *, retry_at: float | None = None
) -> None:
    """A batch was acknowledged, or is to be sent again."""
    ProduceAttempts(rules).remove_in_flight(batch)
    if retry_at is None:
        ProduceAttempts(rules).complete(batch)
    else:
        ProduceAttempts(rules).requeue(batch, retry_at)


def split(rules: PartitionQueues, batch: ProducerBatch) -> list[ProducerBatch]:
    """A batch was answered: it is too large. It becomes two."""
    ProduceAttempts(rules).remove_in_flight(batch)
    assert isinstance(batch.payload, bytes)
    half = batch.count // 2
    halves = [
        (range(half), batch.payload[: half * RECORD_SIZE]),
        (range(half, batch.count), batch.payload[half * RECORD_SIZE :]),
    ]
    return ProduceAttempts(rules).split(
        batch, [(Piece(indexes, payload, 0, 0), None) for indexes, payload in halves]
    )
