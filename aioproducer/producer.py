"""The face: `Producer`. What it promises is here; how it is kept is below."""

from __future__ import annotations

import importlib.metadata
import warnings
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from aioproducer.config import ProducerConfig
from aioproducer.engine.engine import Engine
from aioproducer.engine.hot import SendPath, Way
from aioproducer.errors import ProducerClosed
from aioproducer.net.transport import TcpDialer
from aioproducer.records.compression import check_available

if TYPE_CHECKING:
    from types import TracebackType

    from aioproducer.engine.hot import Delivery
    from aioproducer.interfaces import Dialer
    from aioproducer.model import Compression, FlushSummary, Headers, RecordMetadata

__all__ = ["Producer"]

K = TypeVar("K")
V = TypeVar("V")


class Producer(SendPath[K, V], Generic[K, V]):
    """Sends records to Kafka from one event loop.

    ```python
    async with Producer(bootstrap_servers="localhost:9092") as producer:
        delivery = await producer.send("orders", b"value", key=b"k")  # queued
        metadata = await delivery                                     # acknowledged
    ```

    Args:
        config: a `ProducerConfig`, or give its fields as options.
        dialer: makes connections; a fake cluster's `client_options` bring one.
        options: fields of `ProducerConfig`.

    Raises:
        ConfigError: an option is unknown, bad, or in conflict with another. Nothing was opened: the constructor does no I/O.
    """

    def __init__(self, config: ProducerConfig | None = None, *, dialer: Dialer | None = None, **options: Any) -> None:
        self.config = ProducerConfig.of(config, options)
        check_available(cast("Compression", self.config.compression_type))
        self._dialer = dialer or TcpDialer()
        self._way = Way(lambda: 0, self._send_unstarted)
        self._engine: Engine | None = None
        self._was_started = False

    async def start(self) -> None:
        """Start the tasks, and wait for the first metadata of any bootstrap broker, at most `max_block_ms`.

        Raises:
            BootstrapFailed: no broker answered; each address and its reason is in the text.
            ProducerClosed: it was started before; make a new one.
        Cancellation: nothing is left running.
        """
        if self._was_started:
            raise ProducerClosed("a producer starts once; make a new one")
        self._was_started = True
        engine = Engine(self.config, self._way, self._dialer, importlib.metadata.version("aioproducer"))
        await engine.start()
        self._engine = engine
        self._way.slowly = engine.send

    async def _send_unstarted(self, *_record: Any) -> Delivery:
        raise ProducerClosed("the producer was not started: use `async with Producer(...)`, or `await producer.start()`")

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """`send`, then wait for the acknowledgement.

        Raises:
            DeliveryError: the record was queued and not acknowledged; `persisted` says whether it may be in the log.
            What `send` raises: it was not queued.
        Cancellation: while `send` waits, the record is not queued; after that it is sent all the same.
        """
        return await (await self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers))

    async def flush(self, timeout: float | None = None) -> FlushSummary:
        """Send everything now, and wait until all that was queued, or waited to be, when it was called has ended.

        Args:
            timeout: seconds; None: as long as `delivery_timeout_ms` lets records live.

        Returns:
            Records acknowledged, failed, and pending when the time was over. It raises for none of them: their deliveries tell.
        Cancellation: the records go on.
        """
        if self._engine is None:
            raise ProducerClosed("the producer was not started")
        self._engine.check()
        return await self._engine.flush(timeout)

    async def stop(self) -> None:
        """Flush, at most `close_timeout_ms`, then fail what is left and close every connection.

        Safe twice, after a failure, and before `start`. Cancellation: what is left fails at once, and everything is closed.
        """
        engine = self._engine
        if engine is None:
            return
        if self._is_stopped:
            await engine.ended()
            return
        self._is_stopped = True
        await engine.stop(self.config.close_timeout_ms / 1000)

    _is_stopped = False

    async def __aenter__(self) -> Self:
        """`start`."""
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """`stop`: also after an exception or a cancellation it flushes, bounded, and keeps the original exception."""
        await self.stop()

    @property
    def buffer_available(self) -> int:
        """Bytes of `buffer_memory` that are free."""
        return self._engine.pool.available if self._engine is not None else int(self.config.buffer_memory)

    def __repr__(self) -> str:
        servers = ",".join(self.config.bootstrap_servers)
        engine = self._engine
        if engine is None:
            return f"<Producer {servers}: not started>"
        if engine.failure is not None:
            return f"<Producer {servers}: failed>"
        return f"<Producer {servers}: {'running' if engine.is_open else 'stopped'}, {engine.pool.available} bytes free, {engine.waiting} waiting>"

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None and engine.is_open:
            warnings.warn(
                f"{self!r} was never stopped: use `async with`, or `await producer.stop()`", ResourceWarning, source=self, stacklevel=1
            )
