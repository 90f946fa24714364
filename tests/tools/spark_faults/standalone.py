"""A standalone Spark on loopback, from the jars that pyspark brings: one master, some workers.

    async with Standalone(folder) as cluster:
        session = SparkSession.builder.master(cluster.url)...

A process that ends with the block takes its executors along.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from aioproducer.testing.kafka_server import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

__all__ = ["Standalone", "StandaloneFailed"]

_START_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.1
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"


class StandaloneFailed(Exception):
    """A master or a worker ended, or was not ready in time; the text has the end of its log."""


class Standalone:
    """Runs a master and its workers: `async with Standalone(folder) as cluster: ...`.

    Args:
        folder: for logs and the executors' working directories.
        workers: how many.
        cores: of each worker.
        memory: of each worker, in Java's notation.
        env: added to the workers' environment, which executors inherit; this process's PYTHONPATH and PYSPARK_PYTHON do not reach them.
        home: pyspark's folder, by default that of this environment.
        is_spread: whether each worker has a host of its own, 127.0.0.1, 127.0.0.2 and so on: Spark runs no speculative copy of a task on the
            host of the task. Linux has all of them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        env: Mapping[str, str] | None = None,
        home: Path | None = None,
        is_spread: bool = False,
    ) -> None:
        self._folder = folder
        self._count = workers
        self._words = ("--cores", str(cores), "--memory", memory)
        self._home = home or _home()
        self._is_spread = is_spread
        self._env = dict(env or {})
        self._processes: list[asyncio.subprocess.Process] = []
        self.url = ""

    @property
    def worker_pids(self) -> list[int]:
        """Return the process ids of the workers: their children are the executors."""
        return [process.pid for process in self._processes[1:]]

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._start_all()
        except BaseException as error:
            await self._end_all()
            if isinstance(error, TimeoutError):
                raise StandaloneFailed(f"not ready within {_START_SECONDS:g} s\n{self._tail()}") from error
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._end_all()

    async def _start_all(self) -> None:
        port, *web_ports = free_ports(2 + self._count)
        self.url = f"spark://{HOST}:{port}"
        await self._start("master", _MASTER, "--port", str(port), "--webui-port", str(web_ports[0]))
        await self._until("master", "I have been elected leader")
        for number, web_port in enumerate(web_ports[1:], 1):
            host = f"127.0.0.{number}" if self._is_spread else HOST
            where = ("--host", host, "--webui-port", str(web_port), "--work-dir", str(self._folder / f"work-{number}"))
            await self._start(f"worker-{number}", _WORKER, self.url, *self._words, *where)
        for number in range(1, self._count + 1):
            await self._until(f"worker-{number}", "Successfully registered with master")

    async def _start(self, name: str, main: str, *words: str) -> None:
        inherited = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYSPARK_PYTHON"}}
        settings = {
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "PYSPARK_PYTHON": sys.executable,
        }
        with self._log(name).open("wb") as log:
            command = (str(self._home / "bin" / "spark-class"), main, "--host", HOST, *words)
            process = await asyncio.create_subprocess_exec(
                *command, env=inherited | settings | self._env, stdout=log, stderr=log, start_new_session=True
            )
        self._processes.append(process)

    async def _until(self, name: str, words: str) -> None:
        while words not in self._log(name).read_text(encoding="utf-8", errors="replace"):
            if any(process.returncode is not None for process in self._processes):
                raise StandaloneFailed(f"a process ended before {name} was ready\n{self._tail()}")
            await asyncio.sleep(_POLL_SECONDS)

    async def _end_all(self) -> None:
        processes, self._processes = self._processes, []
        for process in reversed(processes):
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
                process.kill()
        await asyncio.gather(*(process.wait() for process in processes))

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _tail(self) -> str:
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-10:]) for log in logs)


def _home() -> Path:
    # Imported here: the tests of what is imported with this module run without pyspark.
    import pyspark

    return Path(pyspark.__file__).parent
