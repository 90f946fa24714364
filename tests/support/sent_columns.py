"""Makes the columns that tests of `send_columns` send, and reads their rows from a fake cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from aioproducer import Deliveries
    from aioproducer.testing import FakeCluster

__all__ = ["START", "batches", "logged", "numbered"]

START = 1_700_000_000_000


def numbered(count: int, size: int = 0) -> Any:
    return pa.array([b"%05d" % number + b"." * size for number in range(count)], pa.binary())


async def logged(
    cluster: FakeCluster, deliveries: Deliveries, partitions: int = 2
) -> list[bytes | None]:
    """Return the values at the positions that the deliveries report."""
    told = await deliveries
    logs = {
        partition: {record.offset: record.value for record in cluster.records("orders", partition)}
        for partition in range(partitions)
    }
    return [logs[metadata.partition][metadata.offset] for metadata in told]


def batches(cluster: FakeCluster) -> list[list[tuple[int, int, int, bytes]]]:
    """Return the batches of each partition: base and max timestamp, count, and the bytes of the records."""
    return [
        [
            (batch.base_timestamp, batch.max_timestamp, batch.count, bytes(batch.raw[61:]))
            for batch in cluster.log("orders", partition).batches()
        ]
        for partition in range(2)
    ]
