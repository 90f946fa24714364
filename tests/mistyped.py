"""Mistakes that mypy and pyright report: each `type: ignore` is an error where its line has none (`nox -s types`). Nothing runs it."""

# pyright: strict
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import assert_type

from aioproducer import AnyProducer, Producer, ProducerConfig, Record, string_serializer
from aioproducer.testing import RecordingProducer


@dataclasses.dataclass
class Order:
    id: int


def encoded(order: Order) -> bytes:
    return b"%d" % order.id


async def mistakes() -> None:
    plain = Producer(bootstrap_servers=["a", "b"], linger_ms=timedelta(milliseconds=5), acks="all")
    assert_type(plain, Producer[bytes, bytes])
    await plain.send("orders", b"value", b"key", headers={"source": "shop"})
    await plain.send("orders", "value")  # type: ignore[arg-type]
    await plain.send("orders", b"value", key="key")  # type: ignore[arg-type]
    await plain.send_many("orders", [b"a", Record(b"b", b"k")])
    await plain.send_many("orders", ["a"])  # type: ignore[list-item]
    await plain.send("orders", b"value", headers={"source": 1})  # type: ignore[dict-item]

    Producer(linger_msx=5)  # type: ignore[call-overload]
    Producer(acks="some")  # type: ignore[call-overload]
    Producer(linger_ms="automatic")  # type: ignore[call-overload]
    Producer(compression_type="zst")  # type: ignore[call-overload]
    Producer(plain.config, max_block_ms="soon")  # type: ignore[call-overload]
    ProducerConfig(linger_msx=5)  # type: ignore[call-arg]
    ProducerConfig().replace(acks="some")  # type: ignore[arg-type]
    RecordingProducer(linger_msx=5)  # type: ignore[call-overload]

    orders = Producer(value_serializer=encoded)
    assert_type(orders, Producer[bytes, Order])
    await orders.send("orders", Order(1), b"key")
    await orders.send("orders", b"value")  # type: ignore[arg-type]
    texts = Producer(key_serializer=string_serializer, linger_ms="auto")
    assert_type(texts, Producer[str, bytes])
    await texts.send("orders", b"value", "key")
    await texts.send("orders", b"value", b"key")  # type: ignore[arg-type]
    both = Producer(plain.config, key_serializer=string_serializer, value_serializer=encoded)
    assert_type(both, Producer[str, Order])
    recorded = RecordingProducer(value_serializer=encoded)
    assert_type(recorded, RecordingProducer[bytes, Order])
    await recorded.send("orders", b"value")  # type: ignore[arg-type]
    sender: AnyProducer = Producer()
    sender = RecordingProducer()
    sender = orders  # type: ignore[assignment]
    await sender.send("orders", "value")  # type: ignore[arg-type]
    async with orders.running(wait=False) as running:
        assert_type(running, Producer[bytes, Order])
    assert_type(await orders.run_in_transaction(lambda: orders.partitions_for("orders")), set[int])
