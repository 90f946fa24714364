"""Holds the options of TLS and SASL, as the base of the producer's options, and the kinds of their values.

Names are Java's with underscores; what Java has no name for is named after librdkafka's option. Each secret is held as a `Secret`, from the
call of the constructor on: no frame of this package holds its text.
"""

from __future__ import annotations

import functools
import inspect
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioproducer.broker_addresses import PROTOCOLS
from aioproducer.errors import ConfigError
from aioproducer.kerberos_options import KerberosOptions
from aioproducer.option_classes import OptionsSignature, Underivable, option_class
from aioproducer.option_kinds import FLAG, Kind, option
from aioproducer.secret import Secret, hide, is_reference
from aioproducer.secure_kinds import PATH, SECRET, is_secret, plain_text, read_secret, read_text, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SECURE_NAMES", "Assumed", "SecureOptions", "hides_secrets"]

_Config = TypeVar("_Config", bound="SecureOptions")

_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")
_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_STORES: Final = ("PEM", "PKCS12")
# Java's default, which its key stores of type PKCS12 are read by, too: the first bytes of the file tell the type.
_BY_FIRST_BYTES: Final = "JKS"
_BETWEEN: Final = r"[\s,:]+"


class Assumed(str):
    """A default that may change: what the user gave for another option takes precedence."""

    __slots__ = ()


def _upper(*known: str, none: bool = False) -> Kind:
    """Return the kind of one of some words, in upper or lower case. A config holds the word in upper case."""
    values = " or ".join(known)

    def read(name: str, value: Any) -> str | None:
        if isinstance(value, Assumed) or (value is None and none):
            return value
        word = value.strip().upper() if isinstance(value, str) else ""
        if word not in known:
            raise ConfigError(f"{name}={value!r}: it is {values}")
        return word

    return Kind(values + (", or None" if none else ""), read)


def _store() -> Kind:
    kind = _upper(*_STORES, none=True)

    def read(name: str, value: Any) -> Any:
        return None if isinstance(value, str) and value.strip().upper() == _BY_FIRST_BYTES else kind.read(name, value)

    return Kind("PEM or PKCS12; None, and Java's JKS: the first bytes of the file tell", read)


