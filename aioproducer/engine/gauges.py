"""Reads gauges, queue depths and health from the parts of a producer, only when a caller asks for them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from aioproducer.config.secret import Secret
from aioproducer.errors import AuthenticationFailed
from aioproducer.model import BrokerSecurity, Health

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.config import ProducerConfig
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.wiring import EngineParts
    from aioproducer.net.cluster import BrokerNode
    from aioproducer.net.connection import Connection
    from aioproducer.net.tokens import TokenKeeper

__all__ = ["Gauges", "broker_security", "unready"]

_NO_BROKER: Final = "no broker has been reached yet"


class Gauges:
    """Reads the parts of one producer."""

    def __init__(self, context: EngineContext, parts: EngineParts) -> None:
        self._parts = parts
        self._config = context.config
        self._clock = context.loop.time

    def read(self) -> tuple[float, dict[str, float], dict[tuple[str, int], int]]:
        """Return the values of a snapshot that only the loop's thread may read, as the arguments of `Metrics.snapshot`."""
        now = self._clock()
        self._parts.instruments.recorder.catch_up(now)
        # The cost of the depths is proportional to the number of batches that have not ended.
        incomplete = self._parts.partition_queues.incomplete if self._config.metrics_recording_level in {"debug", "trace"} else ()
        depths = Counter((batch.queue.topic, batch.queue.partition) for batch in incomplete)
        return now, self._gauges(now), depths

    def _gauges(self, now: float) -> dict[str, float]:
        """Return all gauges by name (`metrics.table.GAUGES`)."""
        nodes = self._parts.cluster.nodes
        broker_connections = [
            broker_connection for node in (*nodes, *self._parts.cluster.bootstrap) for broker_connection in (node.produce, node.control)
        ]
        waiting, for_topics = self._parts.admission.pending.waiting, self._parts.admission.topics.waiting
        return {
            "requests-in-flight": sum(broker_connection.in_flight for broker_connection in broker_connections),
            "metadata-age": now - self._parts.updater.answered_at,
            "connection-count": sum(broker_connection.is_usable for broker_connection in broker_connections),
            "waiting-threads": waiting,
            "buffer-total-bytes": self._parts.pool.size,
            "buffer-available-bytes": self._parts.pool.available,
            "memory-waiters": waiting - for_topics,
            "metadata-waiters": for_topics,
            "oldest-unacknowledged-seconds": self._oldest(),
            "incomplete-batches": len(self._parts.partition_queues.incomplete),
            "brokers-known": len(nodes),
            "brokers-up": sum(map(_is_up, nodes)),
            "brokers-down": sum(map(_is_down, nodes)),
            "brokers-throttling": sum(node.is_muted for node in nodes),
            "brokers-late": self._parts.partition_queues.availability.late,
            "topics-known": len(self._parts.partition_queues.routings),
            "breakers-open": len(self._open_breakers),
            "client-certificate-expiry-ms": 1000 * (self._parts.instruments.client_certificate_ends_at or 0.0),
            "broker-certificate-expiry-ms": 1000 * min(self._parts.instruments.brokers_certificates_end_at.values(), default=0.0),
            **_of_tokens(self._parts.token_keeper),
        }

    @property
    def _open_breakers(self) -> list[str]:
        manager = self._parts.circuit_break_manager
        return manager.told() if manager is not None else []

    def _oldest(self) -> float:
        """Return the seconds since the oldest batch that has not ended was opened; 0: there is none."""
        expiry = self._parts.partition_queues.incomplete.next_expiry()
        return 0.0 if expiry is None else max(self._clock() - expiry + self._config.delivery_timeout_ms / 1000, 0.0)

    def health(self, patience: float) -> Health:
        """Return the health of a producer that runs; `patience`: seconds for which a record may be unacknowledged."""
        nodes, oldest = self._parts.cluster.nodes, self._oldest()
        up, down = sum(map(_is_up, nodes)), sum(map(_is_down, nodes))
        trouble = self._parts.updater.schedule.trouble
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
            tuple(self._open_breakers),
            self._parts.pool.available,
            self._parts.admission.pending.waiting,
            broker_security(self._config, nodes, self._clock(), self._parts.token_keeper),
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


def broker_security(
    config: ProducerConfig, nodes: Iterable[BrokerNode], now: float, tokens: TokenKeeper | None = None
) -> tuple[BrokerSecurity, ...]:
    """Return the security of each broker; empty with PLAINTEXT.

    Args:
        config: the options.
        nodes: the brokers.
        now: the loop's time.
        tokens: keeps the token, which tells the principal; None: the mechanism has none.
    """
    if config.security_protocol == "PLAINTEXT":
        return ()
    return tuple(_of_broker(config, node, now, tokens) for node in nodes)


def _of_broker(config: ProducerConfig, node: BrokerNode, now: float, tokens: TokenKeeper | None) -> BrokerSecurity:
    both = (node.produce, node.control)
    tls = next((facts for each in both if (facts := each.tls) is not None), None)
    version, cipher, certificate_ends_at = tls or (None, None, None)
    connections = [each.connection for each in both if each.connection is not None]
    errors = [each.last_error for each in both] + [None if tokens is None else tokens.last_error]
    refusals = [error for error in errors if isinstance(error, AuthenticationFailed)]
    return BrokerSecurity(
        node.broker.node_id,
        node.where,
        str(config.security_protocol),
        tls_version=version,
        cipher=cipher,
        certificate_ends_at=certificate_ends_at,
        mechanism=config.sasl_mechanism,
        principal=_principal(config, connections, tokens),
        session_seconds_left=_seconds_left(connections, now),
        last_refusal=str(refusals[0]) if refusals else None,
    )


def _seconds_left(connections: Iterable[Connection], now: float) -> float | None:
    """Return the seconds until the first session of SASL ends; None: none does."""
    ends = [each.session.ends_at for each in connections if each.session is not None]
    return min((max(end - now, 0.0) for end in ends if end is not None), default=None)


def _principal(config: ProducerConfig, connections: Iterable[Connection], tokens: TokenKeeper | None) -> str | None:
    """Return the principal of the client: that of the token or of the options; with Kerberos, that of the ticket."""
    if tokens is not None:
        return tokens.principal
    user = config.sasl_username
    if user is None:
        user = next((each.user for each in connections if each.user), config.sasl_kerberos_principal)
    return user.reference if isinstance(user, Secret) else user
