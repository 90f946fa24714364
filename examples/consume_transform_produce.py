"""Copies records from one topic to another exactly once.

aiokafka's consumer reads the records. The results and the consumer's offsets are one transaction.

Run it with `python examples/consume_transform_produce.py`. The program crashes on purpose and restarts, and at the end every order has one
invoice. It needs no Kafka, as the cluster is a fake within this process.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition

from aioproducer import ConsumerGroupMetadata, Producer, TransactionAbortable
from aioproducer.testing import FakeCluster

GROUP = "invoicing"
ORDERS = 60


class Crash(Exception):
    """Stands for any error in the middle of a transaction."""


class Invoicing(ConsumerRebalanceListener):
    """Reads orders and writes invoices. Each running instance needs a `transactional_id` of its own, the same after each restart."""

    def __init__(self, bootstrap: dict[str, Any], transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._transactional_id = transactional_id
        self._turn = asyncio.Lock()  # a transaction and a rebalance hold it: the offsets are committed before another consumer reads
        self.written = 0

    async def run(self, crash_at: int | None = None, idle: float = 1.0) -> None:
        """Run until no order comes for `idle` seconds, or crash after `crash_at` invoices."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap["bootstrap_servers"],
            group_id=GROUP,
            isolation_level="read_committed",  # skips orders of aborted transactions
            enable_auto_commit=False,  # offsets are part of the transaction
            auto_offset_reset="earliest",
        )
        async with Producer(**self._bootstrap, transactional_id=self._transactional_id) as producer:
            consumer.subscribe(["orders"], listener=self)
            await consumer.start()
            try:
                while batches := await consumer.getmany(
                    timeout_ms=int(idle * 1000), max_records=10
                ):
                    async with self._turn:
                        await self._invoice(producer, consumer, batches, crash_at)
            finally:
                await consumer.stop()

    async def _invoice(
        self,
        producer: Producer[Any, Any],
        consumer: Any,
        batches: dict[TopicPartition, list[Any]],
        crash_at: int | None,
    ) -> None:
        try:
            async with producer.transaction():
                for records in batches.values():
                    for record in records:
                        await producer.send(
                            "invoices", b"invoice of " + record.value, key=record.key
                        )
                        self.written += 1
                        if self.written == crash_at:
                            await producer.flush()  # so that the log has invoices that readers of committed records must not see
                            raise Crash
                offsets = {
                    partition: records[-1].offset + 1 for partition, records in batches.items()
                }
                await producer.send_offsets_to_transaction(offsets, group_of(consumer))
        except TransactionAbortable as error:
            # also CommitFailed, after a late rebalance: read again from the committed offsets
            print(f"aborted: {error}")
            await consumer.seek_to_committed()

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Wait until our transaction has ended, as other consumers may read these partitions after this call."""
        async with self._turn:
            pass

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Do nothing: aiokafka goes on at the committed offsets."""


def group_of(consumer: Any) -> ConsumerGroupMetadata:
    """Return the consumer's generation and member id, from private attributes of aiokafka.

    With them the group refuses the offsets of a consumer that is no longer a member.
    """
    coordinator = consumer._coordinator
    return ConsumerGroupMetadata(GROUP, coordinator.generation, coordinator.member_id)


async def run(bootstrap: dict[str, Any], crashes: tuple[int | None, ...]) -> None:
    """Run one instance after another. Each but the last ends with a crash."""
    for crash_at in crashes:
        try:
            await Invoicing(bootstrap, "invoicing-1").run(crash_at)
        except Crash:
            print(f"crashed after {crash_at} invoices")


async def order(bootstrap: dict[str, Any]) -> None:
    """Send the orders."""
    async with Producer(**bootstrap) as producer:
        await producer.send_many("orders", [b"order %d" % number for number in range(ORDERS)])


async def main() -> None:
    """Run against the fake cluster, or against the brokers of the first argument, which must have the topics."""
    if len(sys.argv) > 1:
        await order({"bootstrap_servers": sys.argv[1]})
        await run({"bootstrap_servers": sys.argv[1]}, (25, None))
        return
    async with FakeCluster() as cluster:
        for topic in ("orders", "invoices"):
            cluster.create_topic(topic, partitions=2)
        await order(cluster.client_options)
        await run(cluster.client_options, (7, 25, None))
        invoices = cluster.values("invoices", isolation="read_committed")
        print(
            f"{len(cluster.values('invoices'))} invoices were written, {len(invoices)} are visible, {len(set(invoices))} are different"
        )


if __name__ == "__main__":
    asyncio.run(main())
