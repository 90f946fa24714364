"""A real Kafka of one node (KRaft: broker and controller in one), run from jars, for as long as an `async with` lasts.

1. It listens on loopback, on ports that were free a moment before; if one was taken meanwhile, it is started again on others.
2. It is ready when it answers a Metadata request, with its own cluster id and itself as a living broker.
3. It never outlives this process, not even when that is killed: see `_GUARD`. A keyboard's Ctrl-C does not reach it.
4. Cancelled or failed at any point, starting leaves no process and no folder. (Killed, this process leaves the folder of the node.)

Knows nothing of producers.
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
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioproducer import jars
from aioproducer.errors import KafkaError, TransportError
from aioproducer.testing.client import WireClient

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

__all__ = ["KafkaServer", "KafkaServerFailed"]

_HOST: Final = "127.0.0.1"
_NODE: Final = 1
_ATTEMPTS: Final = 3  # each with new ports
_ASK_SECONDS: Final = 2.0  # for one Metadata answer of a node that may hang while it starts
_POLL_SECONDS: Final = 0.03
_REAP_SECONDS: Final = 10.0
_LAST_LINES: Final = 25
_PORT_TAKEN: Final = "Address already in use"

# Runs before Java, in the process that becomes it. Linux sends SIGKILL to a child whose parent (the thread that started it) ends.
# Elsewhere a grandchild waits for the end of a pipe that only the parent holds open, and then kills Java, if that is still its parent.
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
    """The node did not start, or is not running; the text holds the last lines of its log."""


class _PortTakenError(Exception):
    """Somebody else bound a port between our choosing and the node's binding."""


