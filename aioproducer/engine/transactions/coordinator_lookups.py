"""Finds the coordinators of groups and of transactional ids, and remembers them.

The keys that are looked up in one event-loop iteration share a request (KIP-699), so that hundreds of transactions can be ended at once.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.core.transactions.transaction import Coordinator, Request
from aioproducer.core.transactions.transaction_errors import Rpc
from aioproducer.engine.transactions import requests
from aioproducer.errors import BrokerError, ConnectionLost, KafkaError, TransportError
from aioproducer.net.cluster import BrokerNode
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.metadata.metadata_updater import MetadataUpdater
    from aioproducer.net.cluster import Cluster

__all__ = ["PATIENCE", "CoordinatorLookups"]

# Seconds to wait for a connection.
PATIENCE: Final = 3.0
# Keys of one request.
_MOST: Final = 100
# Coordinators that are remembered.
_MOST_KNOWN: Final = 16_384


class CoordinatorLookups:
    """Holds the node ids of the known coordinators, and looks up the others.

    Args:
        updater: adds the address of a coordinator to the cluster.
    """

    def __init__(self, context: EngineContext, cluster: Cluster, updater: MetadataUpdater) -> None:
        self._request_timeout = context.config.request_timeout_ms / 1000
        self._supervisor = context.supervisor
        self._cluster = cluster
        self._updater = updater
        self._loop = asyncio.get_running_loop()
        self._known: dict[Coordinator, int] = {}
        # The keys of the next request, by key type; and all keys that are looked up.
        self._next: dict[int, list[Coordinator]] = {}
        self._found: dict[Coordinator, asyncio.Future[BrokerNode]] = {}

    def forget(self, at: Coordinator) -> None:
        """Forget a coordinator, because it is another broker now, or cannot be reached."""
        self._known.pop(at, None)

    async def find(self, at: Coordinator) -> BrokerNode:
        """Return the node of a coordinator.

        Raises:
            TransportError: no broker can be asked, or none answered, or the coordinator has no usable address.
            BrokerError: the broker that was asked does not name it.
        Cancellation: the request goes on, for the other calls that wait for it.
        """
        return (await self.find_all([at]))[at]

    async def find_all(self, coordinators: Iterable[Coordinator]) -> dict[Coordinator, BrokerNode]:
        """Return the nodes of several coordinators, which are looked up together. Raises: as `find`."""
        found = {at: self._cluster.node(self._known.get(at, -1)) or self._look_up(at) for at in coordinators}
        return {at: node if isinstance(node, BrokerNode) else await asyncio.shield(node) for at, node in found.items()}

    def _look_up(self, at: Coordinator) -> asyncio.Future[BrokerNode]:
        found = self._found.get(at)
        if found is None:
            found = self._found[at] = self._loop.create_future()
            self._add(at)
        return found

    def _add(self, at: Coordinator) -> None:
        together = self._next.get(at.key_type)
        if together is not None:
            together.append(at)
            return
        together = self._next[at.key_type] = [at]
        if self._supervisor.spawn(self._run(at.key_type, together), "look-up of coordinators") is None:
            self._next.pop(at.key_type, None)
            self._end(together, ConnectionLost("no broker can be asked"))

    async def _run(self, key_type: int, keys: list[Coordinator]) -> None:
        """Look up the keys of one event-loop iteration. The body of a task."""
        trouble: KafkaError = ConnectionLost("the look-up of coordinators was ended")
        try:
            await asyncio.sleep(0)
            self._next.pop(key_type, None)
            left = keys
            while left:
                left = await self._ask(key_type, left)
        except (TransportError, BrokerError) as error:
            trouble = error
        finally:
            if self._next.get(key_type) is keys:
                del self._next[key_type]
            self._end(keys, trouble)

    def _end(self, keys: list[Coordinator], error: KafkaError) -> None:
        """End the look-ups that have not ended."""
        for at in keys:
            self._fail(at, error)

    def _fail(self, at: Coordinator, error: KafkaError) -> None:
        found = self._found.pop(at, None)
        if found is not None and not found.done():
            found.set_exception(error)
            # The calls that wait for it may have been cancelled.
            found.exception()

    async def _ask(self, key_type: int, keys: list[Coordinator]) -> list[Coordinator]:
        """Ask a broker for as many keys as one request has. Returns the keys that are left."""
        node = await self._cluster.reach(PATIENCE)
        asked = [at.key for at in islice(keys, _MOST)]
        answer = await node.call(
            ApiKey.FIND_COORDINATOR,
            lambda version: requests.find_coordinators(key_type, asked, version),
            timeout=self._request_timeout,
            patience=PATIENCE,
        )
        decoded = node.decode(answer)
        several = len(asked) if answer.version >= requests.FIRST_WITH_MANY else 1
        for at in keys[:several]:
            response = requests.read(Request(Rpc.FIND_COORDINATOR, at), answer.version, decoded)
            if response.mute_ms > 0:
                node.throttle(response.mute_ms)
            self._take(at, response)
        return keys[several:]

    def _take(self, at: Coordinator, response: requests.TransactionResponse) -> None:
        if response.coordinator is None:
            self._fail(at, next(iter(response.errors.values())))
            return
        broker = Broker(*response.coordinator)
        node = self._cluster.node(broker.node_id) if self._updater.add_coordinator(broker) else None
        if node is None:
            self._fail(at, ConnectionLost(f"broker {broker.node_id}, the coordinator of {at.key!r}, has no usable address"))
            return
        if len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[at] = broker.node_id
        found = self._found.pop(at, None)
        if found is not None and not found.done():
            found.set_result(node)
