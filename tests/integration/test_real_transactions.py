"""Tests of transactions on real brokers: version 2, version 1, an upgrade, and the last release without version 2.

A record is visible if confluent-kafka's consumer reads it with `isolation.level=read_committed`.
"""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from settled import settled

from aioproducer import (
    BrokerError,
    CommitFailed,
    ConsumerGroupMetadata,
    DeliveryError,
    Position,
    PreparedTransaction,
    Producer,
    ProducerFenced,
    TopicPartition,
    TransactionAbortable,
    TransactionExpired,
    TransactionResolver,
)
from aioproducer.testing import KafkaServer
from tests.support.kafka_security import set_feature

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable


pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

PARTITIONS = 3
# looks for transactions that take too long twice a second, instead of every ten seconds
PROPERTIES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
SERVERS: dict[str, dict[str, Any]] = {
    "4.3.1, version 2": {},
    "4.3.1, version 1": {"features": {"transaction.version": 1}},
    "3.9.2": {"version": "3.9.2"},
}
VERSIONS = {"4.3.1, version 2": 2, "4.3.1, version 1": 1, "3.9.2": 1}


class Stage:
    """A server, and what tests need of it."""

    def __init__(self, server: KafkaServer, label: str = "") -> None:
        self.server = server
        self.label = label

    async def topic(self) -> str:
        """A new one of three partitions."""
        name = f"transactions-{uuid.uuid4().hex[:8]}"
        await self.server.create_topic(name, PARTITIONS)
        return name

    @asynccontextmanager
    async def producer(self, name: str, **options: Any) -> AsyncIterator[Producer[Any, Any]]:
        """A transactional producer."""
        async with Producer(
            bootstrap_servers=self.server.bootstrap_servers, transactional_id=name, **options
        ) as producer:
            yield producer

    async def visible(self, topic: str) -> dict[int, list[bytes]]:
        """Return the values that another library's read_committed consumer reads, by partition."""
        await settled(self.server.bootstrap_servers, topic, range(PARTITIONS))
        return await asyncio.to_thread(self._read, topic)

    def _read(self, topic: str) -> dict[int, list[bytes]]:
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        servers = self.server.bootstrap_servers
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        seen: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        ended: set[int] = set()
        deadline = time.monotonic() + 60
        try:
            while len(ended) < PARTITIONS:
                assert time.monotonic() < deadline, f"no end of {set(seen) - ended} in sight"
                message = consumer.poll(0.5)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    seen[message.partition()].append(message.value())
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
        finally:
            consumer.close()
        return seen

    async def committed(self, group: str, topic: str) -> list[int]:
        """The group's offset of each partition; -1001: none."""

        def ask() -> list[int]:
            from confluent_kafka import Consumer, TopicPartition

            consumer = Consumer(
                {
                    "bootstrap.servers": self.server.bootstrap_servers,
                    "group.id": group,
                    "isolation.level": "read_committed",
                }
            )
            try:
                return [
                    each.offset
                    for each in consumer.committed(
                        [TopicPartition(topic, one) for one in range(PARTITIONS)], timeout=30
                    )
                ]
            finally:
                consumer.close()

        return await asyncio.to_thread(ask)


async def the_story(stage: Stage, name: str) -> None:
    """Commits, aborts, failures, offsets: all that a producer of that server can meet alone."""
    orders, payments = await stage.topic(), await stage.topic()
    expected: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    async with stage.producer(name) as producer:
        for number in range(12):
            values = [b"%d-%d" % (number, index) for index in range(50)]
            await producer.begin_transaction()
            for index, value in enumerate(values):
                await producer.send(orders, value, partition=index % PARTITIONS)
            await producer.send_offsets_to_transaction(
                {(payments, 0): number, (payments, 1): number * 2}, name
            )
            if number % 3 == 1:
                await producer.abort_transaction()
                continue
            await producer.commit_transaction()
            for partition in expected:
                expected[partition] += values[partition::PARTITIONS]
        with pytest.raises(LookupError):
            async with producer.transaction():
                await producer.send_and_wait(orders, b"aborted", partition=0)
                raise LookupError
        with pytest.raises(CommitFailed):
            async with producer.transaction():
                await producer.send(orders, b"stale", partition=1)
                await producer.send_offsets_to_transaction(
                    {(payments, 0): 99}, ConsumerGroupMetadata(name, 7, "nobody")
                )
        async with producer.transaction():
            pass
        async with producer.transaction():
            await producer.send(orders, b"last", partition=2)
        expected[2].append(b"last")
    assert await stage.visible(orders) == expected
    assert await stage.committed(name, payments) == [11, 22, -1001]


