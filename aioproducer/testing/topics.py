"""The topics of a fake cluster: their ids, configuration, partitions and leaders."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aioproducer.testing.log import PartitionLog

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

__all__ = ["Partition", "Topic", "Topics", "is_legal_name"]

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MAX_MESSAGE_BYTES: Final = 1_048_588  # Kafka's default of max.message.bytes
_REPLICAS: Final = 3


def is_legal_name(name: str) -> bool:
    """Return whether Kafka allows a topic's name."""
    return _LEGAL.fullmatch(name) is not None and name not in {".", ".."}


@dataclass(slots=True, eq=False)
class Partition:
    """Holds one partition. `leader` is None while it has no leader."""

    index: int
    leader: int | None
    replicas: tuple[int, ...]
    log: PartitionLog
    leader_epoch: int = 0


@dataclass(slots=True, eq=False)
class Topic:
    """Holds one topic; `topic_id` has 16 bytes."""

    name: str
    topic_id: bytes
    config: Mapping[str, str]
    partitions: list[Partition] = field(default_factory=list)

    def partition(self, index: int) -> Partition | None:
        """Return a partition by its number, or None."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class Topics:
    """Holds all topics, by name and by id.

    Args:
        brokers: the current brokers, read at each call; they get partitions in round-robin order.
        verify: decode every record on append.
    """

    def __init__(self, brokers: Collection[int], *, verify: bool) -> None:
        self._brokers = brokers
        self._verify = verify
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def named(self, name: str) -> Topic | None:
        """Return a topic by its name, or None."""
        return self._by_name.get(name)

    def identified(self, topic_id: bytes) -> Topic | None:
        """Return a topic by its id, or None."""
        return self._by_id.get(topic_id)

    def existing(self, name: str) -> Topic:
        """Return a topic by its name.

        Raises:
            ValueError: there is none.
        """
        topic = self._by_name.get(name)
        if topic is None:
            raise ValueError(
                f"the fake cluster has no topic {name!r}; it has {sorted(self._by_name) or 'none'}"
            )
        return topic

    def create(self, name: str, partitions: int, config: Mapping[str, object]) -> Topic:
        """Create a topic.

        Raises:
            ValueError: the topic exists, or Kafka would refuse its name, number of partitions or configuration.
        """
        if not is_legal_name(name):
            raise ValueError(f"{name!r} is no name of a topic: up to 249 of a-z A-Z 0-9 . _ -")
        if name in self._by_name:
            raise ValueError(f"the fake cluster has a topic {name!r} already")
        topic = Topic(name, uuid.uuid4().bytes, {key: str(value) for key, value in config.items()})
        # raises for a wrong configuration before the topic is stored
        _log(topic, verify=False)
        self._extend(topic, partitions)
        self._by_name[name] = self._by_id[topic.topic_id] = topic
        return topic

    def grow(self, name: str, partitions: int) -> None:
        """Raise a topic's number of partitions to `partitions`.

        Raises:
            ValueError: the topic has as many already.
        """
        topic = self.existing(name)
        if partitions <= len(topic.partitions):
            raise ValueError(
                f"{name!r} has {len(topic.partitions)} of them: the number of partitions only grows"
            )
        self._extend(topic, partitions)

    def delete(self, name: str) -> None:
        """Delete a topic and its log. A topic that is created again gets another id."""
        topic = self.existing(name)
        del self._by_name[name], self._by_id[topic.topic_id]

    def replace_broker(self, old: int, new: int | None) -> None:
        """Give a broker's replicas to another one; with None remove them, and let another replica or broker lead."""
        brokers = tuple(node for node in self._brokers if node != old)
        for topic in self:
            for partition in topic.partitions:
                kept = tuple(new if node == old else node for node in partition.replicas)
                partition.replicas = tuple(node for node in kept if node is not None) or brokers[:1]
                if partition.leader == old:
                    partition.leader = partition.replicas[0] if new is None else new
                    partition.leader_epoch += 1

    def _extend(self, topic: Topic, partitions: int) -> None:
        if partitions < 1:
            raise ValueError(f"a topic has at least 1 partition, not {partitions}")
        brokers = tuple(self._brokers)
        count = len(brokers)
        for index in range(len(topic.partitions), partitions):
            replicas = tuple(
                brokers[(index + step) % count] for step in range(min(count, _REPLICAS))
            )
            topic.partitions.append(
                Partition(index, replicas[0], replicas, _log(topic, verify=self._verify))
            )


def _log(topic: Topic, *, verify: bool) -> PartitionLog:
    timestamps = topic.config.get("message.timestamp.type", "CreateTime")
    if timestamps not in {"CreateTime", "LogAppendTime"}:
        raise ValueError(
            f"message.timestamp.type is CreateTime or LogAppendTime, not {timestamps!r}"
        )
    limit = int(topic.config.get("max.message.bytes", _MAX_MESSAGE_BYTES))
    return PartitionLog(
        max_message_bytes=limit, stamps_time=timestamps == "LogAppendTime", verify=verify
    )
