"""The parts that append records, without tasks, loop or brokers: the test sets the time, and drains and ends batches itself."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from batches import topic

from aioproducer.config import ProducerConfig
from aioproducer.core.partition_queues import PartitionQueues
from aioproducer.core.produce_attempt import Backoff
from aioproducer.core.producer_batch import NEXT, Event
from aioproducer.core.record_validation import RecordValidation
from aioproducer.core.topic_updates import install
from aioproducer.engine import chosen_build
from aioproducer.engine.append.appender import Appender
from aioproducer.engine.append.batch_sizing import BatchSizing, settle
from aioproducer.engine.append.loop_budget import LoopBudget
from aioproducer.engine.chosen_build import FastPath
from aioproducer.engine.context import EngineContext
from aioproducer.engine.memory.buffer_pool import BufferPool
from aioproducer.engine.memory.partition_quota import PartitionQuota
from aioproducer.engine.memory.wait_queue import PendingSend
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


def engine_context(config: ProducerConfig, loop: Any, *, spawn: Any = None, pause: float = 0.1, chance: float = 0.0) -> EngineContext:
    """Return what the parts of a producer share. It records no metrics."""
    instruments: Any = SimpleNamespace(
        recorder=SilentRecorder(config, Metrics("me", Windows(), version="", began_ms=0), loop), identity=lambda _identity: None
    )
    return EngineContext(config, loop, SimpleNamespace(spawn=spawn), Backoff(pause, 1.0), lambda: chance, instruments)


class Parts:
    """Holds the parts of one producer with the topic orders, whose partitions have these leaders."""

    def __init__(self, *leaders: int, lifetime: float = 1000.0, on_open: Any = None, **options: Any) -> None:
        self.clock: Any = Clock()
        self.config = ProducerConfig(bootstrap_servers="here:1", **options)
        self.path = FastPath(lambda: NOW_MS, None)  # type: ignore[arg-type]
        self.budget = LoopBudget(self.clock, self.path)
        self.pool = BufferPool(self.config.buffer_memory, lambda: None)
        self.queues = PartitionQueues(
            chosen_build.FULL, linger=0.0, lifetime=lifetime, on_close=partial(settle, self.pool), on_open=on_open
        )
        context = chosen_build.DeliveryContext(self.clock, lambda _error, _count: None, lambda: NOW_MS / 1000)
        self.context = context
        self.quota = PartitionQuota(self.pool, self.queues) if self.config.circuit_breaker_class is not None else None
        self.ratios = CompressionRatios()
        parts: Any = (self.budget, self.queues, self.pool, context)
        self.sizing = BatchSizing(self.config, self.clock, *parts, ratios=self.ratios, shares=self.quota)
        self.engine = engine_context(self.config, self.clock)
        self.appender = Appender(self.engine, self.path, *parts, room=self.sizing, shares=self.quota)
        self.routing = install(self.queues, topic(*(leaders or (1,)), name="orders"))
        self.record = partial(_record, RecordValidation(self.config, PendingSend))

    def place(self, value: bytes = b"v", key: bytes | None = None, partition: int | None = None) -> Any:
        """Append a record by the slow path. Returns its delivery, or None."""
        return self.appender.place(self.record(value, key, partition), self.routing)

    def use_up(self, left: int = 0) -> int:
        """Take all memory but `left` bytes. Returns the bytes that were taken."""
        taken = self.pool.available - left
        self.pool.take(taken)
        return taken

    def counts(self) -> list[list[int]]:
        """Return the records of each batch that has not been drained, by partition."""
        return [
            [batch.count for batch in queue.closed] + ([queue.current.open.count] if queue.current and queue.current.open else [])
            for queue in self.routing.queues
        ]

    def sent(self) -> list[ProducerBatch]:
        """Drain and send what is ready for broker 1."""
        batches = self.queues.drain(1, "connection", 1_000_000)
        for batch in batches:
            batch.state = NEXT[batch.state, Event.SEND]
        return batches


def _record(
    validation: RecordValidation[PendingSend], value: Any = b"v", key: Any = None, partition: Any = None, **options: Any
) -> PendingSend:
    given = {"timestamp_ms": None, "headers": (), **options}
    return validation.record("orders", value, key, partition, given["timestamp_ms"], given["headers"])
