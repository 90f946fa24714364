"""The program that copies one topic to another in transactions, as Kafka's system tests have one (`TransactionalMessageCopier`).

    python -m tests.tools.chaos.copier --bootstrap-server S --source T --topic T2 --group G --transactional-id I [--options JSON]

What is read (confluent-kafka, read_committed), what is written and how far it was read are one transaction; some are aborted on purpose,
and their records copied again. Each copy has a header that names its transaction and its place there. It goes on until its stdin ends and nothing is left to copy.
Killed at any moment, the next one goes on where the last committed transaction ended; one that was fenced by it ends. Knows nothing of faults and judges.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import os
import random
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as TheirError

from aioproducer import ConsumerGroupMetadata, Producer
from aioproducer.errors import KafkaError, ProducerFenced, TransactionFatal, TransactionTimeout

from .lines import die_with_parent, telling, until_stdin_ends
from .verifiable import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from confluent_kafka import Message

    from .lines import Lines

_log = logging.getLogger("copier")
_ABORTED: Final = 0.1  # of all transactions
_MOST: Final = 500  # records of one
_WAIT: Final = 0.2
_LOOK_SECONDS: Final = 1.0  # between two looks for new partitions
_ASK_SECONDS: Final = 4.0
_RETRY_SECONDS: Final = 0.5


class Source:
    """Reads the topic from where the group's committed offsets are. Its methods wait; call them from a thread."""

    def __init__(self, bootstrap_servers: str, topic: str, group: str) -> None:
        self._topic = topic
        self._looked_at = 0.0
        self.positions: dict[int, int] = {}
        self._ended: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "isolation.level": "read_committed",  # and its offsets wait until no transaction holds them open
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "topic.metadata.refresh.interval.ms": 1_000,
                "socket.timeout.ms": 3_000,  # a paused broker is not waited for
            }
        )

    @property
    def is_at_its_end(self) -> bool:
        """Return whether the last read of every partition reached the partition's end."""
        return bool(self.positions) and self._ended >= set(self.positions)

    def begin(self) -> None:
        """Start at the offsets of the last committed transaction."""
        self.positions.clear()
        self.look()

    def look(self) -> None:
        """Assign new partitions to the consumer."""
        self._looked_at = time.monotonic()
        known = (
            self._consumer.list_topics(self._topic, timeout=_ASK_SECONDS)
            .topics[self._topic]
            .partitions
        )
        new = [
            TopicPartition(self._topic, number) for number in known if number not in self.positions
        ]
        if new:
            committed = self._consumer.committed(new, timeout=_ASK_SECONDS)
            self.positions |= {one.partition: max(one.offset, 0) for one in committed}
            self.rewind()

    def rewind(self) -> None:
        """Seek back to `positions`, those of the last committed transaction."""
        self._ended.clear()
        self._consumer.assign(
            [
                TopicPartition(self._topic, number, offset)
                for number, offset in self.positions.items()
            ]
        )

    def read(self) -> list[Message]:
        """Return some records; an empty list if none arrives within a moment."""
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self.look()
        records = []
        for message in self._consumer.consume(_MOST, timeout=_WAIT):
            error = message.error()
            if error is None:
                records.append(message)
                self._ended.discard(message.partition())
            elif error.code() == TheirError._PARTITION_EOF:
                self._ended.add(message.partition() or 0)
        return records

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


