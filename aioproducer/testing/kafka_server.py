"""A real Kafka of one node (KRaft: broker and controller in one), run from jars within an `async with`.

1. It listens on loopback, on ports that were free a moment before. If another process binds one meanwhile, the node starts on others.
2. It is ready when it answers a Metadata request with its own cluster id and itself as a living broker.
3. A start that is cancelled or fails at any point leaves no process and no folder. If this process is killed, the folder remains.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import uuid
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from aioproducer.errors import KafkaError, TransportError
from aioproducer.testing import jars
from aioproducer.testing.client import WireClient
from aioproducer.testing.thread import LoopThread

__all__ = ["KafkaServer", "KafkaServerFailed", "ServerThread"]

# One node of a real Kafka: its folder, Java process and log. `KafkaServer` runs one, `KafkaCluster` several.
#
# 1. The node never outlives this process, not even if this process is killed: see `_GUARD`. A keyboard's Ctrl-C does not reach the node.
# 2. Its folder remains until `remove`, so that a stopped or killed node can start again with the data that it had written.


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
HOST: Final = "127.0.0.1"
_REAP_SECONDS: Final = 10.0
_LAST_LINES: Final = 25
_PORT_TAKEN: Final = "Address already in use"

# Runs before Java, in the process that becomes Java. Linux sends SIGKILL to the child when its parent (the thread that started it) ends.
# On other systems a grandchild waits for the end of a pipe that only the parent holds open.
# It then kills Java, if Java is still its parent.
_GUARD: Final = """
import os, signal, sys
parent, how, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
if how == "prctl":
    import ctypes
    if ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0):
        sys.exit("prctl: " + os.strerror(ctypes.get_errno()))
else:
    java = os.getpid()
    if os.fork() == 0:
        os.closerange(1, 256)
        while os.read(0, 1): pass
        if os.getppid() == java: os.kill(java, signal.SIGKILL)
        os._exit(0)
if os.getppid() != parent:
    sys.exit("the parent is gone")
os.execv(command[0], command)
"""

_LOG_CONFIG: Final = {
    "log4j2.properties": """\
rootLogger.level = WARN
rootLogger.appenderRefs = console
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
""",
    "log4j.properties": """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
""",
}


class KafkaServerFailed(KafkaError):
    """A node did not start, or is not running; the text contains the last lines of its log."""


class PortTakenError(Exception):
    """Another process bound a port after `free_ports` chose it and before the node bound it."""


class Tools(NamedTuple):
    """Holds the paths that run a node: Java, and the folder of Kafka's jars."""

    java: Path
    library: Path


