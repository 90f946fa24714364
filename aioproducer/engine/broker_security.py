"""Reads how the connections to each broker are encrypted and authenticated, for `health`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.config.secret import Secret
from aioproducer.errors import AuthenticationFailed
from aioproducer.model import BrokerSecurity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.config import ProducerConfig
    from aioproducer.net.cluster import BrokerNode
    from aioproducer.net.connection import Connection
    from aioproducer.net.tokens import TokenKeeper

__all__ = ["broker_security"]


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
