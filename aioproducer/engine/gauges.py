"""Reads gauges, queue depths and health from the parts of a producer, only when a caller asks for them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from aioproducer.engine.broker_security import broker_security
from aioproducer.model import Health

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.engine.append.admission import Admission
    from aioproducer.engine.circuit_breaker.manager import ProducerCircuitBreakManager
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.engine.metadata.metadata_updater import MetadataUpdater
    from aioproducer.net.broker_node import BrokerNode
    from aioproducer.net.cluster import Cluster
    from aioproducer.net.tokens import TokenKeeper

__all__ = ["Gauges", "unready"]

_NO_BROKER: Final = "no broker has been reached yet"


class Gauges:
    """Reads the parts of one producer.

    Args:
        circuit_break_manager: names the partitions that it holds back; None: the producer has none.
        token_keeper: keeps the bearer token; None: the producer has none.
    """

    def __init__(
        self,
        context: EngineContext,
        pool: BufferPool,
        partition_queues: PartitionQueues,
        admission: Admission,
        cluster: Cluster,
        updater: MetadataUpdater,
        circuit_break_manager: ProducerCircuitBreakManager | None,
        token_keeper: TokenKeeper | None,
    ) -> None:
        self._tokens = token_keeper
        self._pool = pool
        self._partition_queues = partition_queues
        self._admission = admission
        self._cluster = cluster
        self._updater = updater
        self._config = context.config
        self._recorder = context.instruments.recorder
        self._instruments = context.instruments
        self._clock = context.loop.time
        self._has_depths = context.config.metrics_recording_level in {"debug", "trace"}
        self._open_breakers: Callable[[], Sequence[str]] = circuit_break_manager.told if circuit_break_manager is not None else list
        self._lifetime = context.config.delivery_timeout_ms / 1000

    def read(self) -> tuple[float, dict[str, float], dict[tuple[str, int], int]]:
        """Return the values of a snapshot that only the loop's thread may read, as the arguments of `Metrics.snapshot`."""
        now = self._clock()
        self._recorder.catch_up(now)
        # The cost of the depths is proportional to the number of batches that have not ended.
        incomplete = self._partition_queues.incomplete if self._has_depths else ()
        depths = Counter((batch.queue.topic, batch.queue.partition) for batch in incomplete)
        return now, self._gauges(now), depths

    def _gauges(self, now: float) -> dict[str, float]:
        """Return all gauges by name (`metrics.table.GAUGES`)."""
        nodes = self._cluster.nodes
        broker_connections = [
            broker_connection for node in (*nodes, *self._cluster.bootstrap) for broker_connection in (node.produce, node.control)
        ]
        waiting, for_topics = self._admission.pending.waiting, self._admission.topics.waiting
        return {
            "requests-in-flight": sum(broker_connection.in_flight for broker_connection in broker_connections),
            "metadata-age": now - self._updater.answered_at,
            "connection-count": sum(broker_connection.is_usable for broker_connection in broker_connections),
            "waiting-threads": waiting,
            "buffer-total-bytes": self._pool.size,
            "buffer-available-bytes": self._pool.available,
            "memory-waiters": waiting - for_topics,
            "metadata-waiters": for_topics,
            "oldest-unacknowledged-seconds": self._oldest(),
            "incomplete-batches": len(self._partition_queues.incomplete),
            "brokers-known": len(nodes),
            "brokers-up": sum(map(_is_up, nodes)),
            "brokers-down": sum(map(_is_down, nodes)),
            "brokers-throttling": sum(node.is_muted for node in nodes),
            "brokers-late": self._partition_queues.availability.late,
            "topics-known": len(self._partition_queues.routings),
            "breakers-open": len(self._open_breakers()),
            "client-certificate-expiry-ms": 1000 * (self._instruments.client_certificate_ends_at or 0.0),
            "broker-certificate-expiry-ms": 1000 * min(self._instruments.brokers_certificates_end_at.values(), default=0.0),
            **_of_tokens(self._tokens),
        }

    def _oldest(self) -> float:
        """Return the seconds since the oldest batch that has not ended was opened; 0: there is none."""
        expiry = self._partition_queues.incomplete.next_expiry()
        return 0.0 if expiry is None else max(self._clock() - expiry + self._lifetime, 0.0)

    def health(self, patience: float) -> Health:
        """Return the health of a producer that runs; `patience`: seconds for which a record may be unacknowledged."""
        nodes, oldest = self._cluster.nodes, self._oldest()
        up, down = sum(map(_is_up, nodes)), sum(map(_is_down, nodes))
        trouble = self._updater.schedule.trouble
        unreachable = f"no broker of {len(nodes)} can be reached: {next((node.last_error for node in nodes if node.last_error), None)}"
        reasons = (
            (not nodes, _NO_BROKER + (f": {trouble}" if trouble is not None else "")),
            (nodes and down == len(nodes), unreachable),
            (nodes and down < len(nodes) and trouble is not None, f"no broker answers questions for metadata: {trouble}"),
            (oldest > patience, f"the oldest record is not acknowledged after {oldest:.1f} s"),
        )
        told = tuple(reason for applies, reason in reasons if applies)
        return Health(
            not told,
            told,
            len(nodes),
            up,
            down,
            oldest,
            tuple(self._open_breakers()),
            self._pool.available,
            self._admission.pending.waiting,
            broker_security(self._config, nodes, self._clock(), self._tokens),
        )


def _of_tokens(tokens: TokenKeeper | None) -> dict[str, float]:
    """Return the gauges of the bearer token: 0 each if the producer has none."""
    if tokens is None:
        return dict.fromkeys(("token-age-seconds", "token-expiry-ms", "token-failures"), 0.0)
    return {
        "token-age-seconds": tokens.age or 0.0,
        "token-expiry-ms": 1000 * (tokens.expires_at or 0.0),
        "token-failures": tokens.failures,
    }


def unready(reason: str) -> Health:
    """Return the health of a producer that does not run."""
    return Health(is_ready=False, reasons=(reason,))


def _is_up(node: BrokerNode) -> bool:
    return node.produce.is_usable or node.control.is_usable


def _is_down(node: BrokerNode) -> bool:
    return node.failures > 0 and not _is_up(node)
