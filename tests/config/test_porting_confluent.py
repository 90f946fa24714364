"""docs/topics/porting.md, its section about confluent-kafka: the ported program writes the same, keys stay in their partitions."""

from __future__ import annotations

import asyncio
import pathlib
import re
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.aio import AIOProducer

import aioproducer
from aioproducer.testing import FakeCluster

PAGE = (pathlib.Path(__file__).parents[2] / "docs/topics/porting.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## From confluent-kafka")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
# A program for confluent-kafka that writes what the page's program for us writes.
READINGS = ["20.5", "21", "21.5"]


async def run_confluents(cluster: FakeCluster) -> list[int]:
    """Send the readings by confluent-kafka's producer for asyncio. Returns their offsets."""
    producer = AIOProducer(
        {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "mine", "linger.ms": 1}
    )
    futures = [
        await producer.produce("readings", value=reading, key=b"sensor-1") for reading in READINGS
    ]
    assert await producer.flush() == 0
    messages = await asyncio.gather(*futures)
    await producer.close()
    return [message.offset() for message in messages]


def of_page(number: int) -> dict[str, Any]:
    """Run a block of the page. Returns its names."""
    names: dict[str, Any] = {}
    exec(compile(BLOCKS[number], "porting.md", "exec", dont_inherit=True), names)  # our own page
    return names


@pytest.mark.asyncio
async def test_a_program_ported_from_confluents_writes_the_same() -> None:
    """The page's program, with the dict of options as it was."""
    logs = []
    for is_ported in (False, True):
        async with FakeCluster() as cluster:
            cluster.create_topic("readings")
            conf = {
                "bootstrap.servers": cluster.bootstrap_servers,
                "client.id": "mine",
                "linger.ms": 1,
            }
            offsets = (
                await of_page(0)["publish"](conf, READINGS)
                if is_ported
                else await run_confluents(cluster)
            )
            logs.append(
                (offsets, [(record.key, record.value) for record in cluster.records("readings")])
            )
            assert cluster.violations == []
    assert (
        logs[0] == logs[1] == ([0, 1, 2], [(b"sensor-1", reading.encode()) for reading in READINGS])
    )


@pytest.mark.asyncio
async def test_keys_stay_in_the_partitions_of_librdkafkas_default() -> None:
    """The page's partitioner chooses as confluent-kafka without an option does; Kafka's own, which both have by name, chooses otherwise."""
    keys = [b"key-%d" % number for number in range(40)]
    chosen = []
    for theirs, ours in (
        ({}, of_page(1)["consistent_random"]),
        ({"partitioner": "murmur2_random"}, None),
    ):
        async with FakeCluster() as cluster:
            cluster.create_topic("orders", partitions=5)
            confluents = confluent_kafka.Producer(
                {"bootstrap.servers": cluster.bootstrap_servers, **theirs}
            )
            for key in keys:
                confluents.produce("orders", b"v", key)
            assert await asyncio.to_thread(confluents.flush, 60) == 0
            first = [
                {record.key for record in cluster.records("orders", partition)}
                for partition in range(5)
            ]
            async with aioproducer.Producer(**cluster.client_options, partitioner=ours) as producer:
                await (
                    await producer.send_many(
                        "orders", [aioproducer.Record(b"v", key) for key in keys]
                    )
                )
                if ours is not None:
                    await producer.send_and_wait("orders", b"v")
            assert [
                {record.key for record in cluster.records("orders", partition)} - {None}
                for partition in range(5)
            ] == first
            chosen.append(first)
    assert chosen[0] != chosen[1]
