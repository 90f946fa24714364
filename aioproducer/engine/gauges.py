"""Reads gauges, queue depths and health from the parts of a producer, only when a caller asks for them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from aioproducer.config.secret import Secret
from aioproducer.errors import AuthenticationFailed
from aioproducer.model import BrokerSecurity, Health

if TYPE_CHECKING:
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.wiring import EngineParts
    from aioproducer.net.cluster import BrokerNode
    from aioproducer.net.tokens import TokenKeeper

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
        incomplete = (
            self._parts.partition_queues.incomplete
            if self._config.metrics_recording_level in {"debug", "trace"}
            else ()
        )
        depths = Counter((batch.queue.topic, batch.queue.partition) for batch in incomplete)
        return now, self._gauges(now), depths

    def _gauges(self, now: float) -> dict[str, float]:
        """Return all gauges by name (`metrics.table.GAUGES`)."""
        nodes = self._parts.cluster.nodes
        connections = self._parts.cluster.connections
        waiting, for_topics = (
            self._parts.admission.waiting,
            self._parts.admission.topics.waiting,
        )
        return {
            "requests-in-flight": sum(one.in_flight for one in connections),
            "metadata-age": now - self._parts.updater.answered_at,
            "connection-count": sum(one.is_usable for one in connections),
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
            "client-certificate-expiry-ms": 1000
            * (self._parts.instruments.client_certificate_ends_at or 0.0),
            "broker-certificate-expiry-ms": 1000
            * min(self._parts.instruments.brokers_certificates_end_at.values(), default=0.0),
            **_of_tokens(self._parts.token_keeper),
        }

    @property
    def _open_breakers(self) -> list[str]:
        manager = self._parts.circuit_break_manager
        return manager.told() if manager is not None else []

    def _oldest(self) -> float:
        """Return the seconds since the oldest batch that has not ended was opened; 0: there is none."""
        expiry = self._parts.partition_queues.incomplete.next_expiry()
        return (
            0.0
            if expiry is None
            else max(self._clock() - expiry + self._config.delivery_timeout_ms / 1000, 0.0)
        )

    def health(self, patience: float) -> Health:
        """Return the health of a producer that runs; `patience`: seconds for which a record may be unacknowledged."""
        nodes, oldest = self._parts.cluster.nodes, self._oldest()
        up, down = sum(map(_is_up, nodes)), sum(map(_is_down, nodes))
        trouble = self._parts.updater.schedule.trouble
        unreachable = f"no broker of {len(nodes)} can be reached: {next((node.last_error for node in nodes if node.last_error), None)}"
        reasons = (
            (not nodes, _NO_BROKER + (f": {trouble}" if trouble is not None else "")),
            (nodes and down == len(nodes), unreachable),
            (
                nodes and down < len(nodes) and trouble is not None,
                f"no broker answers questions for metadata: {trouble}",
            ),
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
            self._parts.admission.waiting,
            tuple(map(self._security_of, nodes))
            if self._config.security_protocol != "PLAINTEXT"
            else (),
        )

    def _security_of(self, node: BrokerNode) -> BrokerSecurity:
        config, tokens = self._config, self._parts.token_keeper
        both = (node.produce, node.control)
        version, cipher, certificate_ends_at = next(
            (facts for each in both if (facts := each.tls) is not None), (None, None, None)
        )
        connections = [each.connection for each in both if each.connection is not None]
        errors = [each.last_error for each in both] + [
            None if tokens is None else tokens.last_error
        ]
        # The session that ends first.
        ends = [each.session.ends_at for each in connections if each.session is not None]
        if tokens is not None:
            user: Secret | str | None = tokens.principal
        else:
            # With Kerberos, the principal of the ticket.
            user = config.sasl_username
            if user is None:
                user = next(
                    (each.user for each in connections if each.user), config.sasl_kerberos_principal
                )
        return BrokerSecurity(
            node.broker.node_id,
            node.where,
            str(config.security_protocol),
            tls_version=version,
            cipher=cipher,
            certificate_ends_at=certificate_ends_at,
            mechanism=config.sasl_mechanism,
            principal=user.reference if isinstance(user, Secret) else user,
            session_seconds_left=min(
                (max(end - self._clock(), 0.0) for end in ends if end is not None), default=None
            ),
            last_refusal=next(
                (str(error) for error in errors if isinstance(error, AuthenticationFailed)), None
            ),
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
