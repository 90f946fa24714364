"""`KafkaServer` and `KafkaCluster` for tests in any loop, or in none: each runs in a thread of its own for a whole session of tests.

Their methods are plain functions that return when the work is done. The fixtures `kafka_server` and `kafka_cluster` are these.
Knows nothing of pytest.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from aioproducer.jars import KAFKA_VERSION
from aioproducer.testing.kafka_cluster import KafkaCluster
from aioproducer.testing.kafka_server import KafkaServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

__all__ = ["ClusterThread", "ServerThread"]

T = TypeVar("T", bound="AbstractAsyncContextManager[Any]")
R = TypeVar("R")
_TROUBLES: Final = ("delay", "slow", "black_hole", "cut", "reset", "heal")


class _Thread(Generic[T]):
    """A thread with a loop that holds `make()` open."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._started: Future[T] = Future()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event

    def open(self) -> None:
        """Start it, and wait until it is ready. Errors as what it holds."""
        self._thread.start()
        self._started.result()

    def close(self) -> None:
        """End it and the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def _call(self, ask: Callable[[T], Awaitable[R]]) -> R:
        async def asked() -> R:
            return await ask(self._started.result())

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result()

    def _tell(self, do: Callable[[T], R]) -> R:
        async def told(held: T) -> R:
            return do(held)

        return self._call(told)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # belongs to the thread that waits in `open`
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        async with self._make() as held:
            self._started.set_result(held)
            await self._stopping.wait()


class ServerThread(_Thread[KafkaServer]):
    """A `KafkaServer` whose methods wait until they are done; `version` of Kafka."""

    def __init__(self, version: str = KAFKA_VERSION) -> None:
        super().__init__(lambda: KafkaServer(version))

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find it, "127.0.0.1:port"."""
        return self._started.result().bootstrap_servers

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
        """As `KafkaServer.create_topic`."""
        self._call(lambda server: server.create_topic(name, partitions, config))

    def end_offsets(self, topic: str) -> list[int]:
        """As `KafkaServer.end_offsets`."""
        return self._call(lambda server: server.end_offsets(topic))


class ClusterThread(_Thread[KafkaCluster]):
    """A `KafkaCluster` of three nodes behind proxies, whose methods wait until they are done; each as the cluster's own."""

    def __init__(self) -> None:
        super().__init__(lambda: KafkaCluster(proxied=True))

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find its nodes: the proxies."""
        return self._started.result().bootstrap_servers

    @property
    def answering(self) -> list[int]:
        """The numbers of the nodes that run and are not paused."""
        return self._tell(lambda cluster: cluster.answering)

    def start(self, node: int) -> None:
        """As `KafkaCluster.start`."""
        self._call(lambda cluster: cluster.start(node))

    def stop(self, node: int) -> None:
        """As `KafkaCluster.stop`."""
        self._call(lambda cluster: cluster.stop(node))

    def kill(self, node: int) -> None:
        """As `KafkaCluster.kill`."""
        self._call(lambda cluster: cluster.kill(node))

    def pause(self, node: int) -> None:
        """As `KafkaCluster.pause`."""
        self._tell(lambda cluster: cluster.pause(node))

    def resume(self, node: int) -> None:
        """As `KafkaCluster.resume`."""
        self._tell(lambda cluster: cluster.resume(node))

    def restore(self) -> None:
        """As `KafkaCluster.restore`."""
        self._call(lambda cluster: cluster.restore())

    def trouble(self, node: int, what: str, *arguments: Any) -> None:
        """Call a method of the node's `FaultProxy`: `delay`, `slow`, `black_hole`, `cut`, `reset` or `heal`. ValueError: another."""
        if what not in _TROUBLES:
            raise ValueError(f"a proxy's trouble is one of {', '.join(_TROUBLES)}, not {what!r}")
        self._tell(lambda cluster: getattr(cluster.proxies[node], what)(*arguments))

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None, *, replication_factor: int | None = None
    ) -> None:
        """As `KafkaCluster.create_topic`."""
        self._call(lambda cluster: cluster.create_topic(name, partitions, config, replication_factor=replication_factor))

    def end_offsets(self, topic: str) -> list[int]:
        """As `KafkaCluster.end_offsets`."""
        return self._call(lambda cluster: cluster.end_offsets(topic))

    def leader(self, topic: str, partition: int = 0) -> int:
        """As `KafkaCluster.leader`."""
        return self._call(lambda cluster: cluster.leader(topic, partition))
