"""Holds the options of Kerberos (SASL's mechanism GSSAPI), as a base of the options of TLS and SASL."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

from aioproducer.errors import ConfigError
from aioproducer.options import Kind, option
from aioproducer.secret import is_reference

__all__ = ["KerberosOptions"]


def _name(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string, not {type(value).__name__}")
    text = value.strip()
    if not text or not text.isprintable():
        raise ConfigError(f"{name} is empty, or has a character that cannot be printed")
    if is_reference(text):
        raise ConfigError(f"{name}={text}: references are read in secret options and sasl_username alone. Give the value itself")
    return text


def _part(name: str, value: Any) -> str:
    """Return one side of the name service@host."""
    text = _name(name, value)
    if set(text) & set("@/ "):
        raise ConfigError(f"{name}={text!r}: it is a name without '@', '/' and blanks. The library makes kafka/host@REALM of its own")
    return text


def _maybe_part(name: str, value: Any) -> str | None:
    return None if value is None else _part(name, value)


def _maybe_name(name: str, value: Any) -> str | None:
    return None if value is None else _name(name, value)


def _keytab(name: str, value: Any) -> str | None:
    return _maybe_name(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


_PART: Final = Kind("a name", _part)


@dataclass(frozen=True, kw_only=True, slots=True)
class KerberosOptions:
    """Holds where a producer's Kerberos tickets come from, and for which service they are. None of it is a secret."""

    sasl_kerberos_service_name: str = option("kafka", _PART, "the service of the brokers' principals: `kafka` of kafka/broker-1@REALM")
    sasl_kerberos_domain_name: str | None = option(
        None,
        Kind("a host's name, or None", _maybe_part),
        "the host of the brokers' principals, if all brokers have one principal; None: each broker's advertised name",
        java=None,
        python=("sasl_kerberos_domain_name",),
    )
    sasl_kerberos_principal: str | None = option(
        None,
        Kind("a principal, or None", _maybe_name),
        "the client's principal; None: that of the ticket cache, or the first one of the keytab",
        java=None,
        librdkafka=("sasl.kerberos.principal",),
    )
    sasl_kerberos_keytab: str | None = option(
        None,
        Kind("a path, or None", _keytab),
        "file of the principal's key, by which tickets are fetched and renewed; None: they come from the ticket cache (KRB5CCNAME)",
        java=None,
        librdkafka=("sasl.kerberos.keytab",),
    )
