"""The settings of connections, made from a producer's options."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from os import urandom
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from aioproducer.build import VERSION
from aioproducer.config.security_options import AWS_MSK_IAM, GSSAPI
from aioproducer.core.retries import Backoff
from aioproducer.errors import UsageError
from aioproducer.net.broker_connection import LoginBackoff
from aioproducer.net.connection import call
from aioproducer.net.dialer import DnsResolver, TcpDialer, Verbatim
from aioproducer.net.kerberos import Kerberos
from aioproducer.net.msk import MskTokens
from aioproducer.net.observer import UNSEEN
from aioproducer.net.sasl_login import SaslLogin, password_mechanism
from aioproducer.net.tls_contexts import TlsContexts, TlsSettings
from aioproducer.net.tokens import (
    AsyncFunctionSource,
    KeeperSettings,
    TokenKeeper,
    endpoint_source,
    endpoint_timeout,
    source_of,
)
from aioproducer.sasl.oauthbearer import NAME, OAuthBearer
from aioproducer.sasl.tokens import RefreshPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.errors import TokenUnavailable
    from aioproducer.interfaces import Dialer, Resolver
    from aioproducer.net.observer import Observer
    from aioproducer.sasl.tokens import TokenSource


# Seconds that one fetch of a token may take from other sources than an endpoint.
_FETCH_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class Security:
    """Holds the security of all connections of a producer.

    Attributes:
        tls: gives the context of each TLS connection; None: connections are not encrypted.
        sasl: authenticates each connection; None: connections are not authenticated by SASL.
        tokens: keeps the token of OAUTHBEARER; None: the mechanism has none. Its owner runs it.
        backoff: spaces the attempts while the credentials are refused.
    """

    tls: TlsContexts | None = None
    sasl: SaslLogin | None = None
    tokens: TokenKeeper | None = None
    backoff: LoginBackoff = field(default_factory=LoginBackoff)

    @property
    def absence(self) -> TokenUnavailable | None:
        """Return why there is no valid token; None: there is one, or none is needed."""
        return None if self.tokens is None else self.tokens.absence


def security_of(
    config: ProducerConfig,
    chance: Callable[[], float],
    wall_clock: Callable[[], float] = lambda: time.time(),
) -> Security | None:
    """Return the security that a producer's options ask for; None: PLAINTEXT.

    Args:
        config: the options.
        chance: returns a random number in [0, 1).
        wall_clock: returns the seconds since 1970.

    Raises:
        ConfigError: GSSAPI needs a package that is not installed.
    """
    tls = sasl = tokens = None
    if config.security_protocol in {"SSL", "SASL_SSL"}:
        options: dict[str, Any] = {name: getattr(config, name) for name in TlsSettings._fields}
        tls = TlsContexts(TlsSettings(**options))
    if config.security_protocol in {"SASL_PLAINTEXT", "SASL_SSL"}:
        if config.sasl_mechanism in {NAME, AWS_MSK_IAM}:
            bearer = OAuthBearer(
                cast("tuple[tuple[str, str], ...]", config.sasl_oauthbearer_extensions)
            )
            tokens = TokenKeeper(
                _token_source(config, wall_clock),
                bearer.check,
                _keeper_settings(config, chance, wall_clock),
            )
            sasl = SaslLogin(lambda _host: bearer, tokens)
        elif config.sasl_mechanism == GSSAPI:
            sasl = SaslLogin(Kerberos(config).mechanism)
        else:
            user: Any = config.sasl_username
            password: Any = config.sasl_password
            mechanism = password_mechanism(
                str(config.sasl_mechanism), user, password, is_token=config.sasl_token_auth
            )
            sasl = SaslLogin(lambda _host: mechanism)
    return None if tls is None and sasl is None else Security(tls, sasl, tokens)


def _token_source(
    config: ProducerConfig, wall_clock: Callable[[], float]
) -> TokenSource | AsyncFunctionSource:
    """Return the source of the tokens that the options name."""
    if config.sasl_mechanism == AWS_MSK_IAM:
        return MskTokens(config, config.bootstrap_servers)
    if config.sasl_oauthbearer_token_endpoint_url is not None:
        return endpoint_source(config, wall_clock)
    return source_of(config.sasl_oauthbearer_token)


def _keeper_settings(
    config: ProducerConfig, chance: Callable[[], float], wall_clock: Callable[[], float]
) -> KeeperSettings:
    """Return when tokens are fetched."""
    policy = RefreshPolicy(
        config.sasl_login_refresh_window_factor,
        config.sasl_login_refresh_window_jitter,
        config.sasl_login_refresh_min_period_seconds,
        config.sasl_login_refresh_buffer_seconds,
    )
    backoff = Backoff(
        config.sasl_login_retry_backoff_ms / 1000, config.sasl_login_retry_backoff_max_ms / 1000
    )
    timeout = (
        _FETCH_TIMEOUT
        if config.sasl_oauthbearer_token_endpoint_url is None
        else endpoint_timeout(config)
    )
    return KeeperSettings(policy, backoff, timeout, wall_clock, chance)


def random_number() -> float:
    """Return a random number in [0, 1) of the operating system, as `random.SystemRandom` does.

    The import of `random` would take 160 KiB of each process.
    """
    return (int.from_bytes(urandom(7), "big") >> 3) * 2.0**-53


class NetSettings(NamedTuple):
    """Holds the settings of all connections; times are in seconds.

    Attributes:
        setup: time that one attempt to connect may take; it grows with the failures.
        reconnect: pauses between attempts.
        max_idle: time after which an unused connection is closed; 0: never.
        canonical_bootstrap: True if the canonical names behind a bootstrap address replace its addresses.
        rebootstraps: True if the cluster starts over from the bootstrap addresses when no known broker can be reached.
        wall_clock: returns the seconds since 1970.
        observer: is notified of the connections' events.
        security: how connections are encrypted and authenticated; None: PLAINTEXT.
        cluster_id: returns the id of the cluster that the known brokers belong to; None: it is not known.
        on_another_cluster: called when the address of a known broker leads to another cluster.
        step: calls each callback of a connection, and fails the producer by what breaks one off, such as KeyboardInterrupt.
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
    wall_clock: Callable[[], float] = lambda: time.time()
    observer: Observer = UNSEEN
    security: Security | None = None
    cluster_id: Callable[[], str | None] = lambda: None
    on_another_cluster: Callable[[], object] = lambda: None
    step: Callable[..., object] = call


