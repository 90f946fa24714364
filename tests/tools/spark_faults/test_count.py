"""The count sees rows that are lost, doubled, strange or aborted, and a transaction that stays open."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest

from aioproducer import Producer
from tests.tools.spark_faults.count import Counted, count

if TYPE_CHECKING:
    from aioproducer.testing.kafka_server import ServerThread

pytestmark = pytest.mark.integration


def test_what_is_counted(kafka_server: ServerThread) -> None:
    """Of the rows 0 to 9, 8 and 9 are missing, 0 is there twice, 77 was never one, and three were aborted."""
    topic = f"counted-{uuid.uuid4().hex[:8]}"
    kafka_server.create_topic(topic, 2)

    async def write() -> None:
        async with Producer(
            bootstrap_servers=kafka_server.bootstrap_servers, transactional_id=topic
        ) as producer:
            await producer.begin_transaction()
            await producer.send_many(topic, [b"%d xx" % number for number in (5, 6, 7)])
            await producer.flush()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_many(
                    topic, [b"%d xx" % number for number in (*range(8), 0, 77)]
                )

    asyncio.run(write())
    counted = count(kafka_server.bootstrap_servers, topic, 10)
    assert counted == Counted(records=10, lost=2, doubled=1, strange=1, aborted=3, is_stuck=False)


def test_an_open_transaction_is_seen(kafka_server: ServerThread) -> None:
    """Rows behind it are not read, and the count says why."""
    topic = f"stuck-{uuid.uuid4().hex[:8]}"
    kafka_server.create_topic(topic)

    async def counted() -> Counted:
        async with Producer(
            bootstrap_servers=kafka_server.bootstrap_servers, transactional_id=topic
        ) as producer:
            await producer.begin_transaction()
            await producer.send_many(topic, [b"0 xx"])
            await producer.flush()
            found = await asyncio.to_thread(
                count, kafka_server.bootstrap_servers, topic, 1, seconds=1.5
            )
            await producer.abort_transaction()
            return found

    assert asyncio.run(counted()) == Counted(
        records=0, lost=1, doubled=0, strange=0, aborted=1, is_stuck=True
    )
