"""Two clusters behind one address (KIP-1242): no record goes to the wrong one, and a fail-over to another one is logged."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, now

from aioproducer import Producer
from aioproducer.errors import DeliveryError, Persisted, TransactionFatal
from aioproducer.testing import FakeCluster
from aioproducer.transaction_resolver import TransactionResolver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# Brokers before Kafka 4.0 know a topic by its name alone.
BY_NAME: dict[str, tuple[int, int] | None] = {"Produce": (3, 9)}
RELEASES = pytest.mark.parametrize(
    "versions", [{}, BY_NAME], ids=["topics by id", "topics by name"]
)


@asynccontextmanager
async def two_clusters(
    versions: Any, brokers: int = 1, **options: Any
) -> AsyncIterator[tuple[FakeCluster, FakeCluster]]:
    """Yield two clusters of one network, with brokers of the same numbers and a topic of the same name. The second one does not run yet."""
    async with (
        FakeCluster(brokers=brokers, memory=True, versions=versions, **options) as old,
        FakeCluster(brokers=brokers, memory=True, versions=versions, **options) as new,
    ):
        for broker in new.brokers.values():
            await broker.stop()
        new.network = old.network
        for cluster in (old, new):
            cluster.create_topic("orders", partitions=2)
        yield old, new


async def take_over(old: FakeCluster, new: FakeCluster) -> None:
    """Stop one cluster, and start the other one at its addresses."""
    for broker in old.brokers.values():
        await broker.stop()
    for number, broker in new.brokers.items():
        broker._listens_on = old.brokers[number].address
        broker.advertise(*old.brokers[number].address)
        await broker.start()


@RELEASES
@jumping
async def test_another_cluster_takes_the_addresses_of_the_known_brokers(
    versions: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A cluster that is made anew, with no data. The bootstrap address leads there, so producing goes on there, and a warning says so."""
    async with two_clusters(versions) as (old, new):
        async with Producer(**old.client_options) as producer:
            await producer.send_and_wait("orders", b"old", partition=0)
            await take_over(old, new)
            began = now()
            await asyncio.gather(
                *[
                    await producer.send("orders", b"new", partition=partition)
                    for partition in (0, 1)
                ]
            )
            assert now() - began < 5
        assert old.values("orders") == [b"old"]
        assert new.values("orders") == [b"new", b"new"]
        assert new.violations == []
        assert f"belongs to cluster '{new.cluster_id}'" in caplog.text


