"""Batches and requests for the tests of the fake, made by hand: what a producer would refuse to send must be sendable here."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from aioproducer.records.varints import varint
from aioproducer.testing.client import WireClient
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.testing import FakeCluster

HEADER = struct.Struct(">hiqqqhii")
TIME = 1_700_000_000_000


def client(cluster: FakeCluster, **options: Any) -> WireClient:
    """Return a client of a fake cluster, in memory if the cluster is."""
    return WireClient(cluster.bootstrap_servers, dialer=cluster.network, **options)


def batch(
    *values: bytes | None,
    count: int | None = None,
    last_delta: int | None = None,
    attributes: int = 0,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    time: int = TIME,
) -> bytes:
    """A sound batch, but for what is given; record n has timestamp `time` + n."""
    payload = b"".join(record(index, value) for index, value in enumerate(values))
    count = len(values) if count is None else count
    last_delta = count - 1 if last_delta is None else last_delta
    end = time + len(values) - 1
    tail = (
        HEADER.pack(attributes, last_delta, time, end, producer_id, epoch, sequence, count)
        + payload
    )
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail)) + tail


def record(index: int, value: bytes | None) -> bytes:
    encoded = b"\x01" if value is None else varint(len(value)) + value
    body = b"\x00" + varint(index) + varint(index) + b"\x01" + encoded + b"\x00"
    return varint(len(body)) + body


def topic(name: str, partitions: dict[int, bytes | None], topic_id: bytes = bytes(16)) -> Any:
    asked = [
        message("Produce.request.topics.partitions", index=index, records=records)
        for index, records in partitions.items()
    ]
    return message("Produce.request.topics", name=name, topic_id=topic_id, partitions=asked)


async def produce(
    client: WireClient,
    records: bytes | None,
    name: str = "orders",
    partition: int = 0,
    *,
    version: int = 9,
    acks: int = -1,
    node: int | None = None,
    topic_id: bytes = bytes(16),
    transactional_id: str | None = None,
) -> Any:
    """The answer of the one partition."""
    answer = await client.ask(
        ApiKey.PRODUCE,
        node=node,
        version=version,
        acks=acks,
        timeout_ms=1000,
        transactional_id=transactional_id,
        topics=[topic(name, {partition: records}, topic_id)],
    )
    return answer.topics[0].partitions[0]


async def fetch(
    client: WireClient,
    offsets: dict[int, int],
    name: str = "orders",
    *,
    version: int = 12,
    **fields: Any,
) -> Any:
    """The whole answer."""
    partitions = [
        message(
            "Fetch.request.topics.partitions",
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
        )
        for index, offset in offsets.items()
    ]
    asked = message(
        "Fetch.request.topics",
        topic=name,
        topic_id=fields.pop("topic_id", bytes(16)),
        partitions=partitions,
    )
    fields = {"max_wait_ms": 0, "min_bytes": 1, **fields}
    return await client.ask(ApiKey.FETCH, version=version, topics=[asked], **fields)


def bodies(batches: Sequence[bytes]) -> list[bytes]:
    """Batches without what the broker stamps."""
    return [sent[16:] for sent in batches]
