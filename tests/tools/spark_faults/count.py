"""Counts a topic's rows by librdkafka's consumer, with `read_committed` and without."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.tools.spark_faults.poison import number_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Counted", "count"]

_AT_ONCE: Final = 10_000
_POLL_SECONDS: Final = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class Counted:
    """Holds the rows of a topic.

    Attributes:
        records: that a committed reader gets.
        lost: numbers that it does not get.
        doubled: records beyond the first of each number.
        strange: records whose number was never written.
        aborted: records that only a reader without read_committed gets.
        is_stuck: an open transaction kept the committed reader from the topic's end until the time was over.
    """

    records: int
    lost: int
    doubled: int
    strange: int
    aborted: int
    is_stuck: bool

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.doubled or self.strange or self.is_stuck)


def count(bootstrap_servers: str, topic: str, rows: int, *, seconds: float = 30.0) -> Counted:
    """Read a topic to its end, twice. Its values begin with the numbers from 0 to `rows`, each once if all is right.

    Args:
        bootstrap_servers: of Kafka.
        topic: the topic.
        rows: how many there should be.
        seconds: each reading may take; an open transaction ends it.
    """
    ends = _ends(bootstrap_servers, topic, seconds)
    everything, _ = _numbers(bootstrap_servers, ends, "read_uncommitted", seconds)
    committed, is_whole = _numbers(bootstrap_servers, ends, "read_committed", seconds)
    records = committed.total()
    strange = sum(times for number, times in committed.items() if not 0 <= number < rows)
    found = sum(0 <= number < rows for number in committed)
    return Counted(
        records,
        rows - found,
        records - len(committed),
        strange,
        everything.total() - records,
        not is_whole,
    )


def _ends(bootstrap_servers: str, topic: str, seconds: float) -> dict[TopicPartition, int]:
    """Return the end of each partition's log. A reader with read_committed would be told the last stable offset."""
    with _consumer(bootstrap_servers, "read_uncommitted") as consumer:
        partitions = [
            TopicPartition(topic, number)
            for number in consumer.list_topics(topic, timeout=seconds).topics[topic].partitions
        ]
        return {
            partition: consumer.get_watermark_offsets(partition, timeout=seconds)[1]
            for partition in partitions
        }


def _numbers(
    bootstrap_servers: str, ends: dict[TopicPartition, int], isolation: str, seconds: float
) -> tuple[Counter[int], bool]:
    """Return how often each number is read, and whether all partitions were read to their ends."""
    seen: Counter[int] = Counter()
    until = time.monotonic() + seconds
    behind = {partition.partition: end for partition, end in ends.items() if end}
    with _consumer(bootstrap_servers, isolation) as consumer:
        consumer.assign(
            [
                TopicPartition(partition.topic, partition.partition, OFFSET_BEGINNING)
                for partition in ends
            ]
        )
        while behind and time.monotonic() < until:
            for message in consumer.consume(_AT_ONCE, _POLL_SECONDS):
                error = message.error()
                if error is None:
                    seen[number_of(message.value())] += 1
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise RuntimeError(str(error))
                # with read_committed this is the end of what is stable, which is not the end of the log while a transaction is open
                elif message.offset() >= behind.get(message.partition(), 0):
                    behind.pop(message.partition(), None)
    return seen, not behind


@contextlib.contextmanager
def _consumer(bootstrap_servers: str, isolation: str) -> Iterator[Consumer]:
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "spark_faults",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 50,
    }
    consumer = Consumer(settings)
    try:
        yield consumer
    finally:
        consumer.close()
