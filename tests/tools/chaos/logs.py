"""Reads a topic: with confluent-kafka's consumer (read_committed), and with Kafka's own tool on disk.

These are blocking functions; call them from a thread.
"""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from aioproducer.testing import jars

from .judge import Read
from .sequences import batches, broken_rows

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable

__all__ = ["broken_sequences", "read_topic"]

_SILENCE: Final = 60.0  # seconds without a record after which a reader gives up
_TOGETHER: Final = 10_000


def read_topic(
    bootstrap_servers: str, topic: str, partitions: int, *, isolation: str = "read_committed"
) -> dict[int, list[Read]]:
    """Return every record that a reader gets, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "chaos-reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    reads: dict[int, list[Read]] = {partition: [] for partition in range(partitions)}
    waiting = set(reads)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in reads])
    last = time.monotonic()
    try:
        while waiting:
            for message in consumer.consume(_TOGETHER, timeout=0.5):
                error, partition, offset = (
                    message.error(),
                    message.partition() or 0,
                    message.offset() or 0,
                )
                if error is None:
                    attempt: Any = dict(message.headers() or ()).get("attempt") or b""
                    reads[partition].append(
                        Read(offset, int(message.value() or b""), attempt.decode())
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(partition)
                elif error.fatal():  # the client retries after other errors by itself
                    raise RuntimeError(str(error))
                last = time.monotonic()
            if time.monotonic() - last > _SILENCE:
                raise TimeoutError(f"{topic}: partitions {sorted(waiting)} do not end")
    finally:
        consumer.close()
    return reads


def broken_sequences(folders: Iterable[pathlib.Path]) -> tuple[int, list[str]]:
    """Return the number of batches in partitions' folders on brokers' disks, and the errors of their sequences."""
    segments = [str(path) for folder in folders for path in sorted(folder.glob("*.log"))]
    command = [
        *(
            str(jars.java()),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{jars.kafka()}/*",
        ),
        *("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(segments)),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        found = batches(process.stdout)
    count = sum(map(len, found.values()))
    if process.returncode or len(found) != len({*map(_partition, segments)}):
        raise RuntimeError(
            f"DumpLogSegments ended with {process.returncode}, and told of {len(found)} partitions, {count} batches"
        )
    return count, [
        f"{partition}: {what}" for partition, rows in found.items() for what in broken_rows(rows)
    ]


def _partition(segment: str) -> str:
    return segment.split("/")[-2]