class KafkaNode:
    """Holds a node's folder and process.

    Args:
        version: the Kafka version.
        heap: the size of Java's heap, in Java's notation.
        jvm_options: added to Java's command line.
    """

    def __init__(self, version: str, *, heap: str, jvm_options: Sequence[str] = ()) -> None:
        self.version = version
        self._heap = heap
        self._jvm_options = tuple(jvm_options)
        self.folder: Path | None = None
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """Return the process id.

        Raises:
            KafkaServerFailed: the node does not run.
        """
        return self.running().pid

    @property
    def is_running(self) -> bool:
        """Return whether the process exists; a paused one does."""
        return self._process is not None and self._process.returncode is None

    def running(self) -> Process:
        """Return the node's process.

        Raises:
            KafkaServerFailed: the node does not run.
        """
        if self._process is None or self._process.returncode is not None:
            raise KafkaServerFailed(
                "it is not running" + ("" if self.folder is None else f"\n{self.log_tail()}")
            )
        return self._process

    def make_folder(self) -> Path:
        """Return the node's folder; create it first if there is none."""
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="aioproducer-kafka-"))
            for name, text in _LOG_CONFIG.items():
                (self.folder / name).write_text(text, encoding="utf-8")
        return self.folder

    async def format(
        self,
        tools: Tools,
        cluster_id: str,
        settings: Mapping[str, object],
        features: Mapping[str, int] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """Format the node's folder: once is enough, as no file there depends on ports. `arguments` are added to the tool's.

        Raises:
            KafkaServerFailed: Kafka's tool failed.
        """
        self.configure(settings)
        wanted = [
            word
            for name, level in (features or {}).items()
            for word in ("--feature", f"{name}={level}")
        ]
        await self._spawn(
            tools,
            "kafka.tools.StorageTool",
            "format",
            "-t",
            cluster_id,
            "-c",
            "server.properties",
            *wanted,
            *arguments,
        )
        assert self._process is not None
        if await self._process.wait():
            raise KafkaServerFailed(
                f"Kafka {self.version} could not prepare its folder\n{self.log_tail()}"
            )

    def configure(self, settings: Mapping[str, object]) -> None:
        """Write the node's `server.properties`."""
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.make_folder() / "server.properties").write_text("".join(lines), encoding="utf-8")

    async def launch(self, tools: Tools, is_ready: Callable[[], Awaitable[None]]) -> None:
        """Start the node's process, and return when `is_ready` does.

        Raises:
            PortTakenError: another process has one of its ports.
            KafkaServerFailed: its process ended.
        """
        # the log must hold the lines of this attempt alone
        (self.make_folder() / "server.log").unlink(missing_ok=True)
        await self._spawn(tools, "kafka.Kafka", "server.properties")
        process = self._process
        assert process is not None
        ended = asyncio.ensure_future(process.wait())  # the process may have ended by now
        ready = asyncio.ensure_future(is_ready())
        try:
            await asyncio.wait((ended, ready), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            ready.cancel()
        if ended.done() and not ended.cancelled():
            if _PORT_TAKEN in self.log_tail(1000):
                raise PortTakenError
            raise KafkaServerFailed(
                f"Kafka {self.version} ended with status {process.returncode}\n{self.log_tail()}"
            )
        ready.result()

    def send_signal(self, number: signal.Signals) -> None:
        """Send the process a signal.

        Raises:
            KafkaServerFailed: the node does not run.
        """
        self.running().send_signal(number)

    async def end(self) -> None:
        """Kill the process; safe at any time.

        Cancellation: the process is killed all the same; only the wait for its end is cut short.
        """
        process, self._process = self._process, None
        if process is not None:
            await _end(process)

    def remove(self) -> None:
        """Remove the node's folder."""
        folder, self.folder = self.folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def log_tail(self, lines: int = _LAST_LINES) -> str:
        """Return the last lines of the log of the node, or of the tools that formatted its folder."""
        if self.folder is None:
            return "(it has no log: it was not started)"
        log = self.folder / "server.log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        return "\n".join(text.splitlines()[-lines:]) or "(its log is empty)"

    async def _spawn(self, tools: Tools, main: str, *arguments: str) -> None:
        assert self.folder is not None
        logging = (
            "-Dlog4j.configuration=file:log4j.properties"
            if self.version.startswith("3.")
            else "-Dlog4j2.configurationFile=log4j2.properties"
        )
        # A short start matters more than speed after minutes: use a serial collector, and the first compiler only.
        options = [
            f"-Xms{self._heap}",
            f"-Xmx{self._heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            logging,
            *self._jvm_options,
        ]
        command = [str(tools.java), *options, "-cp", f"{tools.library}/*", main, *arguments]
        how = _guard_kind()
        with (self.folder / "server.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *guarded(command),
                stdin=asyncio.subprocess.PIPE if how == "pipe" else asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )


async def fetched(version: str) -> Tools:
    """Return Java and the folder of jars; a thread finds or downloads them, as both take time.

    Raises:
        KafkaServerFailed: the system is no POSIX.
        JavaMissing: there is no Java, or its version is too old.
        JarsUnavailable: the download of the jars failed.

    Cancellation: it ends the download.
    """
    if sys.platform == "win32":
        raise KafkaServerFailed("a real Kafka needs a POSIX system; on Windows run it under WSL")
    stop = threading.Event()

    def both() -> Tools:
        return Tools(jars.java(), jars.kafka(version, stop=stop))

    try:
        return await asyncio.to_thread(both)
    finally:
        stop.set()


def free_ports(count: int = 2) -> tuple[int, ...]:
    """Return `count` loopback ports on which no process listens at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return tuple(one.getsockname()[1] for one in sockets)


def guarded(command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` in a process which does not outlive the thread that starts it, or this process."""
    return [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), _guard_kind(), *command]


def new_cluster_id() -> str:
    """Return a random cluster id in the format of Kafka's tools."""
    while True:
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Kafka's tools would parse a leading hyphen as an option
        if not name.startswith("-"):
            return name


def _guard_kind() -> str:
    return "prctl" if sys.platform == "linux" else "pipe"


async def _end(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_REAP_SECONDS):
            await process.wait()
    except TimeoutError as error:
        raise KafkaServerFailed(
            f"process {process.pid} was killed, and had not ended after {_REAP_SECONDS} s"
        ) from error


