"""The settings of connections, made from a producer's options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.core.backoff import Backoff
from aioproducer.net.broker_connection import NetSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.interfaces import Dialer, Resolver

__all__ = ["net_settings"]


def net_settings(config: ProducerConfig, version: str, dialer: Dialer, resolver: Resolver, chance: Callable[[], float]) -> NetSettings:
    """Return the settings of all connections, with the options' milliseconds as seconds.

    `version` is the version of this client. `chance` returns a random number in [0, 1).
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
    )
