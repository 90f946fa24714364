"""Reads the committed offset of a consumer group from its coordinator: the position of a job (OffsetFetch, KIP-447)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.core.transactions.transaction_errors import Rpc
from aioproducer.core.transactions.transaction_state import Coordinator, Request
from aioproducer.engine.transactions import requests
from aioproducer.errors import BrokerError, ConnectionLost, KafkaError, ProtocolError, TransactionTimeout, TransportError, broker_error
from aioproducer.model import Position
from aioproducer.offsets import POSITION_PARTITION
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.engine.context import EngineContext
    from aioproducer.net.broker_node import BrokerNode
    from aioproducer.net.cluster import Cluster

__all__ = ["CommittedOffsets"]

# Seconds to wait for a connection.
_PATIENCE: Final = 3.0
# The OffsetFetch version that leaves out offsets of open transactions (KIP-447).
_FIRST_STABLE: Final = 7
# The OffsetFetch version with several groups.
_FIRST_WITH_GROUPS: Final = 8
# From version 10 on, OffsetFetch names topics by id.
_NEWEST: Final = 9
# After these errors, the coordinator is another one.
_MOVED: Final = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE")
_HINT: Final = "Call it again."


class CommittedOffsets:
    """Reads committed offsets for one producer. It has no task: a call sends its own requests, and its cancellation ends them.

    Args:
        add_coordinator: adds the address of a coordinator to the cluster. Returns False if the address is not usable.
    """

    def __init__(self, context: EngineContext, cluster: Cluster, add_coordinator: Callable[[Broker], bool]) -> None:
        self._max_block = context.config.max_block_ms / 1000
        self._request_timeout = context.config.request_timeout_ms / 1000
        self._backoff = context.backoff
        self._chance = context.chance
        self._cluster = cluster
        self._add_coordinator = add_coordinator
        # The node ids of the coordinators, by group.
        self._coordinators: dict[str, int] = {}

    async def position(self, group_id: str, topic: str) -> Position | None:
        """Return the position of a job; None: no transaction has committed one.

        Raises:
            BrokerError: the broker refuses the request, and would refuse it again.
            TransactionTimeout: there was no answer within `max_block_ms`, or the position is part of an open transaction.
        """
        trouble: KafkaError | None = None
        failures = 0
        try:
            async with asyncio.timeout(self._max_block):
                while True:
                    try:
                        return await self._ask(group_id, topic)
                    except (TransportError, BrokerError) as error:
                        if isinstance(error, BrokerError) and not error.retriable:
                            raise
                        trouble = error
                        if isinstance(error, TransportError) or error.name in _MOVED:
                            self._coordinators.pop(group_id, None)
                    failures += 1
                    await asyncio.sleep(self._backoff.after(failures, self._chance()))
        except TimeoutError:
            why = f": {trouble}" if trouble is not None else ": no answer yet"
            text = f"committed_position() of {group_id!r} did not end within max_block_ms={self._max_block * 1000:g}{why}"
            raise TransactionTimeout(text, _HINT) from trouble

    async def _ask(self, group_id: str, topic: str) -> Position | None:
        node = self._cluster.node(self._coordinators.get(group_id, -1))
        if node is None:
            node = await self._find(group_id)
        answer, version = await self._call(node, ApiKey.OFFSET_FETCH, lambda version: _request(version, group_id, topic), _NEWEST)
        if answer.throttle_time_ms > 0:
            node.throttle(answer.throttle_time_ms)
        return _read(version, answer)

    async def _find(self, group_id: str) -> BrokerNode:
        """Return the node of the group's coordinator."""
        request = Request(Rpc.FIND_COORDINATOR, Coordinator(0, group_id))
        asked = next(iter(self._cluster.candidates()), None)
        if asked is None:
            raise ConnectionLost("no broker can be asked")
        answer, version = await self._call(asked, ApiKey.FIND_COORDINATOR, lambda version: requests.find_coordinator(request.at, version))
        found = requests.read(request, version, answer)
        if found.mute_ms > 0:
            asked.throttle(found.mute_ms)
        for error in found.errors.values():
            raise error
        assert found.coordinator is not None
        broker = Broker(*found.coordinator)
        node = self._cluster.node(broker.node_id) if self._add_coordinator(broker) else None
        if node is None:
            raise ConnectionLost(f"broker {broker.node_id}, the coordinator of group {group_id!r}, has no usable address")
        self._coordinators[group_id] = broker.node_id
        return node

    async def _call(self, node: BrokerNode, key: ApiKey, body: Callable[[int], Any], newest: int | None = None) -> tuple[Any, int]:
        """Return the decoded answer and its version."""
        answer = await node.call(key, body, timeout=self._request_timeout, patience=_PATIENCE, newest=newest)
        try:
            return answer.decode(), answer.version
        except ProtocolError as error:
            node.control.distrust(error)
            raise


def _request(version: int, group_id: str, topic: str) -> Any:
    if version < _FIRST_STABLE:
        raise broker_error("UNSUPPORTED_VERSION", "the broker is older than Kafka 2.5 and shows offsets of open transactions")
    path = "OffsetFetch.request.groups.topics" if version >= _FIRST_WITH_GROUPS else "OffsetFetch.request.topics"
    topics = [message(path, name=topic, partition_indexes=[POSITION_PARTITION])]
    groups = [message("OffsetFetch.request.groups", group_id=group_id, topics=topics)] if version >= _FIRST_WITH_GROUPS else []
    return message("OffsetFetch.request", group_id=group_id, topics=topics, groups=groups, require_stable=True)


def _read(version: int, answer: Any) -> Position | None:
    """Return the position in an answer, or raise its error."""
    group = answer
    if version >= _FIRST_WITH_GROUPS:
        group = next(iter(answer.groups), None)
    if group is None:
        raise broker_error("COORDINATOR_NOT_AVAILABLE", "the answer leaves the group out")
    if group.error_code:
        raise broker_error(group.error_code)
    found = next((each for topic in group.topics for each in topic.partitions if each.partition_index == POSITION_PARTITION), None)
    if found is None:
        raise broker_error("COORDINATOR_NOT_AVAILABLE", "the answer leaves the partition out")
    if found.error_code:
        raise broker_error(found.error_code)
    return Position(found.committed_offset, found.metadata or "") if found.committed_offset >= 0 else None