def _user(name: str, value: Any) -> str | Secret | None:
    if value is None or isinstance(value, Secret):
        return value
    if isinstance(value, str) and is_reference(value):
        return Secret(value)
    text = plain_text(name, value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{name} has characters that UTF-8 does not") from None
    return text


def _listed(name: str, value: Any) -> list[str]:
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise ConfigError(f"{name} must be a string or a sequence of strings, not {type_name(value)}")
    return [word for part in parts for word in re.split(_BETWEEN, part) if word]


def _versions(name: str, value: Any) -> tuple[str, ...]:
    known = {version.lower(): version for version in _VERSIONS}
    given = _listed(name, value)
    for word in given:
        if word.lower() not in known:
            raise ConfigError(f"{name} has {word!r}: it is {' or '.join(_VERSIONS)}, as older versions are not safe")
    if not given:
        raise ConfigError(f"{name} is empty: it is {' or '.join(_VERSIONS)}")
    return tuple(version for key, version in known.items() if key in {word.lower() for word in given})


def _ciphers(name: str, value: Any) -> tuple[str, ...]:
    return () if value is None else tuple(_listed(name, value))


def _endpoint(name: str, value: Any) -> str:
    if isinstance(value, Assumed):
        return value
    word = value.strip().lower() if isinstance(value, str) else None
    if word not in {"https", "none", ""}:
        raise ConfigError(f"{name}={value!r}: it is 'https', or 'none' for no check of host names")
    return "" if word == "none" else word


def _context(name: str, value: Any) -> Any:
    if inspect.iscoroutinefunction(value):
        raise ConfigError(f"{name} must be a plain function, not a coroutine function: it is called in a thread")
    if value is not None and not callable(value) and not (callable(getattr(value, "wrap_bio", None)) and hasattr(value, "check_hostname")):
        raise ConfigError(f"{name} must be an ssl.SSLContext, or a function that returns one, not {type_name(value)}")
    return value


_PEM: Final = Kind("PEM, or None", read_text)


@option_class(frozen=True, kw_only=True, slots=True, init=False, repr=False, eq=False)
class SecureOptions(KerberosOptions):
    """Holds how connections are encrypted and authenticated. A config that holds a secret as its text cannot be pickled."""

    security_protocol: str = option(
        Assumed("PLAINTEXT"),
        _upper(*PROTOCOLS),
        "whether connections are encrypted, and authenticated by SASL; where it is left out, the scheme of bootstrap_servers decides",
    )
    ssl_context: Any = option(
        None,
        Kind("an ssl.SSLContext, a function that returns one, or None", _context),
        "the context of TLS connections in place of the other ssl_ options; a function is called for each connection",
        java=None,
        python=("ssl_context",),
    )
    ssl_truststore_location: str | None = option(
        None,
        PATH,
        "file of the certificates that are trusted, PEM or PKCS12; None: the system's",
        librdkafka=("ssl.ca.location",),
        python=("ssl_cafile",),
    )
    ssl_truststore_certificates: str | None = option(None, _PEM, "the certificates that are trusted", librdkafka=("ssl.ca.pem",))
    ssl_truststore_type: str | None = option(None, _store(), "what ssl_truststore_location is")
    ssl_truststore_password: Secret | str | None = option(None, SECRET, "the password of ssl_truststore_location, if that is PKCS12")
    ssl_keystore_location: str | None = option(
        None, PATH, "file of the client's key and certificates, PEM or PKCS12; None: the client has none"
    )
    ssl_keystore_type: str | None = option(None, _store(), "what ssl_keystore_location is")
    ssl_keystore_password: Secret | str | None = option(None, SECRET, "the password of ssl_keystore_location, if that is PKCS12")
    ssl_keystore_key: Secret | str | None = option(
        None, Kind("PEM or a reference to it, or None", read_secret), "the client's key", librdkafka=("ssl.key.pem",)
    )
    ssl_keystore_certificate_chain: str | None = option(
        None, _PEM, "the client's certificate, and those that lead to its CA", librdkafka=("ssl.certificate.pem",)
    )
    ssl_key_location: str | None = option(
        None, PATH, "file of the client's key, PEM", java=None, librdkafka=("ssl.key.location",), python=("ssl_keyfile",)
    )
    ssl_certificate_location: str | None = option(
        None,
        PATH,
        "file of the client's certificate, and those that lead to its CA, PEM",
        java=None,
        librdkafka=("ssl.certificate.location",),
        python=("ssl_certfile",),
    )
    ssl_key_password: Secret | str | None = option(
        None, SECRET, "the password of the client's key, if it is encrypted", python=("ssl_password",)
    )
    ssl_endpoint_identification_algorithm: str = option(
        Assumed("https"), Kind("https, or none", _endpoint), "whether the broker's certificate must have its host name; none: it need not"
    )
    ssl_enabled_protocols: tuple[str, ...] | str = option(
        _VERSIONS, Kind("TLSv1.2 and TLSv1.3, or one of them", _versions), "the versions of TLS that may be agreed on"
    )
    ssl_cipher_suites: tuple[str, ...] | str = option(
        (),
        Kind("names, as Java's or OpenSSL's", _ciphers),
        "the cipher suites of TLSv1.2 that may be agreed on; none: OpenSSL's own choice",
        python=("ssl_ciphers",),
    )
    ssl_crl_location: str | None = option(
        None,
        PATH,
        "file of certificates that were revoked, PEM",
        java=None,
        librdkafka=("ssl.crl.location",),
        python=("ssl_crlfile",),
    )
    sasl_mechanism: str | None = option(
        None,
        _upper(*_MECHANISMS, none=True),
        "how the client proves its identity; there is no default (Java's is GSSAPI, aiokafka's PLAIN)",
        librdkafka=("sasl.mechanisms",),
    )
    sasl_username: Secret | str | None = option(
        None,
        Kind("a name or a reference to it, or None", _user),
        "the user's name, or the delegation token's id",
        java=None,
        librdkafka=("sasl.username",),
        python=("sasl_plain_username",),
    )
    sasl_password: Secret | str | None = option(
        None,
        SECRET,
        "the user's password, or the delegation token's HMAC",
        java=None,
        librdkafka=("sasl.password",),
        python=("sasl_plain_password",),
    )
    sasl_token_auth: bool = option(False, FLAG, "whether sasl_username and sasl_password are a delegation token", java=None)

    # Those that a dataclass would generate take milliseconds to compile, for more than a hundred options.

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, SecureOptions) and type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
        return f"{type(self).__name__}({', '.join(shown)})"


# The order of the documents: the options of the bases come last.
SECURE_NAMES: Final = tuple(
    sorted((field.name for field in fields(SecureOptions)), key=lambda name: name not in SecureOptions.__annotations__)
)


def hides_secrets(config: type[_Config]) -> type[_Config]:
    """Return the class with a constructor that hides its secret arguments before any of them is checked. No dataclass derives from it."""
    shown = {field.name for field in fields(config) if not is_secret(field.metadata["option"].kind)}
    init: Callable[..., None] = config.__init__

    @functools.wraps(init)
    def hiding(self: _Config, **options: Any) -> None:
        hide(options, shown.__contains__)
        init(self, **options)

    config.__init__ = hiding  # type: ignore[assignment]
    config.__signature__ = OptionsSignature(hiding)  # type: ignore[attr-defined]
    config.__dataclass_params__ = Underivable(config)  # type: ignore[attr-defined]
    return config
