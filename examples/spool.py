"""Keeps records that could not be written in a file, and sends them again when the program starts anew.

`on_failed` gets the records of each failed batch. They are appended to the spool as lines of JSON, with one fsync for each batch. At the
next start they are sent before anything else. A record that may be in the log already is sent again too, with a header that says so: each
record arrives at least once.

Run it with `python examples/spool.py [FILE]`. It needs no Kafka, as the cluster is a fake within this process: its only broker dies while
orders are sent, and lives again at the second start of the program.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pathlib
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from aioproducer import DeliveryError, FailedRecord, Persisted, Producer
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ORDERS = 200
MAYBE = "sent-before", b"maybe"


def encoded(data: bytes | None) -> str | None:
    """Return bytes as text for JSON; None stays None: a tombstone is no empty value."""
    return None if data is None else base64.b64encode(data).decode()


def decoded(text: str | None) -> bytes | None:
    """Return the bytes of such a text."""
    return None if text is None else base64.b64decode(text)


def line_of(record: FailedRecord) -> bytes:
    """Return the line of a record."""
    headers = [(name, encoded(value)) for name, value in record.headers]
    fields = [
        record.topic,
        encoded(record.value),
        encoded(record.key),
        record.partition,
        record.timestamp_ms,
        headers,
        record.persisted,
    ]
    return json.dumps(fields).encode() + b"\n"


def record_of(line: bytes) -> FailedRecord:
    """Return the record of a line."""
    topic, value, key, partition, timestamp_ms, headers, persisted = json.loads(line)
    pairs = tuple((name, decoded(text)) for name, text in headers)
    return FailedRecord(
        topic, decoded(value), decoded(key), partition, timestamp_ms, pairs, Persisted(persisted)
    )


class Spool:
    """Holds records in a file, and in another one those that are being sent again."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.replaying = path.with_suffix(".replaying")

    def keep(self, error: DeliveryError, records: Sequence[FailedRecord]) -> None:
        """Append the records of a failed batch. The event loop calls it (`on_failed`)."""
        with self.path.open("ab") as file:
            file.write(b"".join(map(line_of, records)))
            file.flush()
            os.fsync(file.fileno())
        print(f"spooled {len(records)} records: {error.code}, persisted={error.persisted}")

    def read(self) -> Iterator[FailedRecord]:
        """Yield the records that are to be sent again. A last line that is cut off, because the program died in its write, is left out."""
        with self.replaying.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield record_of(line)

    async def replay(self, producer: Producer) -> int:
        """Send all records again, and return their number. The producer has `keep` as its `on_failed`, which has ended when `flush` returns.

        A record that fails again is in the new spool. If the program dies meanwhile, the next start sends all of them once more.
        """
        sent = 0
        # First what an earlier start did not finish.
        for _ in range(2):
            if not self.replaying.exists() and self.path.exists():
                self.path.rename(self.replaying)
            if self.replaying.exists():
                for record in self.read():
                    mark = () if record.persisted is Persisted.NO else (MAYBE,)
                    await producer.send(
                        record.topic,
                        record.value,
                        record.key,
                        record.partition,
                        record.timestamp_ms,
                        (*record.headers, *mark),
                    )
                    sent += 1
                await producer.flush()
                self.replaying.unlink()
        return sent


async def program(
    options: dict[str, Any], spool: Spool, orders: range, cluster: FakeCluster | None = None
) -> None:
    """Send what an earlier run could not, then these orders. The broker of `cluster` dies half-way."""
    async with Producer(**options, on_failed=spool.keep, close_timeout_ms=500) as producer:
        print(f"{await spool.replay(producer)} records sent again")
        for number in orders:
            if cluster is not None and number == orders[len(orders) // 2]:
                await producer.flush()
                await cluster.brokers[1].stop()
            # Every tenth order is cancelled: a record without a value.
            value = None if number % 10 == 0 else b'{"order": %d}' % number
            await producer.send("orders", value, b"order-%d" % number, headers={"source": "shop"})


async def main(path: pathlib.Path) -> None:
    """Run the program twice."""
    spool = Spool(path)
    async with FakeCluster() as cluster:
        cluster.create_topic("orders", partitions=3)
        await program(cluster.client_options, spool, range(ORDERS), cluster)
        print(f"in Kafka: {len(cluster.records('orders'))} of {ORDERS} orders")
        await cluster.brokers[1].start()
        await program(cluster.client_options, spool, range(0))
        records = cluster.records("orders")
        tombstones = sum(record.value is None for record in records)
        print(
            f"in Kafka: {len(records)} records of {len({record.key for record in records})} orders, {tombstones} without a value"
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(
            main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else f"{folder}/orders.spool"))
        )