async def fencing(stage: Stage, name: str) -> None:
    """A second producer of the same name: the first is fenced, its open transaction aborted."""
    orders = await stage.topic()
    async with stage.producer(name) as zombie:
        await zombie.begin_transaction()
        await zombie.send_and_wait(orders, b"zombie", partition=0)
        async with stage.producer(name) as heir:
            async with heir.transaction():
                await heir.send(orders, b"heir", partition=0)
            with pytest.raises(ProducerFenced):
                await zombie.commit_transaction()
            async with heir.transaction():
                await heir.send(orders, b"heir", partition=1)
        with pytest.raises(ProducerFenced):
            await zombie.send(orders, b"zombie", partition=0)
    assert await stage.visible(orders) == {0: [b"heir"], 1: [b"heir"], 2: []}


async def a_time_out(stage: Stage, name: str) -> None:
    """The coordinator aborts what takes too long, and the error says that."""
    orders = await stage.topic()
    async with stage.producer(name, transaction_timeout_ms=1_500) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(orders, b"late", partition=0)
        await asyncio.sleep(4)
        with pytest.raises((TransactionExpired, TransactionAbortable)) as raised:
            await producer.commit_transaction()
        assert isinstance(raised.value, TransactionExpired), raised.value
        assert "timed out by the coordinator" in str(raised.value)
    assert await stage.visible(orders) == {0: [], 1: [], 2: []}


async def a_cancellation(stage: Stage, name: str) -> None:
    """Its body is aborted, and the next transaction goes on at once."""
    orders = await stage.topic()
    async with stage.producer(name) as producer:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3), producer.transaction():
                    while True:
                        await producer.send(orders, b"cancelled", partition=0)
                        await asyncio.sleep(0.01)
            async with producer.transaction():
                await producer.send(orders, b"kept", partition=0)
    assert await stage.visible(orders) == {0: [b"kept"] * 5, 1: [], 2: []}


