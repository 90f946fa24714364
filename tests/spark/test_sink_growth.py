"""Counts the requests of an exactly-once batch on the fake cluster: they are the table of docs/topics/spark.md, and grow as it says."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer import PreparedTransaction, Producer, ProducerConfig, TransactionResolver
from aioproducer.spark.exactly_once import TaskReport, TaskTransaction, commit_batch
from aioproducer.spark.ledger import Decision, Entry, QueryName, encode_decision
from aioproducer.spark.ledger_client import IdleProducers, Ledger
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PARTITIONS = 3


@asynccontextmanager
async def process(cluster: FakeCluster) -> AsyncIterator[Ledger]:
    """The ledger of a process: a worker's, or a driver's of one batch."""
    options: dict[str, Any] = cluster.client_options
    config = ProducerConfig(bootstrap_servers=options.pop("bootstrap_servers"))
    idle = IdleProducers()
    async with TransactionResolver(config, **options) as resolver:
        yield Ledger(
            QueryName("spark-q"),
            "orders",
            config,
            resolver,
            lambda config: Producer(config, **options),
            idle=idle,
        )
    await idle.stop()


async def run_task(ledger: Ledger, batch: int, task: int) -> TaskReport:
    """Write a record to each partition."""
    transaction = TaskTransaction(ledger, batch, task)
    assert not await transaction.settled()
    producer = await transaction.begin()
    assert producer is not None
    for partition in range(PARTITIONS):
        await producer.send("orders", b"v", partition=partition)
    await transaction.mark(PARTITIONS, 3, 1)
    return await transaction.prepare()


class Counts:
    """Counts requests and connections from now on."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._before = cluster.requests()

    def requests(self) -> Counter[str]:
        return Counter(request.api for request in self._cluster.requests()[len(self._before) :])

    def connections(self) -> int:
        known = {(request.broker, request.connection) for request in self._before}
        return len({(one.broker, one.connection) for one in self._cluster.requests()} - known)


async def decided(cluster: FakeCluster, tasks: int) -> None:
    """Write a decision of batch 0 with so many tasks."""
    async with process(cluster) as ledger:
        entries = tuple(
            Entry(PreparedTransaction(f"spark-q-{task}", 1_000 + task, 7, 2), 1_000, 100_000, 2**63)
            for task in range(tasks)
        )
        async with ledger.lock() as driver:
            await ledger.decide(driver, Decision(0, entries))


@pytest.mark.asyncio
@pytest.mark.parametrize("tasks", [2, 2_000])
async def test_what_a_task_asks(tasks: int) -> None:
    """Its requests do not depend on how many tasks there are."""
    async with FakeCluster(brokers=3, memory=True) as cluster:
        cluster.create_topic("orders", PARTITIONS)
        await decided(cluster, tasks)
        of_any = {
            "Produce": PARTITIONS,
            "OffsetFetch": 2,
            "InitProducerId": 1,
            "TxnOffsetCommit": 1,
        }
        async with process(cluster) as worker:
            counts = Counts(cluster)
            await run_task(worker, 1, 0)
            first = counts.requests()
            assert first.pop("ApiVersions") == counts.connections() <= 9
            assert first == {**of_any, "FindCoordinator": 4, "Metadata": 2}
            # A worker has connections, coordinators and metadata after its first tasks.
            for task in (1, 2):
                await run_task(worker, 1, task)
            counts = Counts(cluster)
            report = await run_task(worker, 1, 3)
            assert counts.requests() == {**of_any, "FindCoordinator": 3}
            assert counts.connections() == 0
            assert report.prepared is not None
            await worker.resolver.commit(report.prepared)
            # It knows the coordinators of the tasks that it ran before.
            counts = Counts(cluster)
            await run_task(worker, 2, 3)
            assert counts.requests() == of_any


@pytest.mark.asyncio
@pytest.mark.parametrize("tasks", [1, 20])
async def test_what_a_driver_asks(tasks: int) -> None:
    """It ends one transaction for each task, and its own. All else does not depend on their number."""
    async with FakeCluster(brokers=3, memory=True) as cluster:
        cluster.create_topic("orders", PARTITIONS)
        async with process(cluster) as worker:
            reports = [await run_task(worker, 0, task) for task in range(tasks)]
            counts = Counts(cluster)
            async with process(cluster) as driver:
                await commit_batch(driver, 0, reports)
        requests = counts.requests()
        assert requests.pop("EndTxn") == tasks + 1
        assert requests.pop("FindCoordinator") <= 4
        assert requests.pop("ApiVersions") == counts.connections() <= 6
        assert requests == {
            "Metadata": 2,
            "InitProducerId": 1,
            "OffsetFetch": 1,
            "TxnOffsetCommit": 1,
        }


@pytest.mark.asyncio
async def test_what_a_driver_asks_for_a_later_batch() -> None:
    """Its process has connections and coordinators."""
    async with FakeCluster(brokers=3, memory=True) as cluster:
        cluster.create_topic("orders", PARTITIONS)
        async with process(cluster) as worker, process(cluster) as driver:
            for batch in (0, 1):
                reports = [await run_task(worker, batch, task) for task in range(2)]
                counts = Counts(cluster)
                await commit_batch(driver, batch, reports)
        assert counts.requests() == {
            "EndTxn": 3,
            "InitProducerId": 1,
            "OffsetFetch": 1,
            "TxnOffsetCommit": 1,
        }
        assert counts.connections() == 0


def test_the_groups_of_a_decision() -> None:
    """A decision has a group for each 171 tasks."""
    entry = Entry(PreparedTransaction("q-0", 1_000_000, 300, 2), 1_000, 100_000, 2**63)
    assert [
        len(encode_decision(Decision(0, (entry,) * tasks))) for tasks in (171, 172, 1_000, 10_000)
    ] == [1, 2, 6, 59]
