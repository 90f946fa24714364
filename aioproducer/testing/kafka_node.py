"""One node of a real Kafka: its folder, Java process and log. `KafkaServer` runs one, `KafkaCluster` several.

1. The node never outlives this process, not even if this process is killed: see `_GUARD`. A keyboard's Ctrl-C does not reach the node.
2. Its folder remains until `remove`, so that a stopped or killed node can start again with the data that it had written.
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

__all__ = ["HOST", "KafkaNode", "KafkaServerFailed", "PortTakenError", "Tools", "fetched", "free_ports", "guarded", "new_cluster_id"]

HOST: Final = "127.0.0.1"
_REAP_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 30.0  # for a controlled shutdown, which first moves leaders to other nodes
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
            raise KafkaServerFailed("it is not running" + ("" if self.folder is None else f"\n{self.log_tail()}"))
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
        wanted = [word for name, level in (features or {}).items() for word in ("--feature", f"{name}={level}")]
        await self._spawn(tools, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", "server.properties", *wanted, *arguments)
        assert self._process is not None
        if await self._process.wait():
            raise KafkaServerFailed(f"Kafka {self.version} could not prepare its folder\n{self.log_tail()}")

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
            raise KafkaServerFailed(f"Kafka {self.version} ended with status {process.returncode}\n{self.log_tail()}")
        ready.result()

    def send_signal(self, number: signal.Signals) -> None:
        """Send the process a signal.

        Raises:
            KafkaServerFailed: the node does not run.
        """
        self.running().send_signal(number)

    async def shut_down(self) -> None:
        """Shut the node down with SIGTERM, so that it moves its leaders away and ends; kill it after 30 s.

        Raises:
            KafkaServerFailed: the node does not run.

        Cancellation: the shutdown continues.
        """
        process = self.running()
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            await self.end()

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
        raise KafkaServerFailed(f"process {process.pid} was killed, and had not ended after {_REAP_SECONDS} s") from error