async def a_refused_record(stage: Stage, name: str) -> None:
    """A record that the broker finds too large fails its own transaction alone."""
    orders = await stage.topic()
    async with stage.producer(name, max_request_size=4_000_000) as producer:
        await producer.begin_transaction()
        await producer.send(orders, b"before", partition=0)
        delivery = await producer.send(orders, b"x" * 3_000_000, partition=0)
        with pytest.raises(DeliveryError):
            await delivery
        with pytest.raises(TransactionAbortable, match=r"max\.message\.bytes"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(orders, b"after", partition=0)
    assert await stage.visible(orders) == {0: [b"after"], 1: [], 2: []}


VICTIM = """
import asyncio, sys
from aioproducer import Producer

async def main(servers, name, topic):
    async with Producer(bootstrap_servers=servers, transactional_id=name) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"killed", partition=0)
        print("written", flush=True)
        await asyncio.sleep(1_000)

asyncio.run(main(*sys.argv[1:]))
"""


async def a_killed_process(stage: Stage, name: str) -> None:
    """Row 76: the next producer with the same transactional id aborts the transaction that the killed process left open."""
    orders = await stage.topic()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        VICTIM,
        stage.server.bootstrap_servers,
        name,
        orders,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"written\n"
    process.kill()
    await process.wait()
    async with stage.producer(name) as heir, heir.transaction():
        await heir.send(orders, b"heir", partition=0)
    assert await stage.visible(orders) == {0: [b"heir"], 1: [], 2: []}


async def prepared_by(
    stage: Stage, name: str, topic: str, value: bytes, **options: Any
) -> PreparedTransaction:
    """Return a transaction with one record and one position; its producer is gone."""
    async with stage.producer(name, **options) as producer:
        await producer.begin_transaction()
        await producer.send(topic, value, partition=0)
        await producer.send_position_to_transaction(name, 7, value.decode(), topic=topic)
        return await producer.prepare_transaction()


async def refusal(call: Awaitable[None]) -> str:
    """Return the name of the error that a call is refused with."""
    with pytest.raises(BrokerError) as raised:
        await call
    assert not raised.value.retriable
    return raised.value.name


async def prepared_transactions(stage: Stage, name: str) -> None:
    """A resolver ends what producers left: each answer is the one that tests/scenarios/test_prepared.py has of the fake cluster."""
    orders = await stage.topic()
    version = VERSIONS[stage.label]
    async with TransactionResolver(
        bootstrap_servers=stage.server.bootstrap_servers, max_block_ms=20_000
    ) as resolver:
        kept = await prepared_by(stage, f"{name}-kept", orders, b"kept")
        assert kept.version == version
        expired = await prepared_by(
            stage, f"{name}-expired", orders, b"expired", transaction_timeout_ms=1_000
        )
        assert await resolver.committed_offset(f"{name}-kept", orders, stable=False) is None
        await resolver.commit(kept)
        await resolver.commit(kept)
        assert await refusal(resolver.abort(kept)) == "INVALID_TXN_STATE"
        assert await resolver.committed_offset(f"{name}-kept", orders) == Position(7, "kept")
        dropped = await prepared_by(stage, f"{name}-dropped", orders, b"dropped")
        await resolver.abort(dropped)
        await resolver.abort(dropped)
        assert await refusal(resolver.commit(dropped)) == "INVALID_TXN_STATE"
        lost = await prepared_by(stage, name, orders, b"lost")
        won = await prepared_by(stage, name, orders, b"won")
        assert await refusal(resolver.commit(lost)) == "PRODUCER_FENCED"
        await resolver.commit(won)
        later = await prepared_by(stage, name, orders, b"later")
        await listed(stage, resolver, name, orders, later)
        assert await refusal(resolver.commit(won)) == "PRODUCER_FENCED"
        await resolver.abort(later)
        many = [
            await prepared_by(stage, f"{name}-{number}", orders, b"%d" % number)
            for number in range(5)
        ]
        await asyncio.gather(*map(resolver.commit, many))
        assert (
            await refusal(resolver.commit(PreparedTransaction("nobody", 0, 0, version)))
            == "INVALID_PRODUCER_ID_MAPPING"
        )
        # the offset is stable once the coordinator has aborted the transaction
        assert await resolver.committed_offset(f"{name}-expired", orders) is None
        assert (
            await refusal(resolver.commit(expired))
            == {1: "PRODUCER_FENCED", 2: "INVALID_TXN_STATE"}[version]
        )
    visible = await stage.visible(orders)
    assert (visible[0][:2], sorted(visible[0][2:])) == (
        [b"kept", b"won"],
        [b"%d" % number for number in range(5)],
    )


async def listed(
    stage: Stage, resolver: TransactionResolver, name: str, topic: str, is_open: PreparedTransaction
) -> None:
    """A resolver lists and describes transactions, and commits the offsets of a group."""
    states = {one.transactional_id: one.state for one in await resolver.list_transactions(name)}
    assert states[name] == "Ongoing"
    assert {f"{name}-kept", f"{name}-dropped", name} <= states.keys()
    assert await resolver.list_transactions(f"{name}.") == []
    first, _ = await resolver.describe_transactions([name, "nobody", f"{name}-kept"])
    assert (*first[:3], first.state, first.timeout_ms) == (
        name,
        is_open.producer_id,
        is_open.epoch,
        "Ongoing",
        60_000,
    )
    assert TopicPartition(topic, 0) in first.partitions
    assert first.started_at is not None
    assert abs((datetime.now(UTC) - first.started_at).total_seconds()) < 30
    for offset in (7, 3):
        await resolver.commit_offsets(
            f"{name}-group", {(topic, 0): offset, (topic, 1): (offset * 2, "note")}
        )
        assert await stage.committed(f"{name}-group", topic) == [offset, offset * 2, -1001]


STORIES = (
    the_story,
    fencing,
    a_time_out,
    a_cancellation,
    a_refused_record,
    a_killed_process,
    prepared_transactions,
)


@pytest.mark.parametrize("server", SERVERS)
async def test_transactions(server: str) -> None:
    """Every story, on one server of each kind; the producer speaks the version that the server has."""
    async with KafkaServer(properties=PROPERTIES, **SERVERS[server]) as kafka:
        stage = Stage(kafka, server)
        for story in STORIES:
            await story(stage, story.__name__)
        async with stage.producer("version") as producer:
            assert producer._engine is not None
            assert producer._engine.transaction_manager.transaction.version == VERSIONS[server]


async def test_an_upgrade_in_mid_life() -> None:
    """A producer that lives on through it: what it has open ends in version 1, then it goes over to version 2 (TV2-04)."""
    async with KafkaServer(features={"transaction.version": 1}, properties=PROPERTIES) as kafka:
        stage = Stage(kafka)
        orders = await stage.topic()
        async with stage.producer("upgraded", connections_max_idle_ms=700) as producer:
            assert producer._engine is not None
            transaction = producer._engine.transaction_manager.transaction
            seen = []
            for number in range(40):
                async with producer.transaction():
                    await producer.send(orders, b"%d" % number, partition=0)
                    if number == 3:
                        await set_feature(kafka, "transaction.version", 2)
                    await producer.send(orders, b"%d" % number, partition=1)
                    if number >= 3 and transaction.version == 1:
                        await asyncio.sleep(1)  # its connections are made anew, and learn of it
                seen.append(transaction.version)
                if seen[-3:] == [2, 2, 2]:
                    break
        assert sorted(seen) == seen
        assert {1, 2} == set(seen)
        values = [b"%d" % number for number in range(len(seen))]
        assert await stage.visible(orders) == {0: values, 1: values, 2: []}
