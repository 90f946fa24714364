"""Reads how the connections to each broker are encrypted and authenticated, for `health`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.errors import AuthenticationFailed
from aioproducer.model import BrokerSecurity
from aioproducer.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.config import ProducerConfig
    from aioproducer.net.broker_node import BrokerNode
    from aioproducer.net.token_keeper import TokenKeeper

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
    sessions = [each.connection.session for each in both if each.connection is not None]
    ends = [ends_at for session in sessions if session is not None and (ends_at := session.ends_at) is not None]
    refusals = [error for each in both if isinstance(error := each.last_error, AuthenticationFailed)]
    if tokens is not None and tokens.last_error is not None:
        refusals.append(tokens.last_error)
    user = config.sasl_username if tokens is None else tokens.principal
    # of Kerberos, the ticket tells
    users = [each.connection.user for each in both if each.connection is not None and each.connection.user]
    if user is None and tokens is None:
        user = users[0] if users else config.sasl_kerberos_principal
    return BrokerSecurity(
        node.broker.node_id,
        node.where,
        str(config.security_protocol),
        tls_version=version,
        cipher=cipher,
        certificate_ends_at=certificate_ends_at,
        mechanism=config.sasl_mechanism,
        principal=user.reference if isinstance(user, Secret) else user,
        session_seconds_left=max(min(ends) - now, 0.0) if ends else None,
        last_refusal=str(refusals[0]) if refusals else None,
    )
