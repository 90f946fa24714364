"""Holds the options of bearer tokens (OAUTHBEARER), as the base of the options of TLS and SASL.

Names are Java's with underscores; what Java has no name for is named after librdkafka's option.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aioproducer.errors import ConfigError
from aioproducer.msk_options import MskOptions
from aioproducer.option_classes import option_class
from aioproducer.option_kinds import Kind, Yielding, number, option
from aioproducer.sasl_extensions import extension_fault
from aioproducer.secret import NotText, Secret
from aioproducer.secure_kinds import TOKEN, type_name

__all__ = ["TokenOptions"]


def _extensions(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    """Return SASL extensions as (name, value), of a mapping, or of a text as librdkafka has it: "a=b,c=d"."""
    if value is None:
        return ()
    pairs = _pairs(name, value)
    fault = extension_fault(pairs)
    if fault:
        raise ConfigError(f"{name}: {fault}")
    return tuple(pairs)


def _pairs(name: str, value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, str):
        return _pairs_of_text(name, value)
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        return list(value)
    raise ConfigError(f"{name} is a mapping, or a text as name=value,name=value, not {type_name(value)}")


def _pairs_of_text(name: str, text: str) -> list[tuple[Any, Any]]:
    parts = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(equals for _, equals, _ in parts):
        raise ConfigError(f"{name} is a mapping, or a text as name=value,name=value")
    return [(key.strip(), one.strip()) for key, _, one in parts]


def _share(low: float, high: float) -> Kind:
    """Return the kind of a number in a range."""

    def read(name: str, value: Any) -> float:
        try:
            share = float(value)
        except (TypeError, ValueError):
            share = -1.0
        if isinstance(value, bool) or not low <= share <= high:
            raise ConfigError(f"{name}={value!r}: it is a number from {low:g} to {high:g}")
        return share

    return Kind(f"number, {low:g} to {high:g}", read)


def _or_none(kind: Kind) -> Kind:
    def read(name: str, value: Any) -> Any:
        return None if value is None else kind.read(name, value)

    return Kind(f"{kind.values}; or None", read)


@option_class(frozen=True, kw_only=True, slots=True, init=False, repr=False, eq=False)
class TokenOptions(MskOptions):
    """Holds where bearer tokens come from, and when they are refreshed."""

    sasl_oauthbearer_token: Secret | NotText | str | Callable[..., Any] | Any = option(
        None,
        TOKEN,
        "the bearer token of OAUTHBEARER; a function or coroutine function returns it, or (it, its end since 1970, principal, extensions)",
        java=None,
        librdkafka=("oauth_cb",),
        python=("sasl_oauth_token_provider",),
    )
    sasl_oauthbearer_extensions: tuple[tuple[str, str], ...] | Mapping[str, str] | str = option(
        (),
        Kind("a mapping, or name=value,name=value", _extensions),
        "the SASL extensions that are sent with each token, such as logicalCluster of Confluent Cloud",
        java=None,
        librdkafka=("sasl.oauthbearer.extensions",),
    )
    sasl_login_refresh_window_factor: float = option(0.8, _share(0.5, 1.0), "share of a token's life after which it is refreshed")
    sasl_login_refresh_window_jitter: float = option(
        0.05, _share(0.0, 0.25), "largest share of a token's life that is added to that at random"
    )
    sasl_login_refresh_min_period_seconds: int = option(
        60, number(0, 900, unit="s"), "seconds for which a token is not refreshed, unless its life is below this and the buffer together"
    )
    sasl_login_refresh_buffer_seconds: int = option(
        300, number(0, 3600, unit="s"), "seconds before a token's end that are left for its refresh, unless its life is too short for them"
    )
    sasl_login_connect_timeout_ms: float | None = option(
        None, _or_none(number(1, unit="ms")), "time that a connection to the token endpoint may take; None: 10 s"
    )
    sasl_login_read_timeout_ms: float | None = option(
        None, _or_none(number(1, unit="ms")), "time that an answer of the token endpoint may take; None: 10 s"
    )
    sasl_login_retry_backoff_ms: float = option(
        Yielding(100), number(1, unit="ms"), "pause after a token could not be had; it doubles with each failure"
    )
    sasl_login_retry_backoff_max_ms: float = option(
        Yielding(10_000), number(1, unit="ms"), "the longest pause after a token could not be had"
    )
