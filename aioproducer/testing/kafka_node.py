"""One node of a real Kafka: its folder, its Java process, what it wrote. `KafkaServer` runs one of them, `KafkaCluster` several.

1. It never outlives this process, not even when that is killed: see `_GUARD`. A keyboard's Ctrl-C does not reach it.
2. Its folder lasts until `remove`, so that a node which was stopped or killed can be started again on what it had written.

Knows nothing of quorums, topics or readiness.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import socket
import sys
import tempfile
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer import jars
from aioproducer.errors import KafkaError

if TYPE_CHECKING:
    import signal
    from asyncio.subprocess import Process
    from collections.abc import Awaitable, Callable, Mapping, Sequence

__all__ = ["HOST", "KafkaNode", "KafkaServerFailed", "PortTakenError", "Tools", "fetched", "free_ports", "new_cluster_id"]

HOST: Final = "127.0.0.1"
_REAP_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 30.0  # for a controlled shutdown, which moves leaders away first
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
    """A node did not start, or is not running; the text holds the last lines of its log."""


class PortTakenError(Exception):
    """Somebody else bound a port between our choosing and the node's binding."""


class Tools(NamedTuple):
    """What a node is run with: Java, and the folder of Kafka's jars."""

    java: Path
    library: Path


class KafkaNode:
    """A node's folder and process.

    Args:
        version: of Kafka.
        heap: of its Java, in Java's words.
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
        """The number of its process. KafkaServerFailed: it does not run."""
        return self.running().pid

    @property
    def is_running(self) -> bool:
        """Whether its process lives; a paused one does."""
        return self._process is not None and self._process.returncode is None

    def running(self) -> Process:
        """Its process. KafkaServerFailed: it does not run."""
        if self._process is None or self._process.returncode is not None:
            raise KafkaServerFailed("it is not running" + ("" if self.folder is None else f"\n{self.log_tail()}"))
        return self._process

    def make_folder(self) -> Path:
        """Its folder, where there is none yet."""
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="aioproducer-kafka-"))
            for name, text in _LOG_CONFIG.items():
                (self.folder / name).write_text(text, encoding="utf-8")
        return self.folder

    async def format(
        self, tools: Tools, cluster_id: str, settings: Mapping[str, object], features: Mapping[str, int] | None = None
    ) -> None:
        """Prepare its folder: once, as nothing there depends on ports. KafkaServerFailed: Kafka's tool refuses."""
        self.configure(settings)
        wanted = [word for name, level in (features or {}).items() for word in ("--feature", f"{name}={level}")]
        await self._spawn(tools, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", "server.properties", *wanted)
        assert self._process is not None
        if await self._process.wait():
            raise KafkaServerFailed(f"Kafka {self.version} could not prepare its folder\n{self.log_tail()}")

    def configure(self, settings: Mapping[str, object]) -> None:
        """Write its `server.properties`."""
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.make_folder() / "server.properties").write_text("".join(lines), encoding="utf-8")

    async def launch(self, tools: Tools, is_ready: Callable[[], Awaitable[None]]) -> None:
        """Start its process, and return when `is_ready` does.

        Raises:
            PortTakenError: somebody else has one of its ports.
            KafkaServerFailed: its process ended.
        """
        (self.make_folder() / "server.log").unlink(missing_ok=True)  # so that its lines are those of this attempt
        await self._spawn(tools, "kafka.Kafka", "server.properties")
        process = self._process
        assert process is not None
        ended = asyncio.ensure_future(process.wait())  # which it may have by now
        ready = asyncio.ensure_future(is_ready())
        try:
            await asyncio.wait((ended, ready), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            ready.cancel()
        if ended.done() and not ended.cancelled():
            if _PORT_TAKEN in self.log_tail(1000):
                raise PortTakenError
            raise KafkaServerFailed(f"Kafka {self.version} ended with status {process.returncode}\n{self.log_tail()}")
        ready.result()

    def send_signal(self, number: signal.Signals) -> None:
        """Send its process a signal. KafkaServerFailed: it does not run."""
        self.running().send_signal(number)

    async def shut_down(self) -> None:
        """Let it hand its leaders over and end (SIGTERM); killed if that takes more than 30 s. KafkaServerFailed: it does not run.

        Cancellation: it goes on ending.
        """
        process = self.running()
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            await self.end()

    async def end(self) -> None:
        """End its process at once, whatever it does; safe at any time.

        Cancellation: it is done all the same, but for waiting until the system has ended the process.
        """
        process, self._process = self._process, None
        if process is not None:
            await _end(process)

    def remove(self) -> None:
        """Remove its folder."""
        folder, self.folder = self.folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def log_tail(self, lines: int = _LAST_LINES) -> str:
        """The last lines that the node, or the tools that prepared it, wrote."""
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
        command = [str(tools.java), *options, "-cp", f"{tools.library}/*", main, *arguments]
        how = _guard_kind()
        with (self.folder / "server.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), how, *command),
                stdin=asyncio.subprocess.PIPE if how == "pipe" else asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )


async def fetched(version: str) -> Tools:
    """Java and the folder of jars, from a thread: both take a while.

    Raises:
        KafkaServerFailed: the system is no POSIX.
        JavaMissing: no Java, or one that is too old.
        JarsUnavailable: the jars could not be fetched.

    Cancellation: it ends the fetch.
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
    """So many ports of loopback that nobody listens on at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return tuple(one.getsockname()[1] for one in sockets)


def new_cluster_id() -> str:
    """A random cluster id, as Kafka's tools take it."""
    while True:
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not name.startswith("-"):  # Kafka's tools would take it for an option
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
        raise KafkaServerFailed(f"process {process.pid} was killed, and had not ended after {_REAP_SECONDS} s") from error