def net_settings(
    config: ProducerConfig,
    dialer: Dialer | None,
    resolver: Resolver | None,
    chance: Callable[[], float] | None,
    wall_clock: Callable[[], float],
) -> NetSettings:
    """Return the settings of all connections, with the options' milliseconds as seconds.

    `chance` returns a random number in [0, 1), `wall_clock` the seconds since 1970. Without a dialer, names are looked up in DNS; one that
    is given gets them unresolved, unless there is a resolver, too.

    Raises:
        UsageError: no event loop of asyncio runs. Each start asks for its settings first.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(
            "no event loop of asyncio runs: start() needs one. trio has none: run the program by asyncio, as anyio.run(main, backend='asyncio')"
        ) from None
    chance = chance or random_number
    return NetSettings(
        client_id=config.client_id,
        software_version=VERSION,
        dialer=dialer or TcpDialer(config.send_buffer_bytes, config.receive_buffer_bytes),
        resolver=resolver or (DnsResolver() if dialer is None else Verbatim()),
        chance=chance,
        max_in_flight=int(config.max_in_flight_requests_per_connection),
        request_timeout=config.request_timeout_ms / 1000,
        setup=Backoff(
            config.socket_connection_setup_timeout_ms / 1000,
            config.socket_connection_setup_timeout_max_ms / 1000,
        ),
        reconnect=Backoff(
            config.reconnect_backoff_ms / 1000, config.reconnect_backoff_max_ms / 1000
        ),
        max_idle=max(config.connections_max_idle_ms, 0) / 1000,
        canonical_bootstrap=config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only",
        rebootstraps=config.metadata_recovery_strategy == "rebootstrap",
        wall_clock=wall_clock,
        security=security_of(config, chance, wall_clock),
    )
