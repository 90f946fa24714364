"""Checks that the options of TLS and SASL fit each other. Each error names both options; no error shows a secret."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ConfigError
from aioproducer.kerberos_options import GSSAPI
from aioproducer.msk_options import AWS_MSK_IAM, check_msk
from aioproducer.secure_options import Assumed
from aioproducer.token_conflicts import OF_ENDPOINTS, check_endpoint_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.secure_options import SecureOptions

__all__ = ["settle_security"]

_log = logging.getLogger(__name__)

_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")
_TLS: Final = ("SSL", "SASL_SSL")
_TOKENS: Final = "OAUTHBEARER"
# Sources of tokens, of which OAUTHBEARER needs one.
_TOKEN_SOURCES: Final = ("sasl_oauthbearer_token", "sasl_oauthbearer_token_endpoint_url")
# The beginnings of options that are for OAUTHBEARER alone.
_OF_TOKENS: Final = ("sasl_oauthbearer_", "sasl_login_", *OF_ENDPOINTS)
_OF_SASL: Final = ("sasl_", *OF_ENDPOINTS)
# The mechanism that alone uses the options with a beginning.
_OF_MECHANISM: Final[Mapping[str, str | tuple[str, ...]]] = {AWS_MSK_IAM: "sasl_aws_", _TOKENS: _OF_TOKENS, GSSAPI: "sasl_kerberos_"}
# What a mechanism sends as it is, and what else to do than to encrypt it.
_UNENCRYPTED: Final = {"PLAIN": ("password", ", or SCRAM"), _TOKENS: ("token", "")}
# Why other mechanisms have no options of a user and a password.
_NO_PASSWORD: Final[Mapping[str, Mapping[str, str]]] = {
    _TOKENS: dict.fromkeys(("sasl_username", "sasl_password", "sasl_token_auth"), "it has a token"),
    GSSAPI: {
        "sasl_username": "the client's name is sasl_kerberos_principal",
        "sasl_password": "the key is in a keytab (sasl_kerberos_keytab), or the ticket in the ticket cache",
        "sasl_token_auth": "brokers take delegation tokens by SCRAM alone",
    },
}
_ENDPOINT: Final = "ssl_endpoint_identification_algorithm"
# aiokafka's default, which says nothing without SASL.
_MECHANISM_BY_DEFAULT: Final = "PLAIN"
# One source of the client's key, and one of its certificates.
_KEYS: Final = ("ssl_keystore_location", "ssl_keystore_key", "ssl_key_location")
# The first option does nothing without one of the others.
_NEEDS: Final = (
    ("ssl_key_location", ("ssl_certificate_location",), "a file that holds both is ssl_keystore_location"),
    ("ssl_certificate_location", ("ssl_key_location",), "a file that holds both is ssl_keystore_location"),
    ("ssl_keystore_key", ("ssl_keystore_certificate_chain",), ""),
    ("ssl_keystore_certificate_chain", ("ssl_keystore_key",), ""),
    ("ssl_key_password", _KEYS, ""),
    ("ssl_keystore_password", ("ssl_keystore_location",), ""),
    ("ssl_truststore_password", ("ssl_truststore_location",), ""),
)
# Options of which one may be given.
_EXCLUDES: Final = (
    ("ssl_truststore_location", "ssl_truststore_certificates"),
    ("ssl_keystore_location", "ssl_keystore_key"),
    ("ssl_keystore_location", "ssl_key_location"),
    ("ssl_keystore_key", "ssl_key_location"),
)
# What has a password of its own only in PKCS12; a key in PEM has `ssl_key_password`.
_NOT_PEM: Final = (
    ("ssl_keystore_password", "ssl_keystore_type", "the password of an encrypted key is ssl_key_password"),
    ("ssl_truststore_password", "ssl_truststore_type", "certificates in PEM have no password"),
)
_NOT_PKCS12: Final = (
    ("ssl_keystore_key", "ssl_keystore_type"),
    ("ssl_key_location", "ssl_keystore_type"),
    ("ssl_truststore_certificates", "ssl_truststore_type"),
)


def settle_security(config: SecureOptions, scheme: str | None) -> None:
    """Check the options of TLS and SASL, and change defaults that conflict with what the user gave.

    Args:
        config: options; each value has been read on its own.
        scheme: the protocol that `bootstrap_servers` names; None: none.

    Raises:
        ConfigError: two options contradict each other, or one that another needs is missing.
    """
    if scheme is not None:
        _take_scheme(config, scheme)
    protocol = config.security_protocol
    if protocol not in _SASL and config.sasl_mechanism == _MECHANISM_BY_DEFAULT:
        _set(config, "sasl_mechanism", None)
    _check_used(config)
    if protocol in _TLS:
        _check_context(config)
        _check_stores(config)
        _check_endpoint(config)
    if protocol in _SASL:
        _check_sasl(config)


def _set(config: SecureOptions, name: str, value: Any) -> None:
    object.__setattr__(config, name, value)


def _take_scheme(config: SecureOptions, scheme: str) -> None:
    protocol = config.security_protocol
    if not isinstance(protocol, Assumed) and protocol != scheme:
        raise ConfigError(f"bootstrap_servers has the scheme {scheme}, and security_protocol={protocol}. Make them the same, or give one")
    _set(config, "security_protocol", scheme)


def _given(config: SecureOptions, prefix: str | tuple[str, ...] = "") -> list[str]:
    """Return the options that say something: their value is not the default."""
    fields = [field for field in dataclasses.fields(config) if field.name.startswith(prefix)]
    return [field.name for field in fields if getattr(config, field.name) != field.default]


def _check_used(config: SecureOptions) -> None:
    """Check that the protocol uses each option that is given."""
    protocol = config.security_protocol
    chosen = "is PLAINTEXT by default" if isinstance(protocol, Assumed) else f"is {protocol}"
    if protocol not in _SASL:
        remedy = "SASL_SSL" if protocol in _TLS else "SASL_SSL or SASL_PLAINTEXT"
        for name in _given(config, _OF_SASL):
            raise ConfigError(f"{name} needs SASL, and security_protocol {chosen}. Give security_protocol={remedy}, or leave {name} out")
    if protocol not in _TLS:
        remedy = "SASL_SSL" if protocol in _SASL else "SSL or SASL_SSL"
        for name in _given(config, "ssl_"):
            raise ConfigError(f"{name} needs TLS, and security_protocol {chosen}. Give security_protocol={remedy}, or leave {name} out")


def _check_context(config: SecureOptions) -> None:
    """Check that no option is given which an own context decides."""
    if config.ssl_context is None:
        return
    for name in _given(config, "ssl_"):
        if name not in {"ssl_context", _ENDPOINT}:
            raise ConfigError(
                f"ssl_context and {name} are both given, and the context decides alone. Load it into the context, or drop one"
            )
    if getattr(config.ssl_context, "protocol", None) is not None and config.ssl_context.protocol.name == "PROTOCOL_TLS_SERVER":
        raise ConfigError("ssl_context is a server's: make one by ssl.create_default_context(), or of ssl.PROTOCOL_TLS_CLIENT")


def _check_stores(config: SecureOptions) -> None:
    """Check the options of certificates and keys."""
    for first, second in _EXCLUDES:
        if _has(config, first) and _has(config, second):
            raise ConfigError(f"{first} and {second} are both given: keep one")
    for name, needed, advice in _NEEDS:
        if _has(config, name) and not any(_has(config, one) for one in needed):
            raise ConfigError(f"{name} needs {' or '.join(needed)}, which is not given" + (f"; {advice}" if advice else ""))
    _check_types(config)


def _check_types(config: SecureOptions) -> None:
    """Check that the given types of stores fit what is given of them."""
    for name, kind, advice in _NOT_PEM:
        if _has(config, name) and getattr(config, kind) == "PEM":
            raise ConfigError(f"{name} is given, and {kind}=PEM: {advice}")
    for name, kind in _NOT_PKCS12:
        if _has(config, name) and getattr(config, kind) == "PKCS12":
            raise ConfigError(f"{name} is PEM, and {kind}=PKCS12: leave {kind} out")


def _has(config: SecureOptions, name: str) -> bool:
    return getattr(config, name) is not None


def _check_endpoint(config: SecureOptions) -> None:
    checks = getattr(config.ssl_context, "check_hostname", True)
    if not checks and config.ssl_endpoint_identification_algorithm:
        if not isinstance(config.ssl_endpoint_identification_algorithm, Assumed):
            raise ConfigError(f"{_ENDPOINT}=https, and ssl_context has check_hostname off. Turn that on, or give {_ENDPOINT}=none")
        _set(config, _ENDPOINT, "")
    if not config.ssl_endpoint_identification_algorithm:
        _log.warning("Host names of brokers are not checked: any holder of a certificate of a trusted CA may pose as a broker.")


def _check_sasl(config: SecureOptions) -> None:
    protocol = config.security_protocol
    mechanism = config.sasl_mechanism
    if mechanism is None:
        raise ConfigError(
            f"security_protocol={protocol} needs sasl_mechanism, which has no default here: give PLAIN (aiokafka's default), SCRAM-SHA-256, "
            "SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM, or GSSAPI for Kerberos"
        )
    if mechanism == AWS_MSK_IAM:
        check_msk(config, _given(config, "sasl_"))
        return
    _check_mechanism(config, mechanism)
    if mechanism == _TOKENS:
        _check_tokens(config)
    elif mechanism != GSSAPI:
        _check_password(config, mechanism)
    what = _UNENCRYPTED.get(mechanism)
    if what is not None and protocol not in _TLS:
        _log.warning("sasl_mechanism=%s with security_protocol=%s sends the %s unencrypted: use SASL_SSL%s.", mechanism, protocol, *what)


def _check_mechanism(config: SecureOptions, mechanism: str) -> None:
    """Check that the mechanism uses each option that is given."""
    for name in _given(config, _OF_SASL):
        for user, beginnings in _OF_MECHANISM.items():
            if mechanism != user and name.startswith(beginnings):
                raise ConfigError(f"{name} is for sasl_mechanism={user}, and sasl_mechanism={mechanism}. Leave {name} out")
        why = _NO_PASSWORD.get(mechanism, {}).get(name)
        if why is not None:
            raise ConfigError(f"sasl_mechanism={mechanism} has no {name}: {why}. Leave {name} out, or choose another mechanism")


def _check_tokens(config: SecureOptions) -> None:
    """Check the options of OAUTHBEARER."""
    sources = [name for name in _TOKEN_SOURCES if _has(config, name)]
    if not sources:
        raise ConfigError(f"sasl_mechanism={_TOKENS} needs {' or '.join(_TOKEN_SOURCES)}, which is not given")
    if len(sources) > 1:
        raise ConfigError(f"{' and '.join(sources)} are both given: keep one")
    if config.sasl_oauthbearer_token is not None and not config.sasl_oauthbearer_token:
        raise ConfigError(f"sasl_mechanism={_TOKENS} needs sasl_oauthbearer_token, which is empty")
    check_endpoint_options(config, set(_given(config, _OF_SASL)))


def _check_password(config: SecureOptions, mechanism: str) -> None:
    """Check the options of PLAIN and SCRAM."""
    for name in ("sasl_username", "sasl_password"):
        if getattr(config, name) is None:
            raise ConfigError(f"sasl_mechanism={mechanism} needs sasl_username and sasl_password: {name} is not given")
    if not config.sasl_password:
        raise ConfigError(f"sasl_mechanism={mechanism} needs sasl_password, which is empty")
    if config.sasl_token_auth and mechanism == "PLAIN":
        raise ConfigError("sasl_token_auth needs SCRAM, and sasl_mechanism=PLAIN: brokers take delegation tokens by SCRAM alone")
