"""Mistakes that mypy and pyright report: each `type: ignore` is an error where its line has none (`nox -s types`). Nothing runs it."""

# pyright: strict
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import TypedDict, assert_type

from aioproducer import (
    Encoder,
    Producer,
    ProducerConfig,
    ProducerOptions,
    Record,
    Topic,
    string_serializer,
)


@dataclasses.dataclass
class Order:
    id: int


class Row(TypedDict):
    id: int


class Prepared:
    async def prepare(self, topic: str, /) -> Encoder[Order]:
        raise LookupError(topic)


def encoded(order: Order) -> bytes:
    return b"%d" % order.id


async def mistakes() -> None:
    plain = Producer(bootstrap_servers=["a", "b"], linger_ms=timedelta(milliseconds=5), acks="all")
    assert_type(plain, Producer[bytes, bytes])
    await plain.send("orders", b"value", b"key", headers={"source": "shop"})
    given: list[tuple[str, bytes]] | None = None
    await plain.send("orders", b"value", headers=given)
    await plain.send_many("orders", [Record(b"value", headers=given)])
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
    Producer.from_env(linger_msx=5)  # type: ignore[call-arg]
    Producer.from_env("KAFKA_", acks="some")  # type: ignore[arg-type]
    Producer(key_serializer=5)  # type: ignore[call-overload]

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
    sender: Producer = Producer()
    sender = orders  # type: ignore[assignment]
    await sender.send("orders", "value")  # type: ignore[arg-type]
    async with orders.running(wait=False) as running:
        assert_type(running, Producer[bytes, Order])
    assert_type(await orders.run_in_transaction(lambda: orders.partitions_for("orders")), set[int])


async def mistakes_of_configs_and_records(plain: Producer) -> None:
    configured = Producer(plain.config, linger_ms=5)
    assert_type(configured, Producer[bytes, bytes])
    await configured.send("orders", "value")  # type: ignore[arg-type]
    named: Producer[str, Order] = Producer(plain.config)
    await named.send("orders", Order(1), "key")
    options: ProducerOptions = {"linger_ms": 5, "value_serializer": encoded}
    await Producer(**options, dialer=None).send("orders", b"value")
    assert_type(Producer.from_env("KAFKA_", **options, resolver=None), Producer[bytes, bytes])

    other: Producer[bytes, Row] = Producer(value_serializer=encoded)  # type: ignore[assignment]
    other = Producer(other.config, key_serializer=string_serializer, value_serializer=encoded)  # type: ignore[assignment]

    any_record: Record = Record(Order(1), "key")
    await named.send_many("orders", [any_record])
    record = Record(b"value", headers={"source": "shop"})
    await plain.send_many("orders", [record, Record(b"value", b"key")])
    await named.send_many("orders", [Record(Order(1))])
    text = Record("value")
    await plain.send_many("orders", [text])  # type: ignore[list-item]
    await plain.send_many("orders", [Record("value")])  # type: ignore[arg-type]


async def mistakes_of_topics(plain: Producer, orders: Producer[bytes, Order]) -> None:
    topic = plain.topic("orders", key=str, value=Order)
    assert_type(topic, Topic[str, Order])
    await topic.send(Order(1), key="key")
    await topic.send(b"value")  # type: ignore[arg-type]
    await topic.send(Order(1), key=b"key")  # type: ignore[arg-type]
    await topic.send_many([Order(1), Record(Order(2), "key"), None])
    await topic.send_many([b"a"])  # type: ignore[list-item]
    assert_type(plain.topic("orders", value=Row), Topic[bytes, Row])
    assert_type(plain.topic("orders", value=encoded), Topic[bytes, Order])
    assert_type(plain.topic("orders", key=Prepared()), Topic[Order, bytes])
    assert_type(orders.topic("orders"), Topic[bytes, Order])
    plain.topic("orders", value=5)  # type: ignore[call-overload]
    await topic.send_nowait(Order(1), "key")
