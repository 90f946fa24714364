"""Sends objects as JSON: serializers, keys that keep events in order, headers, a tombstone, a failing record.

Run it with `python examples/json_orders.py`. It needs no Kafka, as the cluster is a fake within this process.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass

from aioproducer import DeliveryError, Producer, RecordTooLarge, json_serializer, string_serializer
from aioproducer.testing import FakeCluster


@dataclass
class Order:
    """Holds an event of an order."""

    id: int
    customer: str
    total: float
    status: str = "placed"


def order_serializer(order: Order) -> bytes:
    """Return bytes, as any serializer does. The producer never passes None, which is a tombstone."""
    return json_serializer(asdict(order))


async def main() -> None:
    """Send some events of two orders, then look into the log."""
    async with FakeCluster() as cluster:
        cluster.create_topic("orders", partitions=3)
        async with Producer[str, Order](
            **cluster.client_options,  # with a real one: bootstrap_servers="host:9092"
            key_serializer=string_serializer,
            value_serializer=order_serializer,
            max_request_size=1_000,
        ) as producer:
            await send_orders(producer)
        for partition in range(3):
            for record in cluster.records("orders", partition):
                print(partition, record.key, record.value, record.headers)


async def send_orders(producer: Producer[str, Order]) -> None:
    """Send events. Records of one key are in one partition, in the order of the calls. Records of other keys do not wait for them."""
    order, other = Order(1, "ada", 9.5), Order(2, "bob", 20.0)
    deliveries = [
        await producer.send("orders", order, key="order-1", headers=[("source", b"shop")]),
        await producer.send("orders", other, key="order-2"),
        await producer.send("orders", Order(1, "ada", 9.5, "paid"), key="order-1"),
        await producer.send(
            "orders", None, key="order-2"
        ),  # a tombstone: a compacted topic forgets the key
    ]
    for delivery in deliveries:
        try:
            metadata = await delivery
        except DeliveryError as error:  # the record was queued, and not acknowledged
            print(f"failed: {error}; in the log: {error.persisted}")
        else:
            print(f"acknowledged: {metadata.topic}-{metadata.partition} at {metadata.offset}")
    try:
        await producer.send("orders", Order(3, "x" * 2_000, 0.0))
    except (
        RecordTooLarge
    ) as error:  # the record was not queued: `send` raises errors that it finds at once
        print(f"refused: {error}")


if __name__ == "__main__":
    asyncio.run(main())
