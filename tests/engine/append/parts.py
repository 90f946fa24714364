"""The parts that append records, without tasks, loop or brokers: the test sets the time, and drains and ends batches itself."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from batches import install, topic

from aioproducer.config import ProducerConfig
from aioproducer.core.partition_queues import PartitionQueues
from aioproducer.core.producer_batch import NEXT, Event
from aioproducer.core.record_validation import RecordValidation
from aioproducer.core.retries import Backoff
from aioproducer.engine import chosen_build
from aioproducer.engine.append.appender import Appender
from aioproducer.engine.append.batch_sizing import BatchSizing, settle
from aioproducer.engine.append.loop_budget import LoopBudget
from aioproducer.engine.chosen_build import FastPath
from aioproducer.engine.context import EngineContext
from aioproducer.engine.memory.buffer_pool import BufferPool
from aioproducer.engine.memory.partition_quota import PartitionQuota
from aioproducer.engine.memory.pending_send import PendingSend
from aioproducer.engine.observability.metrics_recorder import SilentRecorder
from aioproducer.metrics.registry import Metrics, Windows
from aioproducer.records.compression import CompressionRatios

if TYPE_CHECKING:
    from aioproducer.core.producer_batch import ProducerBatch

__all__ = ["NOW_MS", "Clock", "Parts", "engine_context"]

NOW_MS = 5000


class Clock:
    """Takes the place of a loop, of which these parts use the time alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now


def engine_context(
    config: ProducerConfig, loop: Any, *, spawn: Any = None, chance: float = 0.0
) -> EngineContext:
    """Return what the parts of a producer share. It records no metrics."""
    instruments: Any = SimpleNamespace(
        recorder=SilentRecorder(config, Metrics("me", Windows(), version="", began_ms=0), loop),
        identity=lambda _identity: None,
    )
    return EngineContext(
        config, loop, SimpleNamespace(spawn=spawn), Backoff(0.1, 1.0), lambda: chance, instruments
    )


class Parts:
    """Holds the parts of one producer with the topic orders, whose partitions have these leaders."""

    def __init__(self, *leaders: int, on_open: Any = None, **options: Any) -> None:
        clock: Any = Clock()
        self.config = ProducerConfig(bootstrap_servers="here:1", **options)
        path = FastPath(lambda: NOW_MS, None)  # type: ignore[arg-type]
        self.budget = LoopBudget(clock, path)
        self.pool = BufferPool(self.config.buffer_memory, lambda: None)
        self.queues = PartitionQueues(
            chosen_build.FULL,
            linger=0.0,
            lifetime=1000.0,
            on_close=partial(settle, self.pool),
            on_open=on_open,
        )
        context = chosen_build.DeliveryContext(
            clock, lambda _error, _count: None, lambda: NOW_MS / 1000
        )
        shares = (
            PartitionQuota(self.pool, self.queues)
            if self.config.circuit_breaker_class is not None
            else None
        )
        parts: Any = (self.budget, self.queues, self.pool, context)
        self.sizing = BatchSizing(
            self.config, clock, *parts, ratios=CompressionRatios(), shares=shares
        )
        self.appender = Appender(
            engine_context(self.config, clock), path, *parts, room=self.sizing, shares=shares
        )
        self._validation = RecordValidation(
            self.config, PendingSend, lambda _what, function, *given: function(*given)
        )
        self.routing = install(self.queues, topic(*(leaders or (1,)), name="orders"))

    def place(self, partition: int | None = None) -> Any:
        """Append a record by the slow path. Returns its delivery, or None."""
        return self.appender.place(
            self._validation.record("orders", b"v", None, partition, None, ()), self.routing
        )

    def use_up(self, left: int = 0) -> int:
        """Take all memory but `left` bytes. Returns the bytes that were taken."""
        taken = self.pool.available - left
        self.pool.take(taken)
        return taken

    def sent(self) -> list[ProducerBatch]:
        """Drain and send what is ready for broker 1."""
        batches = self.queues.drain(1, "connection", 1_000_000)
        for batch in batches:
            batch.state = NEXT[batch.state, Event.SEND]
        return batches