class KafkaServer:
    """One Kafka node in a process of its own: `async with KafkaServer() as kafka: ...`.

    Args:
        version: of Kafka; its jars are fetched once (see `aioproducer.jars`).
        properties: added to `server.properties`, over what is there.
        heap: of its Java, in Java's words.
        jvm_options: added to Java's command line.
        start_timeout: seconds for starting, without fetching jars.

    Attributes:
        bootstrap_servers: where clients find it, "127.0.0.1:port".
        pid: of the running process.
    """

    def __init__(
        self,
        version: str = jars.KAFKA_VERSION,
        properties: Mapping[str, object] | None = None,
        *,
        heap: str = "256m",
        jvm_options: Sequence[str] = (),
        start_timeout: float = 60.0,
    ) -> None:
        self._version = version
        self._properties = dict(properties or {})
        self._heap = heap
        self._jvm_options = tuple(jvm_options)
        self._start_timeout = start_timeout
        self._cluster_id = _new_cluster_id()
        self._folder: Path | None = None
        self._process: Process | None = None
        self._ports = (0, 0)

    def __repr__(self) -> str:
        state = f"{self.bootstrap_servers}, pid {self.pid}" if self.is_running else "not running"
        return f"<KafkaServer {self._version}: {state}>"

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find it, "127.0.0.1:port"."""
        return f"{_HOST}:{self._ports[0]}"

    @property
    def pid(self) -> int:
        """The number of its process. KafkaServerFailed: it does not run."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether its process lives; a paused one does."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it, and return when clients can use it: 2 to 4 s, or minutes when the jars are not here yet.

        Raises:
            KafkaServerFailed: it ended, or was not ready within `start_timeout`.
            JavaMissing: no Java, or one that is too old.
            JarsUnavailable: its jars could not be fetched.

        Cancellation: nothing of it stays. It can be started again.
        """
        if self._folder is not None:
            raise KafkaServerFailed("it has been started already")
        if sys.platform == "win32":
            raise KafkaServerFailed("KafkaServer needs a POSIX system; on Windows run it under WSL")
        java, library = await _fetched(self._version)
        self._folder = Path(tempfile.mkdtemp(prefix="aioproducer-kafka-"))
        try:
            async with asyncio.timeout(self._start_timeout):
                await self._format(java, library)
                for attempt in range(1, _ATTEMPTS + 1):
                    try:
                        await self._launch(java, library)
                        break
                    except _PortTakenError as error:
                        if attempt == _ATTEMPTS:
                            raise KafkaServerFailed(f"ports were taken {attempt} times in a row\n{self.log_tail()}") from error
        except TimeoutError as error:
            failure = KafkaServerFailed(f"Kafka {self._version} was not ready within {self._start_timeout} s\n{self.log_tail()}")
            await self.stop()
            raise failure from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End its process and remove its folder; safe at any time, and twice.

        Cancellation: it is done all the same, but for waiting until the system has ended the process.
        """
        process, self._process = self._process, None
        folder, self._folder = self._folder, None
        try:
            if process is not None:
                await _end(process)
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    def pause(self) -> None:
        """Stop it as a debugger would (SIGSTOP): connections stay, nothing is answered. KafkaServerFailed: it does not run."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused one go on. KafkaServerFailed: it does not run."""
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End its process at once (SIGKILL), as a crash would. KafkaServerFailed: it does not run."""
        self._running().kill()

    async def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
        """Create a topic, and wait until each of its partitions has a leader.

        Args:
            name: of the topic.
            partitions: how many.
            config: Kafka's topic options, such as {"retention.ms": -1}.

        Raises:
            BrokerError: the node refuses it.
            TransportError: the node does not answer.

        Cancellation: the topic may or may not have been created.
        """
        async with WireClient(self.bootstrap_servers, timeout=30.0) as client:
            await client.create_topic(name, partitions, config)

    async def end_offsets(self, topic: str) -> list[int]:
        """The offset after the last record of each partition. Errors as `create_topic`."""
        async with WireClient(self.bootstrap_servers, timeout=30.0) as client:
            return await client.end_offsets(topic)

    def log_tail(self, lines: int = _LAST_LINES) -> str:
        """The last lines that the node, or the tools that prepared it, wrote."""
        if self._folder is None:
            return "(it has no log: it was not started)"
        log = self._folder / "server.log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        return "\n".join(text.splitlines()[-lines:]) or "(its log is empty)"

    def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            raise KafkaServerFailed("it is not running" + ("" if self._folder is None else f"\n{self.log_tail()}"))
        return self._process

    async def _format(self, java: Path, library: Path) -> None:
        """Prepare its folder: once, as nothing there depends on the ports."""
        assert self._folder is not None
        for name, text in _LOG_CONFIG.items():
            (self._folder / name).write_text(text, encoding="utf-8")
        self._choose_ports()
        await self._spawn(java, library, "kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", "server.properties")
        assert self._process is not None
        if await self._process.wait():
            raise KafkaServerFailed(f"Kafka {self._version} could not prepare its folder\n{self.log_tail()}")

    async def _launch(self, java: Path, library: Path) -> None:
        """Start the node on new ports, and wait until it is ready."""
        assert self._folder is not None
        (self._folder / "server.log").unlink(missing_ok=True)  # so that its lines are those of this attempt
        self._choose_ports()
        await self._spawn(java, library, "kafka.Kafka", "server.properties")
        process = self._running()
        ended = asyncio.ensure_future(process.wait())
        ready = asyncio.ensure_future(self._ready())
        try:
            await asyncio.wait((ended, ready), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            ready.cancel()
        if ended.done() and not ended.cancelled():
            if _PORT_TAKEN in self.log_tail(1000):
                raise _PortTakenError
            raise KafkaServerFailed(f"Kafka {self._version} ended with status {process.returncode}\n{self.log_tail()}")
        ready.result()

    async def _ready(self) -> None:
        """Wait until the node that answers is ours (another Kafka may have taken the port), and counts itself as alive."""
        while True:
            with contextlib.suppress(TransportError):
                async with WireClient(self.bootstrap_servers, timeout=_ASK_SECONDS) as client:
                    answer = await client.metadata([])
                    if answer.cluster_id == self._cluster_id and any(broker.port == self._ports[0] for broker in answer.brokers):
                        return
            await asyncio.sleep(_POLL_SECONDS)

    def _choose_ports(self) -> None:
        assert self._folder is not None
        self._ports = free_ports()
        lines = [f"{name}={value}\n" for name, value in self._settings().items()]
        (self._folder / "server.properties").write_text("".join(lines), encoding="utf-8")

    def _settings(self) -> dict[str, object]:
        broker, controller = self._ports
        return {
            "process.roles": "broker,controller",
            "node.id": _NODE,
            "controller.quorum.voters": f"{_NODE}@{_HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{_HOST}:{broker},CONTROLLER://{_HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{_HOST}:{broker}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": f"{self._folder}/data",
            # one node: every internal topic has one copy, and few partitions, whose creation is what takes time
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            # a small heap: the cleaner alone would take 128 MiB
            "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024,
            "log.index.size.max.bytes": 1024 * 1024,
            "num.network.threads": 2,
            "num.io.threads": 2,
            **self._properties,
        }

    async def _spawn(self, java: Path, library: Path, main: str, *arguments: str) -> None:
        assert self._folder is not None
        logging = (
            "-Dlog4j.configuration=file:log4j.properties"
            if self._version.startswith("3.")
            else "-Dlog4j2.configurationFile=log4j2.properties"
        )
        # quick to start rather than quick after minutes: a serial collector, the first compiler only
        options = [
            f"-Xms{self._heap}",
            f"-Xmx{self._heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            logging,
            *self._jvm_options,
        ]
        command = [str(java), *options, "-cp", f"{library}/*", main, *arguments]
        how = _guard_kind()
        with (self._folder / "server.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), how, *command),
                stdin=asyncio.subprocess.PIPE if how == "pipe" else asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
            )


def free_ports() -> tuple[int, int]:
    """Two ports of loopback that nobody listens on at this moment: the broker's and the controller's."""
    with socket.socket() as one, socket.socket() as other:
        one.bind((_HOST, 0))
        other.bind((_HOST, 0))
        return one.getsockname()[1], other.getsockname()[1]


def _guard_kind() -> str:
    return "prctl" if sys.platform == "linux" else "pipe"


def _new_cluster_id() -> str:
    while True:
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not name.startswith("-"):  # Kafka's tools would take it for an option
            return name


async def _fetched(version: str) -> tuple[Path, Path]:
    """Java and the folder of jars, from a thread: both take a while. Cancelled, it ends the fetch."""
    stop = threading.Event()

    def both() -> tuple[Path, Path]:
        return jars.java(), jars.kafka(version, stop=stop)

    try:
        return await asyncio.to_thread(both)
    finally:
        stop.set()


async def _end(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_REAP_SECONDS):
            await process.wait()
    except TimeoutError as error:
        raise KafkaServerFailed(f"process {process.pid} was killed, and had not ended after {_REAP_SECONDS} s") from error
