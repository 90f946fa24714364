"""Runs `KafkaServer` and `KafkaCluster` in a thread of their own, for tests in any event loop or in none.

Their methods are plain functions that return when the work is done. They are the fixtures `kafka_server` and `kafka_cluster`,
and serve a whole session of tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioproducer.jars import KAFKA_VERSION
from aioproducer.testing.kafka_cluster import KafkaCluster
from aioproducer.testing.kafka_server import KafkaServer
from aioproducer.testing.thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from aioproducer.testing.kafka_admin import SecurityAdmin
    from aioproducer.testing.kafka_security import KafkaSecurity, Listener, ServerCertificates

__all__ = ["ClusterThread", "ServerThread"]

R = TypeVar("R")
_TROUBLES: Final = ("delay", "slow", "black_hole", "cut", "reset", "heal")


class ServerThread(LoopThread[KafkaServer]):
    """A `KafkaServer` of one Kafka version, with methods that block until they are done.

    Args:
        version: the Kafka version.
        security: as `KafkaServer` takes it.
        jvm_options: as `KafkaServer` takes them.
    """

    def __init__(self, version: str = KAFKA_VERSION, *, security: KafkaSecurity | None = None, jvm_options: Sequence[str] = ()) -> None:
        super().__init__(lambda: KafkaServer(version, security=security, jvm_options=jvm_options))

    @property
    def bootstrap_servers(self) -> str:
        """Return the address for clients, "127.0.0.1:port"."""
        return self._started.result().bootstrap_servers

    def address(self, listener: Listener = "PLAINTEXT") -> str:
        """Return a listener's address as `KafkaServer.address` does."""
        return self._started.result().address(listener)

    @property
    def certificates(self) -> ServerCertificates:
        """Return the paths of the certificates of the node and its users."""
        return self._started.result().certificates

    def administrate(self, change: Callable[[SecurityAdmin], Coroutine[Any, Any, R]]) -> R:
        """Wait for a method of `KafkaServer.admin`: `administrate(lambda admin: admin.delete_user("alice"))`. Return its result."""
        return self.call(lambda server: change(server.admin))

    def run_tool(self, main: str, *arguments: str) -> str:
        """Run one of Kafka's tools as `KafkaServer.run_tool` does."""
        return self.call(lambda server: server.run_tool(main, *arguments))

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
        """Create a topic as `KafkaServer.create_topic` does."""
        self.call(lambda server: server.create_topic(name, partitions, config))

    def end_offsets(self, topic: str) -> list[int]:
        """Return offsets as `KafkaServer.end_offsets` does."""
        return self.call(lambda server: server.end_offsets(topic))


class ClusterThread(LoopThread[KafkaCluster]):
    """A `KafkaCluster` of three nodes behind proxies, with methods that block until they are done."""

    def __init__(self) -> None:
        super().__init__(lambda: KafkaCluster(proxied=True))

    @property
    def bootstrap_servers(self) -> str:
        """Return the addresses for clients: those of the proxies."""
        return self._started.result().bootstrap_servers

    @property
    def answering(self) -> list[int]:
        """Return the numbers of the nodes that run and are not paused."""
        return self.call(lambda cluster: cluster.answering)

    def start(self, node: int) -> None:
        """Start a node as `KafkaCluster.start` does."""
        self.call(lambda cluster: cluster.start(node))

    def stop(self, node: int) -> None:
        """Stop a node as `KafkaCluster.stop` does."""
        self.call(lambda cluster: cluster.stop(node))

    def kill(self, node: int) -> None:
        """Kill a node as `KafkaCluster.kill` does."""
        self.call(lambda cluster: cluster.kill(node))

    def pause(self, node: int) -> None:
        """Pause a node as `KafkaCluster.pause` does."""
        self.call(lambda cluster: cluster.pause(node))

    def resume(self, node: int) -> None:
        """Resume a node as `KafkaCluster.resume` does."""
        self.call(lambda cluster: cluster.resume(node))

    def restore(self) -> None:
        """Repair the cluster as `KafkaCluster.restore` does."""
        self.call(lambda cluster: cluster.restore())

    def trouble(self, node: int, what: str, *arguments: Any) -> None:
        """Call a method of the node's `FaultProxy`: `delay`, `slow`, `black_hole`, `cut`, `reset` or `heal`.

        Raises:
            ValueError: another name.
        """
        if what not in _TROUBLES:
            raise ValueError(f"a proxy's trouble is one of {', '.join(_TROUBLES)}, not {what!r}")
        self.call(lambda cluster: getattr(cluster.proxies[node], what)(*arguments))

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None, *, replication_factor: int | None = None
    ) -> None:
        """Create a topic as `KafkaCluster.create_topic` does."""
        self.call(lambda cluster: cluster.create_topic(name, partitions, config, replication_factor=replication_factor))

    def end_offsets(self, topic: str) -> list[int]:
        """Return offsets as `KafkaCluster.end_offsets` does."""
        return self.call(lambda cluster: cluster.end_offsets(topic))

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return a partition's leader as `KafkaCluster.leader` does."""
        return self.call(lambda cluster: cluster.leader(topic, partition))
