"""Runs one event loop in a thread of each Python worker process, with the producers that the tasks of the process share.

Spark forks a worker process for each task that runs at a time, and uses the process again for the next task. Connections stay open between
tasks. A forked child has the objects of its parent but not its thread: it makes its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import importlib
import os
import threading
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from aioproducer.config import ProducerConfig
from aioproducer.config.secret import Secret
from aioproducer.errors import KafkaError, ProducerClosed
from aioproducer.producer import Producer
from aioproducer.spark.collecting import spare_modules
from aioproducer.spark.ledger_client import LedgerClients

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

__all__ = ["Worker", "WorkerFailed", "worker"]

T = TypeVar("T")
C = TypeVar("C", bound="Producer[Any, Any] | LedgerClients")
_Key: TypeAlias = "tuple[tuple[str, str], ...]"
# How often a waiting task looks whether the loop's thread is alive.
_LOOK_SECONDS: Final = 1.0
# Producers, and clients of a ledger, that are kept while no task uses them: a process serves one query for most of its life.
_KEPT: Final = 4


class WorkerFailed(KafkaError):
    """Reports that the thread of the event loop has ended, so that nothing can be sent in this process any more."""


class Worker:
    """Holds the event loop of one process, its thread, and producers by their options.

    Attributes:
        pid: the process for which it was made.
    """

    def __init__(self) -> None:
        self.pid: int = os.getpid()
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="aioproducer", daemon=True)
        self._producers: dict[_Key, _Shared[Producer[Any, Any]]] = {}
        self._ledger_clients: dict[_Key, _Shared[LedgerClients]] = {}
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the loop. Returns its future, for `wait`."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def wait(self, future: concurrent.futures.Future[T]) -> T:
        """Return the result of a coroutine that `submit` has started, for the thread of a task.

        What the coroutine does has deadlines of its own. If the wait is interrupted, the coroutine is cancelled.

        Raises:
            WorkerFailed: the loop's thread has ended.
            Any error of the coroutine.
        """
        try:
            while not concurrent.futures.wait([future], _LOOK_SECONDS).done:
                if not self._thread.is_alive():
                    raise WorkerFailed(
                        "the thread of the event loop has ended: this Python worker sends nothing any more"
                    )
        # Also when Spark ends the worker by a signal: nobody waits for the call any more.
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns that runs on the loop; see `submit` and `wait`."""
        return self.wait(self.submit(coroutine))

    @contextlib.contextmanager
    def lent(self, options: Mapping[str, str]) -> Iterator[Producer[Any, Any]]:
        """Lend the started producer of some options to the thread of a task: one for all tasks. A producer that has failed is replaced.

        Args:
            options: Kafka's options, as `ProducerConfig.from_mapping` takes them.

        Raises:
            ConfigError: an option is bad, or a reference to a secret cannot be read.
            BootstrapFailed: no broker answered.
        """
        with self._lent(self._producers, _key(options), Producer) as producer:
            yield producer

    @contextlib.contextmanager
    def lent_ledger_clients(self, options: Mapping[str, str]) -> Iterator[LedgerClients]:
        """Lend the clients of a ledger of some options; see `lent`."""
        with self._lent(self._ledger_clients, _key(options), LedgerClients) as clients:
            yield clients

    @contextlib.contextmanager
    def _lent(
        self, all_shared: dict[_Key, _Shared[C]], key: _Key, make: Callable[[ProducerConfig], C]
    ) -> Iterator[C]:
        client = self.call(_take(all_shared, key, make))
        try:
            yield client
        finally:
            self.call(_give_back(all_shared, key))

    def close(self) -> None:
        """Stop every producer, and end the thread. For tests: a worker process just ends."""

        async def stop() -> None:
            for all_shared in (self._producers, self._ledger_clients):
                while all_shared:
                    await all_shared.popitem()[1].stop()

        self.call(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _key(options: Mapping[str, str]) -> _Key:
    return tuple(sorted(options.items()))


async def _take(
    all_shared: dict[_Key, _Shared[C]], key: _Key, make: Callable[[ProducerConfig], C]
) -> C:
    shared = all_shared.pop(key, None) or _Shared(key, make)
    # The one that was used last is at the end.
    all_shared[key] = shared
    shared.users += 1
    try:
        return await shared.started()
    # A cancelled task gives back what it was lent, as one whose producer does not start.
    except BaseException:
        await _give_back(all_shared, key)
        raise


async def _give_back(all_shared: dict[_Key, _Shared[C]], key: _Key) -> None:
    """End one use, and stop the clients that were not used for longest, beyond those that are kept."""
    all_shared[key].users -= 1
    idle = [one for one, shared in all_shared.items() if not shared.users]
    for one in idle[: max(len(all_shared) - _KEPT, 0)]:
        await all_shared.pop(one).stop()


class _Shared(Generic[C]):
    """Holds one client, which the first of its users starts, and a new one after a failure."""

    def __init__(self, key: _Key, make: Callable[[ProducerConfig], C]) -> None:
        self.users = 0
        self._key = key
        self._make = make
        self._client: C | None = None
        self._lock = asyncio.Lock()

    async def started(self) -> C:
        async with self._lock:
            if self._client is not None and not await _runs(self._client):
                await self.stop()
            if self._client is None:
                config = ProducerConfig.from_mapping(dict(self._key))
                # A client waits for a secret that is not there, as for a broker: each attempt of the task would take max_block_ms.
                await asyncio.to_thread(_read_secrets, config)
                client = self._make(config)
                await client.start()
                self._client = client
            return self._client

    async def stop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(KafkaError):
                await client.stop()


def _read_secrets(config: ProducerConfig) -> None:
    """Read what the references to secrets name. Raises ConfigError if one cannot be read."""
    for field in dataclasses.fields(config):
        secret = getattr(config, field.name)
        if isinstance(secret, Secret):
            secret.reveal()


async def _runs(client: Producer[Any, Any] | LedgerClients) -> bool:
    """Return whether a client works. Those of a ledger connect anew, or are replaced, whenever it is needed."""
    if isinstance(client, LedgerClients):
        return True
    try:
        await client.flush(timeout=0)
    except ProducerClosed:
        return False
    return True


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of uvloop if that is installed."""
    try:
        return importlib.import_module("uvloop").new_event_loop()  # type: ignore[no-any-return]
    except ImportError:
        return asyncio.new_event_loop()


_lock: Final = threading.Lock()
_worker: Worker | None = None


def worker() -> Worker:
    """Return the worker of this process, made by the first call in it. Each task calls it once, before its rows."""
    global _worker
    with _lock:
        # Also for later tasks: pyarrow imports pandas at the end of the first one.
        spare_modules()
        if _worker is None or _worker.pid != os.getpid():
            _worker = Worker()
        return _worker
