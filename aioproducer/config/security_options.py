"""The options of TLS and SASL, and what of them fits together.

Names are Java's with underscores; what Java has no name for is named after librdkafka's option. `settle_security` is the one place that knows
which options exclude or need each other. Each of its errors names both options; no error shows a secret.
"""

from __future__ import annotations

import inspect
import ipaddress
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from aioproducer.config.option_kinds import (
    FLAG,
    PATH,
    PEM,
    PEM_SECRET,
    PROTOCOLS,
    SECRET,
    TEXT,
    USER,
    Kind,
    matching,
    ms,
    number,
    option,
    or_none,
    plain_text,
    read_secret,
    share,
    string_list,
    words,
)
from aioproducer.config.secret import Secret, is_reference
from aioproducer.errors import ConfigError

_log = logging.getLogger(__name__)

AWS_MSK_IAM: Final = "AWS_MSK_IAM"
GSSAPI: Final = "GSSAPI"
_TOKENS: Final = "OAUTHBEARER"
_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


# Kinds of values


def _context(name: str, value: Any) -> Any:
    if inspect.iscoroutinefunction(value):
        raise ConfigError(
            f"{name} must be a plain function, not a coroutine function: it is called in a thread"
        )
    if not callable(value) and not (
        callable(getattr(value, "wrap_bio", None)) and hasattr(value, "check_hostname")
    ):
        raise ConfigError(
            f"{name} must be an ssl.SSLContext, or a function that returns one, not {type(value).__name__}"
        )
    return value


def _store(name: str, value: Any) -> str | None:
    # Java's default, by which its key stores of type PKCS12 are read, too
    if value is None or (isinstance(value, str) and value.strip().upper() == "JKS"):
        return None
    return str(words("PEM", "PKCS12", upper=True).read(name, value))


def _versions(name: str, value: Any) -> tuple[str, ...]:
    given = {word.lower() for word in string_list(name, value)}
    found = tuple(version for version in _VERSIONS if version.lower() in given)
    if not found or len(found) < len(given):
        raise ConfigError(
            f"{name}={value!r}: it is {' or '.join(_VERSIONS)}, as older versions are not safe"
        )
    return found


def _ciphers(name: str, value: Any) -> tuple[str, ...]:
    return () if value is None else tuple(string_list(name, value))


def _endpoint(name: str, value: Any) -> str:
    word = value.strip().lower() if isinstance(value, str) else None
    if word not in {"https", "none", ""}:
        raise ConfigError(f"{name}={value!r}: it is 'https', or 'none' for no check of host names")
    return "" if word == "none" else word


def _url(name: str, value: Any) -> str:
    """Return the URL of a token endpoint. No error quotes it, as it may hold a secret."""
    if isinstance(value, os.PathLike):
        value = Path(value).absolute().as_uri()
    url = plain_text(name, value).strip()
    path = file_of(url)
    if path is None:
        _check_server(name, url)
    elif not path.startswith("/") and path[1:2] != ":":
        raise ConfigError(f"{name} must name its file by the whole path, as file:///path/to/token")
    elif not is_reference(f"${{file:{path}}}"):
        raise ConfigError(f"{name} names a file with a brace in its path")
    return url


