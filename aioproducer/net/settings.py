"""The settings of connections, made from a producer's options."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.core.produce_attempt import Backoff
from aioproducer.net.observer import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.interfaces import Dialer, Resolver
    from aioproducer.net.observer import Observer
    from aioproducer.net.security import Security

__all__ = ["NetSettings", "net_settings"]


class NetSettings(NamedTuple):
    """Holds the settings of all connections; times are in seconds.

    Attributes:
        setup: time that one attempt to connect may take; it grows with the failures.
        reconnect: pauses between attempts.
        max_idle: time after which an unused connection is closed; 0: never.
        canonical_bootstrap: True if the canonical names behind a bootstrap address replace its addresses.
        rebootstraps: True if the cluster starts over from the bootstrap addresses when no known broker can be reached.
        observer: is notified of the connections' events.
        security: how connections are encrypted and authenticated; None: PLAINTEXT.
        cluster_id: returns the id of the cluster that the known brokers belong to; None: it is not known.
        on_another_cluster: called when the address of a known broker leads to another cluster.
    """

    client_id: str
    software_version: str
    dialer: Dialer
    resolver: Resolver
    chance: Callable[[], float]
    max_in_flight: int
    request_timeout: float
    setup: Backoff
    reconnect: Backoff
    max_idle: float
    canonical_bootstrap: bool
    rebootstraps: bool
    observer: Observer = UNSEEN
    security: Security | None = None
    cluster_id: Callable[[], str | None] = lambda: None
    on_another_cluster: Callable[[], object] = lambda: None


def net_settings(
    config: ProducerConfig,
    version: str,
    dialer: Dialer,
    resolver: Resolver,
    chance: Callable[[], float],
    wall_clock: Callable[[], float] = lambda: time.time(),
) -> NetSettings:
    """Return the settings of all connections, with the options' milliseconds as seconds.

    `version` is the version of this client. `chance` returns a random number in [0, 1), `wall_clock` the seconds since 1970.
    """
    return NetSettings(
        client_id=config.client_id,
        software_version=version,
        dialer=dialer,
        resolver=resolver,
        chance=chance,
        max_in_flight=int(config.max_in_flight_requests_per_connection),
        request_timeout=config.request_timeout_ms / 1000,
        setup=Backoff(
            config.socket_connection_setup_timeout_ms / 1000,
            max(config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms) / 1000,
        ),
        reconnect=Backoff(config.reconnect_backoff_ms / 1000, config.reconnect_backoff_max_ms / 1000),
        max_idle=max(config.connections_max_idle_ms, 0) / 1000,
        canonical_bootstrap=config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only",
        rebootstraps=config.metadata_recovery_strategy == "rebootstrap",
        security=_security(config, chance, wall_clock),
    )


def _security(config: ProducerConfig, chance: Callable[[], float], wall_clock: Callable[[], float]) -> Security | None:
    if config.security_protocol == "PLAINTEXT":
        return None
    # PLAINTEXT loads nothing of TLS and SASL
    from aioproducer.net.security import security_of

    return security_of(config, chance, wall_clock)
