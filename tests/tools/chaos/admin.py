"""Sends admin requests to the cluster with kafka-python's admin client.

Each request runs in a thread, on connections of its own. `Admin` sends every request again until the
cluster answers it, as nodes are missing at times.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # the warning is about how kafka-python reads its own files
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

logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it logs every node that is away


class Partition(NamedTuple):
    """Holds the leader, the replicas and the in-sync replicas of one partition."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: frozenset[int]


class Admin:
    """Sends admin requests to one cluster."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers.split(",")

    async def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic, by number."""
        [found] = await self._ask(lambda client: client.describe_topics([topic]))
        return sorted(
            Partition(
                one["partition_index"],
                one["leader_id"],
                tuple(one["replica_nodes"]),
                frozenset(one["isr_nodes"]),
            )
            for one in found["partitions"]
        )

    async def until_whole(self, topics: Sequence[str], copies: int) -> None:
        """Wait until each partition has the given number of replicas, all in sync, and a leader."""
        for topic in topics:
            async with asyncio.timeout(_PATIENCE):
                while not all(
                    one.leader >= 0 and len(one.in_sync) == copies
                    for one in await self.partitions(topic)
                ):
                    await asyncio.sleep(_POLL)

    async def grow(self, topic: str, count: int) -> None:
        """Give a topic more partitions, `count` in all."""
        if len(await self.partitions(topic)) < count:
            await self._ask(lambda client: client.create_partitions({topic: count}))

    async def delete(self, topic: str) -> None:
        """Delete a topic."""
        await self._ask(lambda client: client.delete_topics([topic]))

    async def elect_preferred(self, topic: str) -> None:
        """Elect the first replica of each partition as its leader."""
        numbers = [one.number for one in await self.partitions(topic)]
        await self._ask(
            lambda client: client.elect_leaders(_PREFERRED, {topic: numbers}, raise_errors=False)
        )

    async def reassign(self, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
        """Give partitions other replicas, and wait until these are in place."""
        wanted = {TopicPartition(topic, number): list(nodes) for number, nodes in replicas.items()}
        await self._ask(lambda client: client.alter_partition_reassignments(wanted))
        async with asyncio.timeout(_PATIENCE):
            while await self._ask(
                lambda client: client.list_partition_reassignments({topic: list(replicas)})
            ):
                await asyncio.sleep(_POLL)

    async def set_feature(self, name: str, level: int) -> None:
        """Finalize another level of a feature, as `kafka-features` does. The level may be lower."""

        def change(client: Any) -> Any:
            [_, now] = client.describe_features()[name]["finalized"]
            kind = UpdateFeatureType.SAFE_DOWNGRADE if level < now else UpdateFeatureType.UPGRADE
            return now if now == level else client.update_features({name: (kind, level)})[name]

        answer = await self._ask(change)
        if answer not in {level, "OK"}:
            raise RuntimeError(f"{name}={level}: {answer}")

    async def open_ends(self, topic: str) -> list[int]:
        """Return the partitions of a topic with an open transaction. Readers of committed records stop before the end there."""
        places = [TopicPartition(topic, one.number) for one in await self.partitions(topic)]
        ends = []
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            found = await self._ask(
                lambda client, level=level: client.list_partition_offsets(
                    dict.fromkeys(places, OffsetSpec.LATEST), isolation_level=level
                )
            )
            ends.append({place.partition: one.offset for place, one in found.items()})
        return [number for number, end in ends[0].items() if end != ends[1][number]]

    async def _ask(self, question: Callable[[Any], T]) -> T:
        """Return the answer. Errors of a cluster in which nodes are missing lead to another attempt."""

        def asked() -> T:
            client = KafkaAdminClient(
                bootstrap_servers=self._bootstrap_servers,
                request_timeout_ms=10_000,
                bootstrap_timeout_ms=10_000,
            )
            with contextlib.closing(client):
                return question(client)

        async with asyncio.timeout(_PATIENCE):
            while True:
                try:
                    return await asyncio.to_thread(asked)
                except (TheirError, OSError):
                    await asyncio.sleep(_POLL)
