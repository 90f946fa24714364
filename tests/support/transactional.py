"""A transactional producer and a reader by hand, request by request: for questions that no client library would ask."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from fake_requests import batch, topic
from group_members import named as told

from aioproducer.testing.record_batches import read_batches
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.testing.client import WireClient

TRANSACTIONAL = 0x10
_NOT_READY = {14, 15, 16}  # the coordinator is being found
_BUSY = 51  # CONCURRENT_TRANSACTIONS


class Seen(NamedTuple):
    """Holds the part of a partition that a Fetch gives to a reader."""

    batches: list[tuple[int, int, int, bool]]
    aborted: list[int]
    stable: int
    end: int


class Hand:
    """One producer. It takes its producer id and epoch from the last answer.

    Args:
        client: asks the bootstrap broker, which leads and coordinates all.
        topic: where it writes.
        transactional_id: None: idempotent only.
        version: of the transactions' protocol, 1 or 2.
    """

    def __init__(
        self, client: WireClient, topic: str, transactional_id: str | None = None, version: int = 2
    ) -> None:
        self.client = client
        self.topic = topic
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = -1
        self.epoch = -1
        self.time = int(
            time.time() * 1000
        )  # a broker rolls its segment when times are far apart, and reads one at a time
        self._sequences: dict[int, int] = {}

    async def init(
        self, *, retries: bool = True, named: tuple[int, int] | None = None, **fields: Any
    ) -> str:
        """InitProducerId; with `retries`, until the coordinator is there and the transaction of before has ended."""
        producer_id, epoch = named or (-1, -1)
        asked = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": 60_000,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }
        if self.transactional_id is not None:
            await self.client.ask(
                ApiKey.FIND_COORDINATOR,
                version=4,
                key_type=1,
                coordinator_keys=[self.transactional_id],
            )
        answer = await self._ask(ApiKey.INIT_PRODUCER_ID, retries=retries, **{**asked, **fields})
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        return told(answer.error_code)

    async def add(self, *partitions: int, name: str | None = None, **fields: Any) -> dict[int, str]:
        """AddPartitionsToTxn."""
        topics = [
            message(
                "AddPartitionsToTxn.request.topics", name=name or self.topic, partitions=partitions
            )
        ]
        answer = await self._ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, **{**self._who, "version": 3, "topics": topics, **fields}
        )
        return _by_partition(answer)

    async def add_offsets(self, group: str, **fields: Any) -> str:
        """AddOffsetsToTxn."""
        return told(
            (
                await self._ask(
                    ApiKey.ADD_OFFSETS_TO_TXN, **{**self._who, "group_id": group, **fields}
                )
            ).error_code
        )

    async def commit_offsets(
        self, group: str, offsets: Mapping[int, int], **fields: Any
    ) -> dict[int, str]:
        """TxnOffsetCommit."""
        path = "TxnOffsetCommit.request.topics"
        partitions = [
            message(
                f"{path}.partitions",
                partition_index=partition,
                committed_offset=offset,
                committed_metadata=fields.pop("metadata", "m"),
            )
            for partition, offset in offsets.items()
        ]
        topics = [message(path, name=fields.pop("name", self.topic), partitions=partitions)]
        asked = {
            **self._who,
            "group_id": group,
            "version": 5 if self.version > 1 else 4,
            "topics": topics,
            **fields,
        }
        answer = await self._ask(ApiKey.TXN_OFFSET_COMMIT, **asked)
        return _by_partition(answer)

    async def end(
        self, *, commit: bool, retries: bool = True, **fields: Any
    ) -> tuple[str, bool, int]:
        """Send EndTxn. Returns its error, whether the producer id is the same, and the growth of the epoch. The producer takes the
        answered id.
        """
        asked = {
            **self._who,
            "version": 5 if self.version > 1 else 4,
            "committed": commit,
            **fields,
        }
        answer = await self._ask(ApiKey.END_TXN, retries=retries, **asked)
        if answer.error_code or answer.producer_id < 0:
            return told(answer.error_code), True, 0
        ended = (
            "",
            answer.producer_id == asked["producer_id"],
            answer.producer_epoch - asked["producer_epoch"],
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        return ended

    async def write(
        self, *values: bytes, partition: int = 0, sequence: int | None = None, **fields: Any
    ) -> tuple[str, int, int]:
        """Produce a batch: its error, its offset, the time that it was given after `time`. Sequences go on by themselves."""
        is_transactional = fields.pop("transactional", self.transactional_id is not None)
        first = self._sequences.get(partition, 0) if sequence is None else sequence
        sent = batch(
            *values,
            attributes=TRANSACTIONAL if is_transactional else 0,
            producer_id=fields.pop("producer_id", self.producer_id),
            epoch=fields.pop("epoch", self.epoch),
            sequence=first,
            time=self.time,
        )
        asked = {
            "version": 12 if self.version > 1 else 11,
            "acks": -1,
            "timeout_ms": 5000,
            "transactional_id": self.transactional_id,
            "topics": [topic(fields.pop("name", self.topic), {partition: sent})],
        }
        retries = fields.pop("retries", True)
        answer = await self._ask(ApiKey.PRODUCE, retries=retries, **{**asked, **fields})
        (part,) = answer.topics[0].partitions
        if not part.error_code and sequence is None:
            self._sequences[partition] = first + len(values)
        given = part.log_append_time_ms
        return told(part.error_code), part.base_offset, given if given < 0 else given - self.time

    async def read(self, partition: int = 0, offset: int = 0, *, committed: bool = True) -> Seen:
        """Fetch, once: base offset, count, producer's epoch and whether it is a marker, of each batch."""
        path = "Fetch.request.topics"
        part = message(
            f"{path}.partitions",
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
        )
        asked = message(path, topic=self.topic, partitions=[part])
        answer = await self.client.ask(
            ApiKey.FETCH, version=12, max_wait_ms=0, isolation_level=int(committed), topics=[asked]
        )
        (found,) = answer.responses[0].partitions
        batches = [
            (one.base_offset, one.count, one.producer_epoch, one.is_control)
            for one in read_batches(found.records or b"")
        ]
        aborted = [one.first_offset for one in found.aborted_transactions or ()]
        return Seen(batches, aborted, found.last_stable_offset, found.high_watermark)

    async def settle(self, partition: int = 0) -> None:
        """Until every transaction in a partition has ended."""
        async with asyncio.timeout(20):
            while (seen := await self.read(partition)).stable < seen.end:
                await asyncio.sleep(0.02)

    async def grown(self, end: int, partition: int = 0) -> None:
        """Until a partition has so many records and markers."""
        async with asyncio.timeout(20):
            while (await self.read(partition)).end < end:
                await asyncio.sleep(0.02)

    async def last_offset(self, timestamp: int = -1, *, committed: bool = True) -> tuple[str, int]:
        """ListOffsets."""
        path = "ListOffsets.request.topics"
        part = message(f"{path}.partitions", partition_index=0, timestamp=timestamp)
        topics = [message(path, name=self.topic, partitions=[part])]
        answer = await self.client.ask(
            ApiKey.LIST_OFFSETS, replica_id=-1, isolation_level=int(committed), topics=topics
        )
        (found,) = answer.topics[0].partitions
        return told(found.error_code), found.offset

    @property
    def _who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id or "",
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def _ask(self, key: ApiKey, *, retries: bool = True, **fields: Any) -> Any:
        async with asyncio.timeout(30):
            while True:
                answer = await self.client.ask(key, **fields)
                again = _NOT_READY | {_BUSY} if retries else _NOT_READY
                if not again & _codes(answer):
                    return answer
                await asyncio.sleep(0.02)


def _by_partition(answer: Any) -> dict[int, str]:
    """The errors of an answer about one topic, in the order of its partitions."""
    parts = sorted(answer.topics[0].partitions, key=lambda part: part.partition_index)
    return {part.partition_index: told(part.error_code) for part in parts}


def _codes(answer: Any) -> set[int]:
    """Every error in an answer."""
    parts = [part for one in getattr(answer, "topics", ()) for part in one.partitions]
    return {part.error_code for part in (answer, *parts) if hasattr(part, "error_code")}
