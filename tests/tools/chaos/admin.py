"""What is asked of the cluster itself: by kafka-python's admin client, each question from a thread, on connections of its own.

Every question is asked again until it is answered, as nodes are missing at times. Knows nothing of producers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its own files
    from kafka import IsolationLevel, KafkaAdminClient, OffsetSpec, TopicPartition
    from kafka.admin import UpdateFeatureType
    from kafka.errors import KafkaError as TheirError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Admin", "Partition"]

T = TypeVar("T")
_PATIENCE: Final = 120.0
_POLL: Final = 0.3
_PREFERRED: Final = 0

logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it tells of every node that is away


class Partition(NamedTuple):
    """Of one partition: who leads it, who has it, who is up to date."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: frozenset[int]


class Admin:
    """Asks one cluster."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers.split(",")

    async def partitions(self, topic: str) -> list[Partition]:
        """The partitions of a topic, by number."""
        [found] = await self._ask(lambda client: client.describe_topics([topic]))
        return sorted(
            Partition(one["partition_index"], one["leader_id"], tuple(one["replica_nodes"]), frozenset(one["isr_nodes"]))
            for one in found["partitions"]
        )

    async def until_whole(self, topics: Sequence[str], copies: int) -> None:
        """Wait until each partition has so many replicas, all in sync, and a leader."""
        for topic in topics:
            async with asyncio.timeout(_PATIENCE):
                while not all(one.leader >= 0 and len(one.in_sync) == copies for one in await self.partitions(topic)):
                    await asyncio.sleep(_POLL)

    async def grow(self, topic: str, count: int) -> None:
        """Give a topic more partitions, `count` in all."""
        if len(await self.partitions(topic)) < count:
            await self._ask(lambda client: client.create_partitions({topic: count}))

    async def delete(self, topic: str) -> None:
        """Delete a topic."""
        await self._ask(lambda client: client.delete_topics([topic]))

    async def elect_preferred(self, topic: str) -> None:
        """Let the first replica of each partition lead it."""
        numbers = [one.number for one in await self.partitions(topic)]
        await self._ask(lambda client: client.elect_leaders(_PREFERRED, {topic: numbers}, raise_errors=False))

    async def reassign(self, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
        """Give partitions other replicas, and wait until they are there."""
        wanted = {TopicPartition(topic, number): list(nodes) for number, nodes in replicas.items()}
        await self._ask(lambda client: client.alter_partition_reassignments(wanted))
        async with asyncio.timeout(_PATIENCE):
            while await self._ask(lambda client: client.list_partition_reassignments({topic: list(replicas)})):
                await asyncio.sleep(_POLL)

    async def set_feature(self, name: str, level: int) -> None:
        """Finalize another level of a feature, a lower one, too, as `kafka-features` does."""

        def change(client: Any) -> Any:
            [_, now] = client.describe_features()[name]["finalized"]
            kind = UpdateFeatureType.SAFE_DOWNGRADE if level < now else UpdateFeatureType.UPGRADE
            return now if now == level else client.update_features({name: (kind, level)})[name]

        answer = await self._ask(change)
        if answer not in {level, "OK"}:
            raise RuntimeError(f"{name}={level}: {answer}")

    async def open_ends(self, topic: str) -> list[int]:
        """The partitions of a topic in which a transaction is open: there readers of committed records stop before the end."""
        places = [TopicPartition(topic, one.number) for one in await self.partitions(topic)]
        ends = []
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            found = await self._ask(
                lambda client, level=level: client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST), isolation_level=level)
            )
            ends.append({place.partition: one.offset for place, one in found.items()})
        return [number for number, end in ends[0].items() if end != ends[1][number]]

    async def _ask(self, question: Callable[[Any], T]) -> T:
        """The answer; errors of a cluster that is not whole are waited out."""

        def asked() -> T:
            client = KafkaAdminClient(bootstrap_servers=self._bootstrap_servers, request_timeout_ms=10_000, bootstrap_timeout_ms=10_000)
            with contextlib.closing(client):
                return question(client)

        async with asyncio.timeout(_PATIENCE):
            while True:
                try:
                    return await asyncio.to_thread(asked)
                except (TheirError, OSError):
                    await asyncio.sleep(_POLL)
