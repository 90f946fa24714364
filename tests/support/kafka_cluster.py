"""A real Kafka of several nodes, run from jars within an `async with`.

    async with KafkaCluster(proxied=True) as cluster:
        await cluster.create_topic("orders", partitions=6)       # three copies of each, two of them in sync for acks=all
        await cluster.kill(await cluster.leader("orders", 0))
        await cluster.leader("orders", 0)                        # another one, some seconds later
        cluster.proxies[1].black_hole("answers")

1. Each node is a process that can be killed, stopped, paused and started again.
2. Every node is broker and controller (KRaft), so one of three may be down at any time and the others continue.
3. The cluster fails over within seconds instead of Kafka's nine and more.
4. Proxies serve the clients' listeners alone: the nodes, and this object, use other listeners without a proxy.
5. Ports, readiness, ends of processes and clean-up are as with `KafkaServer`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

from aioproducer.errors import TransportError
from aioproducer.testing import jars
from aioproducer.testing.client import WireClient
from aioproducer.testing.kafka_server import (
    HOST,
    SMALL,
    KafkaNode,
    KafkaServerFailed,
    PortTakenError,
    Tools,
    fetched,
    new_cluster_id,
    until_alive,
)
from tests.support.proxy import FaultProxy

__all__ = ["KafkaCluster"]


_ASK_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 30.0  # for a controlled shutdown, which first moves leaders to other nodes
_PORTS: Final = range(
    20_000, 32_000
)  # outside the range of outgoing connections, which could take the port of a node that is down

_QUICK: Final[Mapping[str, object]] = {
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 3000,
    "replica.lag.time.max.ms": 3000,
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.election.backoff.max.ms": 500,
    "controller.quorum.fetch.timeout.ms": 2000,
}


class _Ports(NamedTuple):
    client: int
    internal: int  # for the other nodes and this module, always without a proxy
    controller: int


class KafkaCluster:
    """Runs several Kafka nodes, numbered from 1: `async with KafkaCluster() as cluster: ...`.

    Args:
        nodes: number of nodes; with fewer than three, none may be down.
        properties: added to each node's `server.properties`, in place of the defaults there.
        proxied: whether clients reach each node through a `FaultProxy`, in `proxies` by the node's number.
        heap: the size of each node's Java heap, in Java's notation.
        start_timeout: seconds for starting all nodes, or one again.

    Attributes:
        proxies: the proxies by node; empty without `proxied`.
    """

    def __init__(
        self,
        nodes: int = 3,
        properties: Mapping[str, object] | None = None,
        *,
        proxied: bool = False,
        heap: str = "256m",
        start_timeout: float = 120.0,
    ) -> None:
        numbers = range(1, nodes + 1)
        self.proxies: dict[int, FaultProxy] = (
            {number: FaultProxy() for number in numbers} if proxied else {}
        )
        self._properties = dict(properties or {})
        self._start_timeout = start_timeout
        self._cluster_id = new_cluster_id()
        self._nodes = {number: KafkaNode(jars.KAFKA_VERSION, heap=heap) for number in numbers}
        self._ports = dict.fromkeys(numbers, _Ports(0, 0, 0))
        self._paused: set[int] = set()
        self._tools: Tools | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Return the addresses of all nodes, running or not; with proxies, the addresses of these."""
        return ",".join(f"{HOST}:{self._client_port(number)}" for number in self._nodes)

    @property
    def answering(self) -> list[int]:
        """Return the numbers of the nodes that run and are not paused."""
        return [
            number
            for number, node in self._nodes.items()
            if node.is_running and number not in self._paused
        ]

    async def __aenter__(self) -> Self:
        """Start every node, and return when clients can use each: 6 to 10 s for three nodes, or minutes when the jars must be downloaded first.

        Raises:
            KafkaServerFailed: a node ended, or not all were ready within `start_timeout`.
            JavaMissing: there is no Java, or its version is too old.
            JarsUnavailable: the download of the jars failed.
        """
        self._tools = await fetched(jars.KAFKA_VERSION)
        try:
            async with asyncio.timeout(self._start_timeout):
                for proxy in self.proxies.values():
                    await proxy.start()
                self._choose_ports()
                await _all(
                    node.format(self._tools, self._cluster_id, self._settings(number))
                    for number, node in self._nodes.items()
                )
                await _all(
                    node.launch(self._tools, self._sees_all(number))
                    for number, node in self._nodes.items()
                )
        # processes and folders go, whatever ends the start, a cancellation too
        except BaseException as error:
            tail = self.log_tail()
            await self.__aexit__()
            if isinstance(error, TimeoutError):
                raise KafkaServerFailed(
                    f"Kafka was not ready within {self._start_timeout} s\n{tail}"
                ) from error
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Kill every process, stop every proxy, and remove every folder; when it is cancelled, too."""
        try:
            await self._end_nodes()
        finally:
            for node in self._nodes.values():
                node.remove()
            for proxy in self.proxies.values():
                await proxy.stop()

    # --- one node

    async def start(self, node: int) -> None:
        """Start a killed or stopped node on the same ports and data, and return when it is a living broker again.

        Raises:
            KafkaServerFailed: the node ended, or was not ready within `start_timeout`. Without a majority of nodes no node gets ready: start
                several at once with `asyncio.gather`.
        """
        assert self._tools is not None
        starting = self._nodes[node]
        try:
            async with asyncio.timeout(self._start_timeout):
                await starting.launch(self._tools, lambda: self._until_alive(node, [node]))
        # no process stays behind, whatever ends the start, a cancellation too
        except BaseException as error:
            await starting.end()
            if isinstance(error, (TimeoutError, PortTakenError)):
                raise KafkaServerFailed(
                    f"node {node} did not start: {error!r}\n{starting.log_tail()}"
                ) from error
            raise

    async def stop(self, node: int) -> None:
        """Shut a node down as an operator does (SIGTERM), so that it moves its leaders away first.

        Raises:
            KafkaServerFailed: the node does not run.

        Cancellation: the shutdown continues.
        """
        process = self._nodes[node].running()
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            await self._nodes[node].end()

    async def kill(self, node: int) -> None:
        """Kill a node at once (SIGKILL), as a crash does; its data remains.

        Raises:
            KafkaServerFailed: the node does not run.
        """
        self._nodes[node].running()
        self._paused.discard(node)
        await self._nodes[node].end()

    def pause(self, node: int) -> None:
        """Pause a node as a debugger would (SIGSTOP): connections remain open without answers.

        Raises:
            KafkaServerFailed: the node does not run.
        """
        self._nodes[node].send_signal(signal.SIGSTOP)
        self._paused.add(node)

    def resume(self, node: int) -> None:
        """Continue a paused node.

        Raises:
            KafkaServerFailed: the node does not run.
        """
        self._nodes[node].send_signal(signal.SIGCONT)
        self._paused.discard(node)

    async def restore(self) -> None:
        """Repair the cluster: heal proxies, continue paused nodes, start missing ones. Errors as `start`."""
        for proxy in self.proxies.values():
            proxy.heal()
        for node in tuple(self._paused):
            self.resume(node)
        await _all(
            self.start(number) for number, node in self._nodes.items() if not node.is_running
        )
        await _all(self._until_alive(number, list(self._nodes)) for number in self._nodes)

    def data(self, node: int) -> Path:
        """Return the folder of a node's logs, for Kafka's own tools; it goes with the cluster."""
        return self._nodes[node].make_folder() / "data"

    # --- topics

    async def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic with three copies of each partition (or as many as there are nodes), and wait until each partition has a leader.

        Raises:
            BrokerError: the cluster refuses it.
            TransportError: no node answers.
        """
        async with self._client() as client:
            await client.create_topic(name, partitions, config, replication_factor=self._copies)

    async def end_offsets(self, topic: str) -> list[int]:
        """Return the offset after the last record of each partition. Errors as `create_topic`."""
        async with self._client() as client:
            return await client.end_offsets(topic)

    async def leader(self, topic: str, partition: int = 0) -> int:
        """Return the node that leads a partition; wait, 30 s at most, until it is one of `answering`.

        Raises:
            KafkaServerFailed: after 30 s none of `answering` leads it.
        """
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                while True:
                    with contextlib.suppress(TransportError):
                        async with self._client(timeout=2.0) as client:
                            found = (await client.metadata([topic])).topics[0]
                        for one in found.partitions:
                            if one.partition_index == partition and one.leader_id in self.answering:
                                return int(one.leader_id)
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError as error:
            raise KafkaServerFailed(
                f"no running node leads {topic}-{partition} after {_ASK_SECONDS} s\n{self.log_tail()}"
            ) from error

    def log_tail(self, lines: int = 10) -> str:
        """Return the last lines of each node's log."""
        return "\n".join(
            f"--- node {number}\n{node.log_tail(lines)}" for number, node in self._nodes.items()
        )

    # --- implementation

    @property
    def _copies(self) -> int:
        return min(3, len(self._nodes))

    def _client_port(self, number: int) -> int:
        return self.proxies[number].port if number in self.proxies else self._ports[number].client

    def _client(self, timeout: float = _ASK_SECONDS) -> WireClient:
        return WireClient(
            ",".join(
                f"{HOST}:{self._ports[number].internal}" for number in self.answering or self._nodes
            ),
            timeout=timeout,
        )

    async def _until_alive(self, node: int, seen: Iterable[int]) -> None:
        await until_alive(
            f"{HOST}:{self._ports[node].internal}",
            self._cluster_id,
            [self._ports[other].internal for other in seen],
        )

    def _sees_all(self, number: int) -> Callable[[], Awaitable[None]]:
        return lambda: self._until_alive(number, self._nodes)

    async def _end_nodes(self) -> None:
        self._paused.clear()
        await asyncio.gather(*(node.end() for node in self._nodes.values()))

    def _choose_ports(self) -> None:
        ports = iter(steady_ports(len(self._nodes) * len(_Ports._fields)))
        self._ports = {
            number: _Ports(next(ports), next(ports), next(ports)) for number in self._nodes
        }
        for number, proxy in self.proxies.items():
            proxy.upstream_port = self._ports[number].client

    def _settings(self, number: int) -> dict[str, object]:
        client, internal, controller = self._ports[number]
        copies, in_sync = self._copies, max(1, self._copies - 1)
        return {
            "process.roles": "broker,controller",
            "node.id": number,
            "controller.quorum.voters": ",".join(
                f"{other}@{HOST}:{ports.controller}" for other, ports in self._ports.items()
            ),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CLIENT://{HOST}:{client},INTERNAL://{HOST}:{internal},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"CLIENT://{HOST}:{self._client_port(number)},INTERNAL://{HOST}:{internal}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": f"{self._nodes[number].make_folder()}/data",
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            **SMALL,
            **_QUICK,
            **self._properties,
        }


def steady_ports(count: int) -> list[int]:
    """Return `count` free loopback ports, below the range that systems give to outgoing connections."""
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        for port in random.sample(_PORTS, len(_PORTS)):
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind((HOST, port))
                found.append(port)
            if len(found) == count:
                return found
    raise KafkaServerFailed(
        f"fewer than {count} ports are free between {_PORTS.start} and {_PORTS.stop}"
    )


async def _all(steps: Iterable[Awaitable[None]]) -> None:
    """Run all steps at once. The first error cancels the others, and is raised."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        for task in asyncio.as_completed(tasks):
            await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
