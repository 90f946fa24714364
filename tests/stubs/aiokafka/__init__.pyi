# What examples and pages use of aiokafka, which has no types.

from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

class TopicPartition(NamedTuple):
    topic: str
    partition: int

class ConsumerRebalanceListener:
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None: ...
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None: ...

class AIOKafkaConsumer:
    def __init__(self, *topics: str, **options: Any) -> None: ...
    def subscribe(
        self, topics: Collection[str], *, listener: ConsumerRebalanceListener | None = None
    ) -> None: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Any]]: ...
    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> Mapping[TopicPartition, int | None]: ...

class RecordMetadata(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int | None

class AIOKafkaProducer:
    def __init__(self, **options: Any) -> None: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def flush(self) -> None: ...
    async def partitions_for(self, topic: str) -> set[int]: ...
    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
    ) -> Awaitable[RecordMetadata]: ...
    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes]] | None = None,
    ) -> RecordMetadata: ...