class Copier:
    """Runs one producer: transaction after transaction, until the producer fails or the copier is stopped."""

    def __init__(
        self,
        producer: Producer[bytes, bytes],
        source: Source,
        lines: Lines,
        chosen: argparse.Namespace,
        life: int,
    ) -> None:
        self._name = f"{os.getpid()}-{life}"
        self._producer = producer
        self._source = source
        self._lines = lines
        self._topic = chosen.topic
        self._source_topic = chosen.source
        self._group = ConsumerGroupMetadata(chosen.group)
        self._count = 0
        self._queued = 0

    async def copy(self, stopping: asyncio.Event) -> None:
        """Copy until the copier is stopped and all records are copied. Raises the error that ends a producer."""
        await patiently(self._source.begin)
        while not stopping.is_set():
            await self._transact(await patiently(self._source.read))
        await patiently(self._source.rewind)  # the known end offsets are older than the last record
        while not self._source.is_at_its_end:
            await self._transact(await patiently(self._source.read))

    async def _transact(self, records: list[Message]) -> None:
        if not records:
            return
        self._count += 1
        self._queued = 0
        name = f"{self._name}-{self._count}"
        self._tell("transaction_begun", transaction=name, records=len(records))
        ends = {record.partition() or 0: (record.offset() or 0) + 1 for record in records}
        is_aborted = random.random() < _ABORTED
        try:
            await self._write(name, records, ends)
            if not is_aborted:
                await again(self._producer.commit_transaction)
        except TransactionFatal:
            raise
        except KafkaError as error:
            _log.warning("%s is aborted after %r", name, error)
            is_aborted = True
        if is_aborted:
            await again(self._producer.abort_transaction)
            await asyncio.to_thread(self._source.rewind)
        else:
            self._source.positions |= ends
        self._tell(
            "transaction_ended",
            transaction=name,
            outcome="aborted" if is_aborted else "committed",
            queued=self._queued,
        )

    async def _write(self, name: str, records: list[Message], ends: dict[int, int]) -> None:
        await again(self._producer.begin_transaction)
        for attempt, record in enumerate(records):
            value, key, header = (
                record.value() or b"",
                record.key(),
                b"%s/%d" % (name.encode(), attempt),
            )
            delivery = await self._producer.send(
                self._topic, value, key, partition=record.partition(), headers=[("attempt", header)]
            )
            self._lines.follow(delivery, value, key, transaction=name, attempt=attempt)
            self._queued += 1
        offsets = {(self._source_topic, partition): end for partition, end in ends.items()}
        await again(lambda: self._producer.send_offsets_to_transaction(offsets, self._group))

    def _tell(self, name: str, **facts: object) -> None:
        self._lines.say(name, **facts)
        self._lines.flush()  # the process may be killed next


async def patiently(ask: Callable[[], Any]) -> Any:
    """Call the consumer from a thread, and again while brokers are missing."""
    while True:
        try:
            return await asyncio.to_thread(ask)
        except KafkaException as error:
            _log.warning("the consumer: %r", error)
            await asyncio.sleep(_RETRY_SECONDS)


async def again(call: Callable[[], Awaitable[None]]) -> None:
    """Make a call of a transaction, and make it again after a time-out."""
    while True:
        try:
            await call()
        except TransactionTimeout as error:
            _log.warning("%r", error)
        else:
            return


async def run(chosen: argparse.Namespace) -> None:
    """Run one producer after another: a failed producer is replaced if its hint says so."""
    options = OPTIONS | {"transactional_id": chosen.transactional_id} | json.loads(chosen.options)
    stopping = asyncio.Event()
    source = Source(chosen.bootstrap_server, chosen.source, chosen.group)
    async with telling(0) as lines:
        stop = asyncio.create_task(until_stdin_ends())
        stop.add_done_callback(lambda _: stopping.set())
        for life in itertools.count():
            try:
                async with Producer(
                    bootstrap_servers=chosen.bootstrap_server, **options
                ) as producer:
                    lines.say("startup_complete")
                    await Copier(producer, source, lines, chosen, life).copy(stopping)
                    break
            except ProducerFenced as error:  # another copier does the work now
                lines.say("producer_fenced", message=str(error))
                break
            except KafkaError as error:
                _log.warning("a new producer after %r", error)
                lines.say("producer_replaced", exception=type(error).__name__, message=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
        await asyncio.to_thread(source.close)


def main() -> None:
    die_with_parent()
    logging.basicConfig(level=logging.WARNING)
    parser = argparse.ArgumentParser(prog="python -m tests.tools.chaos.copier")
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--transactional-id", required=True)
    parser.add_argument("--options", default="{}", help="of the producer, as JSON")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
