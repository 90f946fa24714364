"""Holds the options of Kerberos (SASL's mechanism GSSAPI), as the base of the options of TLS and SASL."""

from __future__ import annotations

from typing import Any, Final

from aioproducer.errors import ConfigError
from aioproducer.option_classes import option_class
from aioproducer.option_kinds import Kind, option
from aioproducer.secure_kinds import PATH, plain_text
from aioproducer.token_options import TokenOptions

__all__ = ["GSSAPI", "KerberosOptions"]

GSSAPI: Final = "GSSAPI"


def _name(name: str, value: Any) -> str:
    text = plain_text(name, value).strip()
    if not text.isprintable():
        raise ConfigError(f"{name} has a character that cannot be printed")
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


_PART: Final = Kind("a name", _part)


@option_class(frozen=True, kw_only=True, slots=True, init=False, repr=False, eq=False)
class KerberosOptions(TokenOptions):
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
        PATH,
        "file of the principal's key, by which tickets are fetched and renewed; None: they come from the ticket cache (KRB5CCNAME)",
        java=None,
        librdkafka=("sasl.kerberos.keytab",),
    )
