"""The pytest plugin: fixtures `kafka_cluster` (a `FakeCluster` for one test) and `kafka_server` (a real node for the session).

It imports nothing of the package, nor of pytest-asyncio, before a fixture is asked for: pytest loads it in every run.
`kafka_cluster` runs in the loop that pytest-asyncio gives to a test's fixtures. With anyio's plugin alone it runs in anyio's; where
both are installed and a test is anyio's, use `async with FakeCluster()` in the test.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.kafka_server import KafkaServer

__all__ = ["ServerThread", "kafka_server", "pytest_configure"]


def pytest_configure(config: pytest.Config) -> None:
    """Give `kafka_cluster` to whichever plugin runs asynchronous fixtures here; strict mode wants them marked by pytest-asyncio."""
    fixture: Callable[..., Any] = pytest.fixture
    if config.pluginmanager.hasplugin("asyncio"):
        import pytest_asyncio  # noqa: PLC0415  see above

        fixture = pytest_asyncio.fixture
    module = ModuleType("aioproducer.testing.plugin.fixtures")
    vars(module)["kafka_cluster"] = fixture(name="kafka_cluster")(_kafka_cluster)
    config.pluginmanager.register(module, "aioproducer-fixtures")


async def _kafka_cluster() -> AsyncIterator[FakeCluster]:
    """A `FakeCluster` of one broker on loopback sockets; scripted faults that did not happen fail the test."""
    from aioproducer.testing.cluster import FakeCluster  # noqa: PLC0415  see above

    async with FakeCluster() as cluster:
        yield cluster
    cluster.assert_all_fired()


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[ServerThread]:
    """A real Kafka node for the whole session, in a thread with a loop of its own. Skipped without Java; in CI that is a failure."""
    from aioproducer.jars import JavaMissing  # noqa: PLC0415  see above

    server = ServerThread()
    try:
        server.start()
    except JavaMissing as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.stop()


class ServerThread:
    """A `KafkaServer` for tests in any loop, or in none: its methods are plain functions and wait until they are done."""

    def __init__(self) -> None:
        self._started: Future[KafkaServer] = Future()
        self._thread = threading.Thread(target=self._run, name="kafka_server", daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find it, "127.0.0.1:port"."""
        return self._started.result().bootstrap_servers

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
        """As `KafkaServer.create_topic`."""
        self._call(lambda server: server.create_topic(name, partitions, config))

    def end_offsets(self, topic: str) -> list[int]:
        """As `KafkaServer.end_offsets`."""
        offsets: list[int] = self._call(lambda server: server.end_offsets(topic))
        return offsets

    def start(self) -> None:
        """Start the node and wait until it is ready. Errors as `KafkaServer.start`."""
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        """End the node and the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def _call(self, ask: Callable[[KafkaServer], Awaitable[Any]]) -> Any:
        async def asked() -> Any:
            return await ask(self._started.result())

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # belongs to the thread that waits in `start`
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        from aioproducer.testing.kafka_server import KafkaServer  # noqa: PLC0415  see above

        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        async with KafkaServer() as server:
            self._started.set_result(server)
            await self._stopping.wait()
