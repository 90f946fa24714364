"""Counts a topic's rows by librdkafka's consumer, with `read_committed` and without."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.tools.spark_faults.poison import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    everything, _ = _numbers(bootstrap_servers, topic, "read_uncommitted", seconds)
    committed, is_whole = _numbers(bootstrap_servers, topic, "read_committed", seconds)
    records = committed.total()
    strange = sum(times for number, times in committed.items() if not 0 <= number < rows)
    found = sum(0 <= number < rows for number in committed)
    return Counted(records, rows - found, records - len(committed), strange, everything.total() - records, not is_whole)


def _numbers(bootstrap_servers: str, topic: str, isolation: str, seconds: float) -> tuple[Mapping[int, int] | Counter[int], bool]:
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "spark_faults",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 50,
    }
    seen: Counter[int] = Counter()
    until = time.monotonic() + seconds
    consumer = Consumer(settings)
    try:
        partitions = list(consumer.list_topics(topic, timeout=seconds).topics[topic].partitions)
        # an end of a partition is told at the last stable offset: only the end of the log is the end
        ends = {number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=seconds)[1] for number in partitions}
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        behind = {number for number, end in ends.items() if end}
        while behind and time.monotonic() < until:
            for message in consumer.consume(_AT_ONCE, _POLL_SECONDS):
                error = message.error()
                if error is None:
                    seen[number_of(message.value())] += 1
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise RuntimeError(str(error))
                elif message.offset() >= ends[message.partition()]:
                    behind.discard(message.partition())
    finally:
        consumer.close()
    return seen, not behind
