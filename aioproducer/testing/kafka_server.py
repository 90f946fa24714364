"""A real Kafka of one node (KRaft: broker and controller in one), run from jars within an `async with`.

1. It listens on loopback, on ports that were free a moment before. If another process binds one meanwhile, the node starts on others.
2. It is ready when it answers a Metadata request with its own cluster id and itself as a living broker.
3. A start that is cancelled or fails at any point leaves no process and no folder. If this process is killed, the folder remains.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from aioproducer import jars
from aioproducer.errors import TransportError
from aioproducer.testing.client import WireClient
from aioproducer.testing.kafka_admin import SecurityAdmin, run_tool
from aioproducer.testing.kafka_node import HOST, KafkaNode, KafkaServerFailed, PortTakenError, Tools, fetched, free_ports, new_cluster_id
from aioproducer.testing.kafka_security import ADVERTISED_HOST, LISTENERS, KafkaSecurity, Listener, ServerCertificates

__all__ = ["ATTEMPTS", "SMALL", "KafkaServer", "KafkaServerFailed", "until_alive"]

ATTEMPTS: Final = 3  # each with new ports
_NODE: Final = 1
_CONTROLLER: Final = "CONTROLLER"
_ASK_SECONDS: Final = 2.0  # for one Metadata answer of a node that may hang while it starts
_POLL_SECONDS: Final = 0.03

SMALL: Final[Mapping[str, object]] = {
    # internal topics have few partitions, as creating partitions takes time
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    # a small heap: the cleaner alone would take 128 MiB
    "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024,
    "log.index.size.max.bytes": 1024 * 1024,
    "num.network.threads": 2,
    "num.io.threads": 2,
}


class KafkaServer:
    """Runs one Kafka node in a process of its own: `async with KafkaServer() as kafka: ...`.

    Args:
        version: the Kafka version, such as "4.3.1", or "3.9.2" for old message formats; `aioproducer.jars` downloads its jars once.
        properties: added to `server.properties`, in place of the defaults there.
        features: initial feature levels, such as {"transaction.version": 1}; the others are the release's defaults.
        heap: the size of Java's heap, in Java's notation.
        jvm_options: added to Java's command line.
        start_timeout: seconds for starting, without the download of jars.
        security: TLS, SASL, users and ACLs (see `KafkaSecurity`); None: the listener PLAINTEXT alone.

    Attributes:
        bootstrap_servers: the address for clients, "127.0.0.1:port".
        pid: the id of the running process.
    """

    def __init__(
        self,
        version: str = jars.KAFKA_VERSION,
        properties: Mapping[str, object] | None = None,
        *,
        features: Mapping[str, int] | None = None,
        heap: str = "256m",
        jvm_options: Sequence[str] = (),
        start_timeout: float = 60.0,
        security: KafkaSecurity | None = None,
    ) -> None:
        self._version = version
        self._properties = dict(properties or {})
        self._features = dict(features or {})
        self._start_timeout = start_timeout
        self._cluster_id = new_cluster_id()
        self._node = KafkaNode(version, heap=heap, jvm_options=[*jvm_options, *([] if security is None else security.jvm_options())])
        self._security = security
        self._certificates: ServerCertificates | None = None
        self._admin = SecurityAdmin(self, {} if security is None else security.users)
        self._ports: dict[str, int] = dict.fromkeys((*self._listeners, _CONTROLLER), 0)

    def __repr__(self) -> str:
        state = f"{self.bootstrap_servers}, pid {self.pid}" if self.is_running else "not running"
        return f"<KafkaServer {self._version}: {state}>"

    @property
    def bootstrap_servers(self) -> str:
        """Return the address for clients, "127.0.0.1:port": that of the listener PLAINTEXT."""
        return self.address("PLAINTEXT")

    def address(self, listener: Listener = "PLAINTEXT") -> str:
        """Return a listener's address: "127.0.0.1:port" of PLAINTEXT, "localhost:port" of the others, which `security` adds.

        Raises:
            ValueError: there is no such listener.
        """
        if listener not in self._listeners:
            raise ValueError(f"there is no listener {listener}; there are {', '.join(self._listeners)}")
        return f"{_advertised(listener)}:{self._ports[listener]}"

    @property
    def certificates(self) -> ServerCertificates:
        """Return the certificates of the node and its users.

        Raises:
            KafkaServerFailed: it was not started, or has no `security`.
        """
        if self._certificates is None:
            raise KafkaServerFailed("there are no certificates: it was not started, or without security=")
        return self._certificates

    @property
    def admin(self) -> SecurityAdmin:
        """Return what changes users, tokens and ACLs while the node runs."""
        return self._admin

    @property
    def pid(self) -> int:
        """Return the process id.

        Raises:
            KafkaServerFailed: the node does not run.
        """
        return self._node.pid

    @property
    def is_running(self) -> bool:
        """Return whether the process exists; a paused one does."""
        return self._node.is_running

    async def start(self) -> None:
        """Start the node, and return when clients can use it: 2 to 4 s, or minutes when the jars must be downloaded first.

        Raises:
            KafkaServerFailed: the node ended, or was not ready within `start_timeout`.
            JavaMissing: there is no Java, or its version is too old.
            JarsUnavailable: the download of the jars failed.
            ModuleNotFoundError: `security` needs the extra `crypto`.

        Cancellation: no process or folder remains. The server can be started again.
        """
        if self._node.folder is not None:
            raise KafkaServerFailed("it has been started already")
        tools = await fetched(self._version)
        try:
            async with asyncio.timeout(self._start_timeout):
                self._choose_ports()
                arguments: Sequence[str] = ()
                if self._security is not None:
                    self._certificates = ServerCertificates.make(self._node.make_folder(), self._security)
                    arguments = self._security.format_arguments()
                await self._node.format(tools, self._cluster_id, self._settings(), self._features, arguments)
                await self._launch(tools)
        except TimeoutError as error:
            failure = KafkaServerFailed(f"Kafka {self._version} was not ready within {self._start_timeout} s\n{self.log_tail()}")
            await self.stop()
            raise failure from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Kill the process and remove the folder; safe at any time, and twice.

        Cancellation: both happen all the same; only the wait for the end of the process is cut short.
        """
        try:
            await self._node.end()
        finally:
            self._certificates = None
            self._node.remove()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    def pause(self) -> None:
        """Pause the process as a debugger would (SIGSTOP): connections remain open without answers.

        Raises:
            KafkaServerFailed: the node does not run.
        """
        self._node.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a paused process.

        Raises:
            KafkaServerFailed: the node does not run.
        """
        self._node.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process at once (SIGKILL), as a crash would.

        Raises:
            KafkaServerFailed: the node does not run.
        """
        self._node.send_signal(signal.SIGKILL)

    async def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
        """Create a topic, and wait until each of its partitions has a leader.

        Args:
            name: the topic's name.
            partitions: number of partitions.
            config: Kafka's topic options, such as {"retention.ms": -1}.

        Raises:
            BrokerError: the node refuses it.
            TransportError: the node does not answer.

        Cancellation: the topic may or may not have been created.
        """
        async with WireClient(self.bootstrap_servers, timeout=30.0) as client:
            await client.create_topic(name, partitions, config)

    async def end_offsets(self, topic: str) -> list[int]:
        """Return the offset after the last record of each partition. Errors as `create_topic`."""
        async with WireClient(self.bootstrap_servers, timeout=30.0) as client:
            return await client.end_offsets(topic)

    async def set_feature(self, name: str, level: int) -> None:
        """Change the level of a feature, as `kafka-features.sh upgrade` does.

        Raises:
            KafkaServerFailed: Kafka's tool failed, or took longer than `start_timeout`.

        Cancellation: the level may or may not have changed.
        """
        await self.run_tool(
            "org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", self.address(), "upgrade", "--feature", f"{name}={level}"
        )

    async def run_tool(self, main: str, *arguments: str) -> str:
        """Run a class of Kafka's tools, such as "org.apache.kafka.tools.GetOffsetShell", and return what it printed.

        Raises:
            KafkaServerFailed: the tool failed, with what it printed, or took longer than `start_timeout`.

        Cancellation: the tool's process is killed; what it asked of the node may or may not have been done.
        """
        return await run_tool(await fetched(self._version), main, *arguments, timeout=self._start_timeout)

    def file(self, name: str) -> Path:
        """Return a path in the node's folder, which `stop` removes: for files of tools and clients."""
        return self._node.make_folder() / name

    def log_tail(self, lines: int = 25) -> str:
        """Return the last lines of the log of the node, or of the tools that formatted its folder."""
        return self._node.log_tail(lines)

    async def _launch(self, tools: Tools) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            self._choose_ports()
            self._node.configure(self._settings())
            try:
                await self._node.launch(tools, lambda: until_alive(self.bootstrap_servers, self._cluster_id, [self._ports["PLAINTEXT"]]))
            except PortTakenError as error:
                if attempt == ATTEMPTS:
                    raise KafkaServerFailed(f"ports were taken {attempt} times in a row\n{self.log_tail()}") from error
            else:
                return

    @property
    def _listeners(self) -> Sequence[Listener]:
        return ("PLAINTEXT",) if self._security is None else self._security.listeners

    def _choose_ports(self) -> None:
        self._ports = dict(zip(self._ports, free_ports(len(self._ports)), strict=True))

    def _settings(self) -> dict[str, object]:
        protocols = {_CONTROLLER: "PLAINTEXT"} | {name: LISTENERS[name] for name in self._listeners}
        return {
            "process.roles": "broker,controller",
            "node.id": _NODE,
            "controller.quorum.voters": f"{_NODE}@{HOST}:{self._ports[_CONTROLLER]}",
            "controller.listener.names": _CONTROLLER,
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in self._ports.items()),
            "advertised.listeners": ",".join(f"{name}://{self.address(name)}" for name in self._listeners),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": f"{self._node.make_folder()}/data",
            # one node: every internal topic has one copy
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            **SMALL,
            **({} if self._security is None else self._security.settings(self.certificates)),
            **self._properties,
        }


def _advertised(listener: str) -> str:
    # PLAINTEXT by number, as without security; by a name where certificates are checked
    return HOST if listener == "PLAINTEXT" else ADVERTISED_HOST


async def until_alive(bootstrap_servers: str, cluster_id: str, ports: Sequence[int]) -> None:
    """Wait until a node of this cluster answers (another Kafka may use the port), and lists brokers on all `ports` as alive."""
    while True:
        with contextlib.suppress(TransportError):
            async with WireClient(bootstrap_servers, timeout=_ASK_SECONDS) as client:
                answer = await client.metadata([])
                if answer.cluster_id == cluster_id and set(ports) <= {broker.port for broker in answer.brokers}:
                    return
        await asyncio.sleep(_POLL_SECONDS)
