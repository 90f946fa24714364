"""Tests of `aioproducer.engine.transactions.producer_id`: which broker is asked for an id, how often, and what follows."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from jumping import jumping, settle
from nodes import Tasks, now
from scripted import settings

from aioproducer.config import ProducerConfig
from aioproducer.core.sequence_numbers import Idempotence
from aioproducer.engine.transactions.producer_id import ProducerIds
from aioproducer.net.cluster import Cluster
from aioproducer.testing import FakeCluster
from tests.engine.append.parts import engine_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer.core.sequence_numbers import ProducerIdAndEpoch
    from aioproducer.errors import KafkaError


class Asker:
    """The part under test with a cluster of bootstrap addresses, and what it told."""

    def __init__(self, fake: FakeCluster) -> None:
        self.tasks = Tasks()
        self.granted: list[ProducerIdAndEpoch] = []
        self.went_without: list[str] = []
        self.failed: list[KafkaError] = []
        self.cluster = Cluster(
            fake.bootstrap_servers.split(","),
            settings(fake.network),
            self.tasks.spawn,
            lambda _node: None,
        )
        sender: Any = SimpleNamespace(
            identify=self.granted.append,
            go_without_numbers=self.went_without.append,
            drop_unsent=self.failed.append,
        )
        self.is_needed = asyncio.Event()
        context = engine_context(
            ProducerConfig(bootstrap_servers="here:1"), asyncio.get_running_loop(), chance=0.5
        )
        self.ids = ProducerIds(context, self.cluster, sender, self.is_needed, Idempotence())


@contextlib.asynccontextmanager
async def asking(
    *faults: Any, brokers: int = 1, **options: Any
) -> AsyncIterator[tuple[Asker, FakeCluster]]:
    """Its task runs; afterwards nothing is left."""
    async with FakeCluster(memory=True, brokers=brokers, **options) as fake:
        for error, times in faults:
            fake.fail("InitProducerId", error=error, times=times)
        asker = Asker(fake)
        task = asyncio.ensure_future(asker.ids.run())
        try:
            yield asker, fake
        finally:
            assert not task.done()
            task.cancel()
            await asyncio.wait([task])
            asker.cluster.close(now=True)
            await asker.tasks.end()
        await settle()


@jumping
async def test_an_id_is_asked_for_once() -> None:
    """And once more when it is lost."""
    async with asking() as (asker, fake):
        await asker.ids.first(10)
        assert asker.ids.trouble is None
        assert len(fake.requests("InitProducerId")) == len(asker.granted) == 1
        asker.is_needed.set()
        await settle()
        assert (
            len(fake.requests("InitProducerId"))
            == len({each.producer_id for each in asker.granted})
            == 2
        )


@pytest.mark.parametrize(
    ("producer_id", "epoch"), [(-1, 0), (-2, 12), (0, -1), (-(2**63), -(2**15))]
)
@jumping
async def test_an_id_that_no_broker_may_grant_is_asked_for_again(
    producer_id: int, epoch: int
) -> None:
    """A broker takes batches with a negative producer id for those of a producer without idempotence, and appends each copy."""

    def spoil(answer: Any) -> None:
        answer.producer_id, answer.producer_epoch = producer_id, epoch

    async with asking() as (asker, fake):
        fake.rewrite("InitProducerId", spoil)
        await asyncio.sleep(1)
        assert [each.is_granted for each in asker.granted] == [True]
        assert len(fake.requests("InitProducerId")) == 2


@jumping
async def test_the_next_broker_is_asked_where_one_cannot_be_reached() -> None:
    async with asking(brokers=2) as (asker, fake):
        await fake.brokers[1].stop()
        await asker.ids.first(10)
        assert [request.broker for request in fake.requests("InitProducerId")] == [2]


@jumping
async def test_without_a_broker_a_start_goes_on_in_time() -> None:
    """An id is still asked for, with ever longer pauses."""
    async with asking() as (asker, fake):
        await fake.brokers[1].stop()
        began = now()
        await asker.ids.first(3)
        assert now() - began <= 3
        assert asker.failed == asker.granted == []


@jumping
async def test_a_broker_that_knows_no_producer_ids_is_gone_without() -> None:
    async with asking(version="0.10.2") as (asker, fake):
        await asker.ids.first(10)
        assert asker.went_without == [fake.bootstrap_servers]
        assert asker.granted == []