def _check_server(name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(f"{name} is no URL") from None
    if (
        parts.scheme not in {"https", "http"}
        or not parts.hostname
        or port == 0
        or any(not "!" <= one <= "~" for one in url)
    ):
        raise ConfigError(
            f"{name} must be an https:// URL with a host, in ASCII, or file:///path/to/token"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"{name} has a user or password, which it cannot: give sasl_oauthbearer_client_credentials_client_id and _client_secret"
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ConfigError(
            f"{name} is http, which would send secrets to {parts.hostname} unencrypted: give an https:// URL"
        )


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, without looking up its name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def file_of(url: str) -> str | None:
    """Return the path of a `file:` URL; None: the URL is of another kind."""
    if not url.lower().startswith("file:"):
        return None
    place = url[len("file:") :]
    if place.startswith("//"):
        host, slash, place = place[2:].partition("/")
        place = slash + place if host in {"", "localhost"} else host
    path = unquote(place)
    # file:///C:/path, on Windows
    return path[1:] if re.match(r"/[A-Za-z]:", path) else path


def _extensions(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    """Return SASL extensions as (name, value), of a mapping, or of a text as librdkafka has it: "a=b,c=d"."""
    pairs: Any = value or ()
    if isinstance(value, str):
        pairs = [
            tuple(map(str.strip, part.split("=", 1))) for part in value.split(",") if part.strip()
        ]
    elif isinstance(value, Mapping):
        pairs = value.items()
    listed: tuple[Any, ...] = tuple(pairs) if isinstance(pairs, Iterable) else (None,)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in listed):
        raise ConfigError(f"{name} is a mapping, or a text as name=value,name=value")
    fault = extension_fault(listed)
    if fault:
        raise ConfigError(f"{name}: {fault}")
    return listed


def extension_fault(extensions: Iterable[tuple[Any, Any]]) -> str:
    """Return why SASL extensions, as (name, value), cannot be sent; empty: they can. The text has no value of an extension.

    Source: RFC 7628, KIP-342, and Kafka's OAuthBearerClientInitialResponse, which wants a value of one character at least.
    """
    seen: set[str] = set()
    for name, value in extensions:
        if not isinstance(name, str) or re.fullmatch(r"[A-Za-z]+", name) is None:
            return "the name of a SASL extension has letters of ASCII alone"
        if name == "auth":
            return "a SASL extension cannot have the name 'auth', which is the token's"
        if name in seen:
            return f"the SASL extension {name!r} is given twice"
        if not isinstance(value, str) or re.fullmatch(r"[\x21-\x7e \t\r\n]+", value) is None:
            return f"the value of the SASL extension {name!r} is no string of printable ASCII, with one character at least"
        seen.add(name)
    return ""


def _token(name: str, value: Any) -> Any:
    """Return a source of tokens: a secret, a function, or an object with `token()`."""
    if isinstance(value, (str, Secret)):
        return read_secret(name, value)
    if not callable(getattr(value, "token", value)) or isinstance(value, type):
        raise ConfigError(
            f"{name} must be a string, a function, or an object with token(), not {type(value).__name__}"
        )
    return value


_TOKEN: Final = or_none(
    Kind(
        "a token or a reference to one, a function, an object with token()", _token, is_secret=True
    )
)


def _principal(name: str, value: Any) -> str:
    text = plain_text(name, value).strip()
    if not text.isprintable():
        raise ConfigError(f"{name} has a character that cannot be printed")
    return text


def _part(name: str, value: Any) -> str:
    """Return one side of the name service@host."""
    text = _principal(name, value)
    if set(text) & set("@/ "):
        raise ConfigError(
            f"{name}={text!r}: it is a name without '@', '/' and blanks. The library makes kafka/host@REALM of its own"
        )
    return text


# Options


@dataclass(frozen=True, kw_only=True)
class SecurityOptions:
    """Holds how connections are encrypted and authenticated. A config that holds a secret as its text cannot be pickled."""

    security_protocol: str = option(
        "PLAINTEXT",
        words(*PROTOCOLS, upper=True),
        "whether connections are encrypted, and authenticated by SASL; where it is left out, the scheme of bootstrap_servers decides",
    )
    ssl_context: Any = option(
        None,
        or_none(Kind("an ssl.SSLContext, a function that returns one", _context)),
        "the context of TLS connections in place of the other ssl_ options; a function is called for each connection",
        "ssl_context",
        java=None,
    )
    ssl_truststore_location: str | None = option(
        None,
        PATH,
        "file of the certificates that are trusted, PEM or PKCS12; None: the system's",
        "ssl.ca.location",
        "ssl_cafile",
    )
    ssl_truststore_certificates: str | None = option(
        None, PEM, "the certificates that are trusted", "ssl.ca.pem"
    )
    ssl_truststore_type: str | None = option(
        None,
        Kind("PEM or PKCS12; None, and Java's JKS: the first bytes of the file tell", _store),
        "what ssl_truststore_location is",
    )
    ssl_truststore_password: Secret | str | None = option(
        None, SECRET, "the password of ssl_truststore_location, if that is PKCS12"
    )
    ssl_keystore_location: str | None = option(
        None,
        PATH,
        "file of the client's key and certificates, PEM or PKCS12; None: the client has none",
    )
    ssl_keystore_type: str | None = option(
        None,
        Kind("PEM or PKCS12; None, and Java's JKS: the first bytes of the file tell", _store),
        "what ssl_keystore_location is",
    )
    ssl_keystore_password: Secret | str | None = option(
        None, SECRET, "the password of ssl_keystore_location, if that is PKCS12"
    )
    ssl_keystore_key: Secret | str | None = option(
        None, PEM_SECRET, "the client's key", "ssl.key.pem"
    )
    ssl_keystore_certificate_chain: str | None = option(
        None, PEM, "the client's certificate, and those that lead to its CA", "ssl.certificate.pem"
    )
    ssl_key_location: str | None = option(
        None, PATH, "file of the client's key, PEM", "ssl.key.location", "ssl_keyfile", java=None
    )
    ssl_certificate_location: str | None = option(
        None,
        PATH,
        "file of the client's certificate, and those that lead to its CA, PEM",
        "ssl.certificate.location",
        "ssl_certfile",
        java=None,
    )
    ssl_key_password: Secret | str | None = option(
        None, SECRET, "the password of the client's key, if it is encrypted", "ssl_password"
    )
    ssl_endpoint_identification_algorithm: str = option(
        "https",
        Kind("https, or none", _endpoint),
        "whether the broker's certificate must have its host name; none: it need not",
    )
    ssl_enabled_protocols: tuple[str, ...] | str = option(
        _VERSIONS,
        Kind("TLSv1.2 and TLSv1.3, or one of them", _versions),
        "the versions of TLS that may be agreed on",
    )
    ssl_cipher_suites: tuple[str, ...] | str = option(
        (),
        Kind("OpenSSL's names, such as ECDHE-RSA-AES256-GCM-SHA384", _ciphers),
        "the cipher suites of TLSv1.2 that may be agreed on, those of TLSv1.3 are always OpenSSL's; none: OpenSSL's own choice",
        "ssl_ciphers",
    )
    ssl_crl_location: str | None = option(
        None,
        PATH,
        "file of certificates that were revoked, PEM",
        "ssl.crl.location",
        "ssl_crlfile",
        java=None,
    )
    sasl_mechanism: str | None = option(
        None,
        or_none(
            words(
                "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", _TOKENS, AWS_MSK_IAM, GSSAPI, upper=True
            )
        ),
        "how the client proves its identity; there is no default (Java's is GSSAPI, aiokafka's PLAIN)",
        "sasl.mechanisms",
    )
    sasl_username: Secret | str | None = option(
        None,
        USER,
        "the user's name, or the delegation token's id",
        "sasl.username",
        "sasl_plain_username",
        java=None,
    )
    sasl_password: Secret | str | None = option(
        None,
        SECRET,
        "the user's password, or the delegation token's HMAC",
        "sasl.password",
        "sasl_plain_password",
        java=None,
    )
    sasl_token_auth: bool = option(
        False, FLAG, "whether sasl_username and sasl_password are a delegation token", java=None
    )
    sasl_oauthbearer_token_endpoint_url: str | None = option(
        None,
        or_none(Kind("https://..., http:// of this machine, file:///path, a pathlib.Path", _url)),
        "where tokens of OAUTHBEARER are fetched: a token endpoint of OpenID Connect, or a file that another program renews",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = option(
        None, TEXT, "the client's id at the token endpoint", "sasl.oauthbearer.client.id"
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | str | None = option(
        None, SECRET, "the client's secret at the token endpoint", "sasl.oauthbearer.client.secret"
    )
    sasl_oauthbearer_scope: str | None = option(
        None, TEXT, "the scope of the tokens; None: the endpoint decides"
    )
    sasl_oauthbearer_header_urlencode: bool = option(
        False,
        FLAG,
        "whether id and secret are URL-encoded before they are joined by a colon (RFC 6749)",
    )
    https_ca_location: str | None = option(
        None,
        PATH,
        "file of the certificates that are trusted of the token endpoint, PEM; None: the system's",
        "https.ca.location",
        java=None,
    )
    https_ca_pem: str | None = option(
        None,
        PEM,
        "the certificates that are trusted of the token endpoint",
        "https.ca.pem",
        java=None,
    )
    sasl_aws_region: str | None = option(
        None,
        matching(r"[a-z]+(-[a-z]+)+-\d+", "a region of AWS, such as eu-central-1"),
        "the region of the MSK cluster; None: the names in bootstrap_servers tell it",
        java=None,
    )
    sasl_aws_profile_name: str | None = option(
        None,
        matching(r"[^\r\n]+", "a name"),
        "the profile of AWS's configuration files; None: AWS's default credentials",
        java=None,
    )
    sasl_aws_role_arn: str | None = option(
        None,
        matching(
            r"arn:aws[\w-]*:iam::\d{12}:role/[\w+=,.@/-]+",
            "a role as arn:aws:iam::123456789012:role/NAME",
        ),
        "the IAM role that is assumed, with the default credentials",
        java=None,
    )
    sasl_aws_role_session_name: str | None = option(
        None,
        matching(r"[\w+=,.@-]{2,64}", "2 to 64 letters, digits and +=,.@-_"),
        "the name of the assumed role's session; None: the signer's",
        java=None,
    )
    sasl_oauthbearer_token: Secret | str | Callable[..., Any] | Any = option(
        None,
        _TOKEN,
        "the bearer token of OAUTHBEARER; a function or coroutine function returns it, or (it, its end since 1970, principal, extensions)",
        "oauth_cb",
        "sasl_oauth_token_provider",
        java=None,
        # an object that makes tokens may show a secret
        repr=False,
    )
    sasl_oauthbearer_extensions: tuple[tuple[str, str], ...] | Mapping[str, str] | str = option(
        (),
        Kind("a mapping, or name=value,name=value", _extensions),
        "the SASL extensions that are sent with each token, such as logicalCluster of Confluent Cloud",
        "sasl.oauthbearer.extensions",
        java=None,
    )
    sasl_login_refresh_window_factor: float = option(
        0.8, share(0.5, 1.0), "share of a token's life after which it is refreshed"
    )
    sasl_login_refresh_window_jitter: float = option(
        0.05, share(0.0, 0.25), "largest share of a token's life that is added to that at random"
    )
    sasl_login_refresh_min_period_seconds: int = option(
        60,
        number(0, 900, unit="s"),
        "seconds for which a token is not refreshed, unless its life is below this and the buffer together",
    )
    sasl_login_refresh_buffer_seconds: int = option(
        300,
        number(0, 3600, unit="s"),
        "seconds before a token's end that are left for its refresh, unless its life is too short for them",
    )
    sasl_login_connect_timeout_ms: float | None = option(
        None,
        or_none(ms(1)),
        "time for a connection to the token endpoint; its whole answer may take this and sasl_login_read_timeout_ms together; None: 10 s",
    )
    sasl_login_read_timeout_ms: float | None = option(
        None, or_none(ms(1)), "time for the answer of the token endpoint; None: 10 s"
    )
    sasl_login_retry_backoff_ms: float = option(
        100, ms(1), "pause after a token could not be had; it doubles with each failure"
    )
    sasl_login_retry_backoff_max_ms: float = option(
        10_000, ms(1), "the longest pause after a token could not be had"
    )
    sasl_kerberos_service_name: str = option(
        "kafka",
        Kind("a name", _part),
        "the service of the brokers' principals: `kafka` of kafka/broker-1@REALM",
    )
    sasl_kerberos_domain_name: str | None = option(
        None,
        or_none(Kind("a host's name", _part)),
        "the host of the brokers' principals, if all brokers have one principal; None: each broker's advertised name",
        "sasl_kerberos_domain_name",
        java=None,
    )
    sasl_kerberos_principal: str | None = option(
        None,
        or_none(Kind("a principal", _principal)),
        "the client's principal; None: that of the ticket cache, or the first one of the keytab",
        "sasl.kerberos.principal",
        java=None,
    )
    sasl_kerberos_keytab: str | None = option(
        None,
        PATH,
        "file of the principal's key, by which tickets are fetched and renewed; None: they come from the ticket cache (KRB5CCNAME)",
        "sasl.kerberos.keytab",
        java=None,
    )


SECURITY_NAMES: Final = tuple(one.name for one in fields(SecurityOptions))

# What fits together

_URL: Final = "sasl_oauthbearer_token_endpoint_url"
_ID: Final = "sasl_oauthbearer_client_credentials_client_id"
_CLIENT_SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"
_HTTPS_CA: Final = ("https_ca_location", "https_ca_pem")
_OF_SERVERS: Final = (
    _ID,
    _CLIENT_SECRET,
    "sasl_oauthbearer_scope",
    "sasl_oauthbearer_header_urlencode",
    *_HTTPS_CA,
)
_OF_SASL: Final = ("sasl_", "https_ca_")
# The beginnings of options that one mechanism alone uses.
_OF_MECHANISM: Final = {
    AWS_MSK_IAM: ("sasl_aws_",),
    _TOKENS: ("sasl_oauthbearer_", "sasl_login_", "https_ca_"),
    GSSAPI: ("sasl_kerberos_",),
}
# Of two options one may be given.
_EXCLUDES: Final = (
    ("ssl_truststore_location", "ssl_truststore_certificates"),
    ("ssl_keystore_location", "ssl_keystore_key"),
    ("ssl_keystore_location", "ssl_key_location"),
    ("ssl_keystore_key", "ssl_key_location"),
    _HTTPS_CA,
)
# The first option does nothing without one of the others.
_NEEDS: Final = (
    (
        "ssl_key_location",
        ("ssl_certificate_location",),
        "; a file that holds both is ssl_keystore_location",
    ),
    (
        "ssl_certificate_location",
        ("ssl_key_location",),
        "; a file that holds both is ssl_keystore_location",
    ),
    ("ssl_keystore_key", ("ssl_keystore_certificate_chain",), ""),
    ("ssl_keystore_certificate_chain", ("ssl_keystore_key",), ""),
    ("ssl_key_password", ("ssl_keystore_location", "ssl_keystore_key", "ssl_key_location"), ""),
    ("ssl_keystore_password", ("ssl_keystore_location",), ""),
    ("ssl_truststore_password", ("ssl_truststore_location",), ""),
)
# An option beside a type of store that it does not fit.
_NOT_OF_TYPE: Final = (
    (
        "ssl_keystore_password",
        "ssl_keystore_type",
        "PEM",
        "the password of an encrypted key is ssl_key_password",
    ),
    (
        "ssl_truststore_password",
        "ssl_truststore_type",
        "PEM",
        "certificates in PEM have no password",
    ),
    ("ssl_keystore_key", "ssl_keystore_type", "PKCS12", "it is PEM"),
    ("ssl_key_location", "ssl_keystore_type", "PKCS12", "it is PEM"),
    ("ssl_truststore_certificates", "ssl_truststore_type", "PKCS12", "they are PEM"),
)


def settle_security(config: SecurityOptions, chosen: Collection[str]) -> None:
    """Check the options of TLS and SASL, and change defaults that conflict with what the user gave.

    Args:
        config: options; each value has been read on its own.
        chosen: the names of the options that the user gave.

    Raises:
        ConfigError: two options contradict each other, or one that another needs is missing.
    """
    protocol = config.security_protocol
    has_tls, has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL_")
    if not has_sasl and config.sasl_mechanism == "PLAIN":
        # aiokafka's default, which says nothing without SASL
        object.__setattr__(config, "sasl_mechanism", None)
    # options that say something
    given = [
        one.name for one in fields(SecurityOptions) if getattr(config, one.name) != one.default
    ]
    named = f"security_protocol is {protocol}" + (
        "" if "security_protocol" in chosen else " by default"
    )
    for name in given:
        if name.startswith(_OF_SASL) and not has_sasl:
            remedy = "SASL_SSL" if has_tls else "SASL_SSL or SASL_PLAINTEXT"
            raise ConfigError(
                f"{name} needs SASL, and {named}. Give security_protocol={remedy}, or leave {name} out"
            )
        if name.startswith("ssl_") and not has_tls:
            remedy = "SASL_SSL" if has_sasl else "SSL or SASL_SSL"
            raise ConfigError(
                f"{name} needs TLS, and {named}. Give security_protocol={remedy}, or leave {name} out"
            )
    for first, second in _EXCLUDES:
        if first in given and second in given:
            raise ConfigError(f"{first} and {second} are both given: keep one")
    if has_tls:
        _settle_tls(config, given, chosen)
    if has_sasl:
        _check_sasl(config, given)


def _settle_tls(config: SecurityOptions, given: Collection[str], chosen: Collection[str]) -> None:
    endpoint = "ssl_endpoint_identification_algorithm"
    context = config.ssl_context
    if context is not None:
        for name in given:
            if name.startswith("ssl_") and name not in {"ssl_context", endpoint}:
                raise ConfigError(
                    f"ssl_context and {name} are both given, and the context decides alone. Load it into the context, or drop one"
                )
        if getattr(getattr(context, "protocol", None), "name", "") == "PROTOCOL_TLS_SERVER":
            raise ConfigError(
                "ssl_context is a server's: make one by ssl.create_default_context(), or of ssl.PROTOCOL_TLS_CLIENT"
            )
        # a function has none
        checks = getattr(context, "check_hostname", None)
        wanted = config.ssl_endpoint_identification_algorithm
        if checks is not None and checks != bool(wanted):
            if endpoint in chosen:
                raise ConfigError(
                    f"{endpoint}={wanted or 'none'}, and ssl_context has check_hostname={checks}. Change one of them, or give the context alone"
                )
            object.__setattr__(config, endpoint, "")
    for name, needed, advice in _NEEDS:
        if name in given and not any(one in given for one in needed):
            raise ConfigError(f"{name} needs {' or '.join(needed)}, which is not given{advice}")
    for name, store, kind, advice in _NOT_OF_TYPE:
        if name in given and getattr(config, store) == kind:
            raise ConfigError(f"{name} is given, and {store}={kind}: {advice}")
    if not config.ssl_endpoint_identification_algorithm:
        _log.warning(
            "Host names of brokers are not checked: any holder of a certificate of a trusted CA may pose as a broker."
        )


def _check_sasl(config: Any, given: Collection[str]) -> None:
    protocol, mechanism = config.security_protocol, config.sasl_mechanism
    if mechanism is None:
        raise ConfigError(
            f"security_protocol={protocol} needs sasl_mechanism, which has no default here: give PLAIN (aiokafka's default), SCRAM-SHA-256, "
            "SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM, or GSSAPI for Kerberos"
        )
    for name in given:
        for user, beginnings in _OF_MECHANISM.items():
            # tokens of AWS are refreshed as any other
            is_shared = mechanism == AWS_MSK_IAM and name.startswith("sasl_login_")
            if mechanism != user and name.startswith(beginnings) and not is_shared:
                raise ConfigError(
                    f"{name} is for sasl_mechanism={user}, and sasl_mechanism={mechanism}. Leave {name} out"
                )
    if mechanism in _OF_MECHANISM:
        for name in ("sasl_username", "sasl_password", "sasl_token_auth"):
            if name in given:
                raise ConfigError(
                    f"sasl_mechanism={mechanism} has no {name}. Leave {name} out, or choose another mechanism"
                )
    if mechanism == AWS_MSK_IAM:
        _check_msk(config)
    elif mechanism == _TOKENS:
        _check_tokens(config, given)
    elif mechanism != GSSAPI:
        _check_password(config)
    if mechanism in {"PLAIN", _TOKENS} and protocol == "SASL_PLAINTEXT":
        what, advice = ("password", ", or SCRAM") if mechanism == "PLAIN" else ("token", "")
        _log.warning(
            "sasl_mechanism=%s with security_protocol=%s sends the %s unencrypted: use SASL_SSL%s.",
            mechanism,
            protocol,
            what,
            advice,
        )


def _check_password(config: SecurityOptions) -> None:
    mechanism = config.sasl_mechanism
    for name in ("sasl_username", "sasl_password"):
        if getattr(config, name) is None:
            raise ConfigError(
                f"sasl_mechanism={mechanism} needs sasl_username and sasl_password: {name} is not given"
            )
    if not config.sasl_password:
        raise ConfigError(f"sasl_mechanism={mechanism} needs sasl_password, which is empty")
    if config.sasl_token_auth and mechanism == "PLAIN":
        raise ConfigError(
            "sasl_token_auth needs SCRAM, and sasl_mechanism=PLAIN: brokers take delegation tokens by SCRAM alone"
        )


def _check_tokens(config: SecurityOptions, given: Collection[str]) -> None:
    token, url = config.sasl_oauthbearer_token, config.sasl_oauthbearer_token_endpoint_url
    if token is None and url is None:
        raise ConfigError(
            f"sasl_mechanism={_TOKENS} needs sasl_oauthbearer_token or {_URL}, which is not given"
        )
    if token is not None and url is not None:
        raise ConfigError(f"sasl_oauthbearer_token and {_URL} are both given: keep one")
    if isinstance(token, Secret) and not token:
        raise ConfigError(f"sasl_mechanism={_TOKENS} needs sasl_oauthbearer_token, which is empty")
    if url is None or file_of(url) is not None:
        for name in _OF_SERVERS:
            if name in given:
                what = "which is not given" if url is None else "and that is a file"
                raise ConfigError(
                    f"{name} needs a token endpoint in {_URL}, {what}: leave {name} out"
                )
        return
    for name in (_ID, _CLIENT_SECRET):
        if not getattr(config, name):
            raise ConfigError(
                f"{_URL} needs {name}, which is {'empty' if name in given else 'not given'}"
            )
    # RFC 7617: the first colon ends the id
    if (
        ":" in (config.sasl_oauthbearer_client_credentials_client_id or "")
        and not config.sasl_oauthbearer_header_urlencode
    ):
        raise ConfigError(
            f"{_ID} has a colon, which ends it in the header: give sasl_oauthbearer_header_urlencode=True"
        )
    for name in _HTTPS_CA:
        if name in given and not url.startswith("https:"):
            raise ConfigError(f"{name} needs TLS, and {_URL} is http: leave {name} out")


def _check_msk(config: Any) -> None:
    mechanism = f"sasl_mechanism={AWS_MSK_IAM}"
    if config.security_protocol != "SASL_SSL":
        raise ConfigError(
            f"{mechanism} needs security_protocol=SASL_SSL: MSK has IAM with TLS alone"
        )
    if config.sasl_aws_profile_name is not None and config.sasl_aws_role_arn is not None:
        raise ConfigError(
            "sasl_aws_profile_name and sasl_aws_role_arn are both given: keep one. A profile may name a role itself"
        )
    if config.sasl_aws_role_session_name is not None and config.sasl_aws_role_arn is None:
        raise ConfigError("sasl_aws_role_session_name needs sasl_aws_role_arn, which is not given")
    if config.sasl_aws_region is None:
        regions = regions_of(config.bootstrap_servers)
        if not regions:
            raise ConfigError(
                f"{mechanism} needs sasl_aws_region: no name in bootstrap_servers={','.join(config.bootstrap_servers)} has a region of AWS"
            )
        if len(regions) > 1:
            raise ConfigError(
                f"bootstrap_servers has brokers in {' and '.join(regions)}: give those of one cluster, or sasl_aws_region"
            )


def regions_of(addresses: Iterable[str]) -> list[str]:
    """Return the regions of AWS that the names of MSK's brokers have, each once. An address is `host:port`."""
    # b-1.NAME.ID.c2.kafka.REGION.amazonaws.com, boot-ID.c1.kafka-serverless.REGION.amazonaws.com; in China .amazonaws.com.cn
    host = r"(?:[\w-]+\.)+kafka(?:-serverless)?\.(?P<region>[a-z]+(?:-[a-z]+)+-\d+)\.amazonaws\.com(?:\.cn)?\.?"
    matches = (re.fullmatch(host, address.rpartition(":")[0].lower()) for address in addresses)
    return list(dict.fromkeys(match["region"] for match in matches if match is not None))


# Types of stores

# JKS, and its sibling JCEKS.
_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
# A SEQUENCE in DER, with what begins it: version 3 of a PKCS12 store, any other version of a key, or the body of a certificate.
_DER: Final = re.compile(
    rb"0(?:[\x01-\x7f](?=\x02)|\x80|\x81.|\x82..|\x83...|\x84....)(\x02\x01\x03|\x02|0)", re.DOTALL
)


def type_of(option: str, path: str, given: str | None) -> str:
    """Return "PEM" or "PKCS12", the type of a key store or trust store, by the first bytes of its file.

    Args:
        option: the option that names the file.
        path: the file.
        given: the type that the user gives; None: any.

    Raises:
        ConfigError: the file cannot be read, is a JKS store or in DER, or is of another type than the given one.
    """
    try:
        with Path(path).open("rb") as file:
            first = file.read(9)
    except OSError as error:
        raise ConfigError(
            f"{option}={path} cannot be read: {error.strerror or type(error).__name__}"
        ) from None
    if first.startswith(_JKS):
        stem = Path(path).with_suffix("")
        raise ConfigError(
            f"{option}={path} is a JKS store, which only Java reads. Convert it: "
            f"keytool -importkeystore -srckeystore {path} -destkeystore {stem}.p12 -deststoretype PKCS12, and then, for PEM: "
            f"openssl pkcs12 -in {stem}.p12 -out {stem}.pem"
        )
    found = _DER.match(first)
    if found is not None and len(found[1]) == 1:
        is_key = found[1] == b"\x02" or option.endswith("key_location")
        what, tool = ("key", "pkey") if is_key else ("certificate", "x509")
        raise ConfigError(
            f"{option}={path} is a {what} in DER. Convert it to PEM: openssl {tool} -inform der -in {path} -out {path}.pem"
        )
    kind = "PEM" if found is None else "PKCS12"
    if given is not None and given != kind:
        raise ConfigError(
            f"{option}={path} is no {given} file: its first bytes are those of {kind if kind == 'PKCS12' else 'a text'}"
        )
    return kind
