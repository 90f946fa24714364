"""How to test code that writes to Kafka, without Kafka: `pytest examples/testing_with_fake_cluster.py`.

The fixture `fake_cluster` comes with aioproducer's pytest plugin: a cluster in the process that speaks Kafka's protocol, keeps the sent
records, and injects faults on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproducer import DeliveryError, Persisted, Producer

if TYPE_CHECKING:
    from aioproducer.testing import FakeCluster


# The code under test: a service that announces orders, and keeps those that Kafka did not take for later


class Orders:
    """Announces orders; `failed` holds the orders that are certainly not in the topic."""

    def __init__(self, producer: Producer[bytes, bytes]) -> None:
        self._producer = producer
        self.failed: list[bytes] = []

    async def announce(self, order: bytes) -> None:
        """Send one order, and wait until Kafka has it."""
        try:
            await self._producer.send_and_wait("orders", order)
        except DeliveryError as error:
            if error.persisted is not Persisted.NO:
                raise
            self.failed.append(order)


# The tests


@pytest.mark.asyncio
async def test_an_order_is_announced(fake_cluster: FakeCluster) -> None:
    """The service sends an order, and the log has it."""
    fake_cluster.create_topic("orders")
    async with Producer(**fake_cluster.client_options) as producer:
        await Orders(producer).announce(b"order 1")
    assert fake_cluster.values("orders") == [b"order 1"]


@pytest.mark.asyncio
async def test_a_refused_order_is_kept(fake_cluster: FakeCluster) -> None:
    """The broker's policy refuses the first order. The service keeps that order, and still sends the next one."""
    fake_cluster.create_topic("orders")
    fake_cluster.fail("Produce", "POLICY_VIOLATION")
    async with Producer(**fake_cluster.client_options) as producer:
        orders = Orders(producer)
        await orders.announce(b"order 1")
        await orders.announce(b"order 2")
    assert orders.failed == [b"order 1"]
    assert fake_cluster.values("orders") == [b"order 2"]


@pytest.mark.asyncio
async def test_a_lost_answer_is_no_lost_order(fake_cluster: FakeCluster) -> None:
    """The connection breaks after the broker wrote the record. The producer sends it again, and the log has it once (idempotence)."""
    fake_cluster.create_topic("orders")
    fake_cluster.fail("Produce", disconnect="after")
    async with Producer(**fake_cluster.client_options, retry_backoff_ms=1) as producer:
        await Orders(producer).announce(b"order 1")
    assert fake_cluster.values("orders") == [b"order 1"]
    assert len(fake_cluster.requests("Produce")) == 2