class KafkaServer:
    """Runs one Kafka node in a process of its own: `async with KafkaServer() as kafka: ...`.

    Args:
        version: the Kafka version, such as "4.3.1", or "3.9.2" for old message formats; `aioproducer.testing.jars` downloads its jars once.
        properties: added to `server.properties`, in place of the defaults there.
        features: initial feature levels, such as {"transaction.version": 1}; the others are the release's defaults.
        heap: the size of Java's heap, in Java's notation.
        jvm_options: added to Java's command line.
        start_timeout: seconds for starting, without the download of jars.

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
    ) -> None:
        self._version = version
        self._properties = dict(properties or {})
        self._features = dict(features or {})
        self._start_timeout = start_timeout
        self._cluster_id = new_cluster_id()
        self._node = KafkaNode(version, heap=heap, jvm_options=jvm_options)
        self._listeners: Mapping[str, str] = {
            "PLAINTEXT": "PLAINTEXT"
        }  # the security protocol of each
        self._ports = {"PLAINTEXT": 0}

    def __repr__(self) -> str:
        state = f"{self.bootstrap_servers}, pid {self.pid}" if self.is_running else "not running"
        return f"<KafkaServer {self._version}: {state}>"

    @property
    def bootstrap_servers(self) -> str:
        """Return the address for clients, "127.0.0.1:port"."""
        return f"{HOST}:{self._ports['PLAINTEXT']}"

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

        Cancellation: no process or folder remains. The server can be started again.
        """
        if self._node.folder is not None:
            raise KafkaServerFailed("it has been started already")
        tools = await fetched(self._version)
        try:
            async with asyncio.timeout(self._start_timeout):
                self._choose_ports()
                await self._format(tools)
                await self._launch(tools)
        # the process and the folder go, whatever ends the start, a cancellation too
        except BaseException as error:
            tail = self.log_tail()
            await self.stop()
            if isinstance(error, TimeoutError):
                raise KafkaServerFailed(
                    f"Kafka {self._version} was not ready within {self._start_timeout} s\n{tail}"
                ) from error
            raise

    async def stop(self) -> None:
        """Kill the process and remove the folder; safe at any time, and twice.

        Cancellation: both happen all the same; only the wait for the end of the process is cut short.
        """
        try:
            await self._node.end()
        finally:
            self._node.remove()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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

    async def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
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

    def log_tail(self, lines: int = 25) -> str:
        """Return the last lines of the log of the node, or of the tools that formatted its folder."""
        return self._node.log_tail(lines)

    async def _format(self, tools: Tools, *arguments: str) -> None:
        await self._node.format(
            tools, self._cluster_id, self._settings(), self._features, arguments
        )

    async def _launch(self, tools: Tools) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            self._choose_ports()
            self._node.configure(self._settings())
            try:
                await self._node.launch(
                    tools,
                    lambda: until_alive(
                        self.bootstrap_servers, self._cluster_id, [self._ports["PLAINTEXT"]]
                    ),
                )
            except PortTakenError as error:
                if attempt == ATTEMPTS:
                    raise KafkaServerFailed(
                        f"ports were taken {attempt} times in a row\n{self.log_tail()}"
                    ) from error
            else:
                return

    def _choose_ports(self) -> None:
        names = (*self._listeners, _CONTROLLER)
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))

    def _settings(self) -> dict[str, object]:
        protocols = {_CONTROLLER: "PLAINTEXT", **self._listeners}
        return {
            "process.roles": "broker,controller",
            "node.id": _NODE,
            "controller.quorum.voters": f"{_NODE}@{HOST}:{self._ports[_CONTROLLER]}",
            "controller.listener.names": _CONTROLLER,
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in self._ports.items()),
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": f"{self._node.make_folder()}/data",
            # one node: every internal topic has one copy
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            **SMALL,
            **self._properties,
        }


async def until_alive(bootstrap_servers: str, cluster_id: str, ports: Sequence[int]) -> None:
    """Wait until a node of this cluster answers (another Kafka may use the port), and lists brokers on all `ports` as alive."""
    while True:
        with contextlib.suppress(TransportError):
            async with WireClient(bootstrap_servers, timeout=_ASK_SECONDS) as client:
                answer = await client.metadata([])
                if answer.cluster_id == cluster_id and set(ports) <= {
                    broker.port for broker in answer.brokers
                }:
                    return
        await asyncio.sleep(_POLL_SECONDS)


class ServerThread(LoopThread[KafkaServer]):
    """A `KafkaServer` in a thread of its own, with methods that block until they are done: the fixture `kafka_server`.

    Args:
        version: the Kafka version.
        make: makes the server; None: a plain one of this version.
    """

    def __init__(
        self, version: str = jars.KAFKA_VERSION, *, make: Callable[[], KafkaServer] | None = None
    ) -> None:
        super().__init__(make or (lambda: KafkaServer(version)))

    @property
    def bootstrap_servers(self) -> str:
        """Return the address for clients, "127.0.0.1:port"."""
        return self.call(lambda server: server.bootstrap_servers)

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic as `KafkaServer.create_topic` does."""
        self.call(lambda server: server.create_topic(name, partitions, config))

    def end_offsets(self, topic: str) -> list[int]:
        """Return offsets as `KafkaServer.end_offsets` does."""
        return self.call(lambda server: server.end_offsets(topic))