@RELEASES
@jumping
async def test_without_recovery_no_record_goes_to_another_cluster(
    versions: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """`metadata_recovery_strategy=none`: the bootstrap addresses are not asked again. Records fail, certainly not written."""
    async with two_clusters(versions) as (old, new):
        options = {"metadata_recovery_strategy": "none", "delivery_timeout_ms": 31_000}
        async with Producer(**old.client_options, **options) as producer:
            await producer.send_and_wait("orders", b"old", partition=0)
            await take_over(old, new)
            with pytest.raises(DeliveryError) as raised:
                await producer.send_and_wait("orders", b"new", partition=0)
            assert raised.value.persisted is Persisted.NO
        assert new.values("orders") == []
        assert caplog.text.count(f"belongs to cluster '{new.cluster_id}'") == 1


@RELEASES
@jumping
async def test_the_address_of_a_broker_is_that_of_another_cluster_by_now(
    versions: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Addresses of pods are used again. The broker itself is elsewhere, as its cluster tells at the bootstrap address."""
    async with two_clusters(versions) as (old, new):
        one, other = old.brokers[1], new.brokers[1]
        network: Any = old.network
        network.alias("service", 9092, one.address)
        async with Producer(bootstrap_servers="service:9092", dialer=network) as producer:
            await producer.send_and_wait("orders", b"1", partition=0)
            left = one.address
            await one.stop()
            other._listens_on = left
            other.advertise(*left)
            await other.start()
            one._listens_on = ("elsewhere", 9092)
            one.advertise("elsewhere", 9092)
            await one.start()
            network.alias("service", 9092, one.address)
            began = now()
            await asyncio.gather(
                *[await producer.send("orders", b"2", partition=partition) for partition in (0, 1)]
            )
            assert now() - began < 5
        assert new.values("orders") == []
        assert old.values("orders", 0) == [b"1", b"2"]
        assert old.values("orders", 1) == [b"2"]
        assert "belongs to cluster" in caplog.text


@RELEASES
@jumping
async def test_batches_of_another_cluster_are_not_taken_for_duplicates(versions: Any) -> None:
    """The other cluster has given the same producer id to another producer, whose batches had the same numbers."""
    async with two_clusters(versions) as (old, new):
        async with Producer(**old.client_options) as producer:
            await producer.send_and_wait("orders", b"old", partition=0)
            for broker in old.brokers.values():
                await broker.stop()
            waiting = [
                await producer.send("orders", b"waiting", partition=partition)
                for partition in (0, 1)
            ]
            await asyncio.sleep(1)
            await take_over(old, new)
            other: Producer[bytes, bytes]
            async with Producer(**new.client_options) as other:
                for value in (b"other 1", b"other 2"):
                    for partition in (0, 1):
                        await other.send_and_wait("orders", value, partition=partition)
            await asyncio.gather(*waiting)
            for partition in (0, 1):
                await producer.send_and_wait("orders", b"later", partition=partition)
        for partition in (0, 1):
            assert sorted(value or b"" for value in new.values("orders", partition)) == [
                b"later",
                b"other 1",
                b"other 2",
                b"waiting",
            ]
        assert old.values("orders") == [b"old"]


# Kafka 4.0 brought version 2 of transactions, and names topics by id.
@pytest.mark.parametrize(
    ("versions", "version"), [({}, 1), ({}, 2), (BY_NAME, 1)], ids=["by id", "version 2", "by name"]
)
@jumping
async def test_a_transaction_does_not_end_in_another_cluster(versions: Any, version: int) -> None:
    """Its first records are in the cluster that is gone. The commit fails, and nothing of it is visible in the other cluster."""
    async with two_clusters(versions, transaction_version=version) as (old, new):
        async with Producer(
            **old.client_options, transactional_id="tx", max_block_ms=20_000
        ) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("orders", b"1", partition=0)
            await take_over(old, new)
            began = now()
            with pytest.raises(TransactionFatal, match="belongs to another cluster than before"):
                await producer.send("orders", b"2", partition=0)
                await producer.commit_transaction()
            assert now() - began < 5
        assert new.values("orders", isolation="read_committed") == []


@RELEASES
@jumping
async def test_a_balancer_that_leads_to_two_clusters(
    versions: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """No record that is acknowledged is anywhere else than told: each change of the cluster is a warning. The log is not flooded."""
    async with two_clusters(versions) as (old, new):
        network: Any = old.network
        other = new.brokers[1]
        other._listens_on = ("other", 9092)
        other.advertise(*old.brokers[1].address)
        await other.start()
        dial, count, chance = network.dial, 0, random.Random(1)
        first = old.brokers[1].address[0]

        async def at_random(host: str, port: int, receiver: Any) -> Any:
            nonlocal count
            count += 1
            return await dial(chance.choice(["other", first]), port, receiver)

        network.dial = at_random
        options = {
            "bootstrap_servers": f"{first}:9092",
            "dialer": network,
            "delivery_timeout_ms": 31_000,
        }
        async with Producer(**options) as producer:
            acknowledged, began = 0, now()
            for number in range(30):
                try:
                    await producer.send_and_wait("orders", b"%d" % number, partition=0)
                    acknowledged += 1
                except DeliveryError:
                    pass
                await asyncio.sleep(1)
                old.disconnect_all()
                new.disconnect_all()
            took = now() - began
        values = old.values("orders", 0) + new.values("orders", 0)
        assert len(values) >= acknowledged > 0
        assert caplog.text.count("belongs to cluster") > 1
        assert len(caplog.records) < 2 * took
        assert count < 10 * took


@jumping
async def test_a_resolver_is_told_of_another_cluster(caplog: pytest.LogCaptureFixture) -> None:
    """Its answers are those of the cluster that the bootstrap address leads to, with a warning."""
    async with two_clusters({}) as (old, new):
        async with TransactionResolver(**old.client_options) as resolver:
            assert await resolver.committed_offset("group", "orders") is None
            await take_over(old, new)
            assert await resolver.committed_offset("group", "orders") is None
        assert f"belongs to cluster '{new.cluster_id}'" in caplog.text
