"""Reads the URL of a token endpoint: https, http of this machine, or a file. No error quotes the URL, as it may hold a secret."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import ipaddress
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from aioproducer.config.option_kinds import (
    FLAG,
    PATH,
    PROTOCOLS,
    SECRET,
    TEXT,
    TOKEN,
    Frozen,
    Kind,
    OptionsSignature,
    Underivable,
    Yielding,
    is_secret,
    number,
    option,
    option_class,
    plain_text,
    read_secret,
    read_text,
    type_name,
)
from aioproducer.config.secret import NotText, Secret, hide, is_reference
from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from urllib.parse import SplitResult


__all__ = [
    "ALGORITHMS",
    "AWS_MSK_IAM",
    "Assumed",
    "EndpointOptions",
    "GSSAPI",
    "KerberosOptions",
    "MskOptions",
    "OF_ENDPOINTS",
    "PORTS",
    "RETRIEVERS",
    "SECURE_NAMES",
    "SecureOptions",
    "TokenOptions",
    "check_endpoint",
    "check_endpoint_options",
    "check_msk",
    "extension_fault",
    "file_of",
    "hides_secrets",
    "is_loopback",
    "parts_of",
    "regions_of",
    "settle_security",
    "type_of",
]

PORTS: Final = {"https": 443, "http": 80}
_FILE_SCHEME: Final = "file:"
# As file:///C:/path has it, on Windows.
_DRIVE: Final = r"/[A-Za-z]:"


def check_endpoint(option: str, url: str) -> None:
    """Check the URL that an option gives.

    Raises:
        ConfigError: it is none, or one that secrets are not sent to.
    """
    path = file_of(url)
    if path is None:
        parts_of(option, url)
    elif not path.startswith("/") and path[1:2] != ":":
        raise ConfigError(f"{option} must name its file by the whole path, as file:///path/to/token")
    elif not is_reference(f"${{{_FILE_SCHEME}{path}}}"):
        raise ConfigError(f"{option} names a file with a brace in its path")


def file_of(url: str) -> str | None:
    """Return the path of a `file:` URL; None: the URL is of another kind."""
    if not url.lower().startswith(_FILE_SCHEME):
        return None
    place = url[len(_FILE_SCHEME) :]
    if place.startswith("//"):
        host, slash, place = place[2:].partition("/")
        place = slash + place if host in {"", "localhost"} else host
    path = unquote(place)
    return path[1:] if re.match(_DRIVE, path) else path


def parts_of(option: str, url: str) -> SplitResult:
    """Return the parts of the URL of a server.

    Raises:
        ConfigError: as of `check_endpoint`.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(f"{option} is no URL") from None
    if parts.scheme not in PORTS or not parts.hostname or port == 0 or any(not "!" <= one <= "~" for one in url):
        raise ConfigError(f"{option} must be an https:// URL with a host, in ASCII, or file:///path/to/token")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"{option} has a user or password, which it cannot: give sasl_oauthbearer_client_credentials_client_id and _client_secret"
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ConfigError(f"{option} is http, which would send secrets to {parts.hostname} unencrypted: give an https:// URL")
    return parts


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, without looking up its name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


# Says which SASL extensions OAUTHBEARER can send (RFC 7628, KIP-342).


# As Kafka's OAuthBearerClientInitialResponse, which wants a value of one character at least.
_NAME: Final = r"[A-Za-z]+"
_VALUE: Final = r"[\x21-\x7e \t\r\n]+"
# The name of the token itself in the message.
_RESERVED: Final = "auth"


def extension_fault(extensions: Iterable[tuple[Any, Any]]) -> str:
    """Return why extensions, as (name, value), cannot be sent; empty: they can. The text has no value of an extension."""
    seen: set[str] = set()
    for name, value in extensions:
        if not isinstance(name, str) or re.fullmatch(_NAME, name) is None:
            return "the name of a SASL extension has letters of ASCII alone"
        if name == _RESERVED:
            return f"a SASL extension cannot have the name {_RESERVED!r}, which is the token's"
        if name in seen:
            return f"the SASL extension {name!r} is given twice"
        if not isinstance(value, str) or re.fullmatch(_VALUE, value) is None:
            return f"the value of the SASL extension {name!r} is no string of printable ASCII, with one character at least"
        seen.add(name)
    return ""


# Tells the type of a key store or trust store by its first bytes. JKS is refused with the commands that convert it.


# JKS, and its sibling JCEKS.
_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
# A DER SEQUENCE of more than 127 bytes, or of indefinite length.
_DER: Final = (b"\x30\x80", b"\x30\x81", b"\x30\x82", b"\x30\x83", b"\x30\x84")


def type_of(option: str, path: str, given: str | None) -> str:
    """Return "PEM" or "PKCS12", by the first bytes of a file.

    Args:
        option: the option that names the file.
        path: the file.
        given: the type that the user gives; None: any.

    Raises:
        ConfigError: the file cannot be read, is a JKS store, or is of another type than the given one.
    """
    try:
        with Path(path).open("rb") as file:
            first = file.read(4)
    except OSError as error:
        raise ConfigError(f"{option}={path} cannot be read: {error.strerror or type(error).__name__}") from None
    if first in _JKS:
        stem = Path(path).with_suffix("")
        raise ConfigError(
            f"{option}={path} is a JKS store, which only Java reads. Convert it: "
            f"keytool -importkeystore -srckeystore {path} -destkeystore {stem}.p12 -deststoretype PKCS12, and then, for PEM: "
            f"openssl pkcs12 -in {stem}.p12 -out {stem}.pem"
        )
    kind = "PKCS12" if first[:2] in _DER else "PEM"
    if given is not None and given != kind:
        raise ConfigError(f"{option}={path} is no {given} file: its first bytes are those of {kind if kind == 'PKCS12' else 'a text'}")
    return kind


# Holds the options of token endpoints (KIP-768, KIP-1139, KIP-1258), as the base of the options of bearer tokens.
#
# Names are Java's with underscores; what Java has no name for is named after librdkafka's option.


ALGORITHMS: Final = ("RS256", "ES256")
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
# It chooses client credentials or a file, by the URL.
_BY_URL: Final = "DefaultJwtRetriever"
RETRIEVERS: Final = (_BY_URL, "ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever", "FileJwtRetriever")
# librdkafka names the grant; the first is its default, and Java's for a server.
_GRANTS: Final = {
    "client_credentials": _BY_URL,
    "urn:ietf:params:oauth:grant-type:jwt-bearer": "JwtBearerJwtRetriever",
}


def _url(name: str, value: Any) -> str | None:
    # Only a config with a path or a URL imports the code that reads them.
    if isinstance(value, os.PathLike):
        from pathlib import Path

        value = Path(value).absolute().as_uri()
    text = read_text(name, value)
    if text is not None:
        text = text.strip()
        check_endpoint(name, text)
    return text


def _retriever(name: str, value: Any) -> str:
    word = value.strip() if isinstance(value, str) else type_name(value)
    word = _GRANTS.get(word.lower(), word.removeprefix(_PACKAGE))
    if word in RETRIEVERS:
        return word
    known = ", ".join((*RETRIEVERS, *_GRANTS))
    raise ConfigError(f"{name}={word!r}: it is one of {known}. In place of another class, give sasl_oauthbearer_token a function")


def _algorithm(name: str, value: Any) -> str:
    word = value.strip().upper() if isinstance(value, str) else ""
    if word not in ALGORITHMS:
        raise ConfigError(f"{name}={value!r}: it is {' or '.join(ALGORITHMS)}")
    return word


@option_class(frozen=True, kw_only=True, slots=True, init=False, repr=False, eq=False)
class EndpointOptions(Frozen):
    """Holds the token endpoint, and what proves the client's identity to it."""

    sasl_oauthbearer_token_endpoint_url: str | None = option(
        None,
        Kind("https://..., http:// of this machine, file:///path, a pathlib.Path, or None", _url),
        "where tokens of OAUTHBEARER are fetched: a token endpoint of OpenID Connect, or a file that another program renews",
    )
    sasl_oauthbearer_jwt_retriever_class: str = option(
        _BY_URL,
        Kind(", ".join((*RETRIEVERS, *_GRANTS)), _retriever),
        "how tokens are fetched: by client credentials, as JWT bearer, or from a file; by default a file or client credentials, by the URL",
        librdkafka=("sasl.oauthbearer.grant.type",),
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = option(
        None, TEXT, "the client's id at the token endpoint", librdkafka=("sasl.oauthbearer.client.id",)
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | str | None = option(
        None, SECRET, "the client's secret at the token endpoint", librdkafka=("sasl.oauthbearer.client.secret",)
    )
    sasl_oauthbearer_scope: str | None = option(None, TEXT, "the scope of the tokens; None: the endpoint decides")
    sasl_oauthbearer_header_urlencode: bool = option(
        False, FLAG, "whether id and secret are URL-encoded before they are joined by a colon (RFC 6749)"
    )
    sasl_oauthbearer_assertion_algorithm: str = option(
        "RS256", Kind(" or ".join(ALGORITHMS), _algorithm), "how assertions are signed: with a key of type RSA, or on the curve P-256"
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = option(None, TEXT, "the claim aud of assertions")
    sasl_oauthbearer_assertion_claim_exp_seconds: int = option(300, number(1, 86_400, unit="s"), "seconds for which an assertion is valid")
    sasl_oauthbearer_assertion_claim_iss: str | None = option(None, TEXT, "the claim iss of assertions")
    sasl_oauthbearer_assertion_claim_jti_include: bool = option(False, FLAG, "whether each assertion has an id of its own (jti)")
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = option(
        60, number(0, 86_400, unit="s"), "seconds before its making from which an assertion is valid, for clocks that are behind"
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = option(None, TEXT, "the claim sub of assertions")
    sasl_oauthbearer_assertion_file: str | None = option(
        None, PATH, "file of a ready assertion, which another program renews; it is read at each fetch"
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = option(
        None, PATH, "file of the key that signs assertions, PEM; it is read at each fetch, and needs the extra crypto"
    )
    sasl_oauthbearer_assertion_private_key_pem: Secret | str | None = option(
        None,
        Kind("PEM or a reference to it, or None", read_secret),
        "the key that signs assertions; it needs the extra crypto",
        java=None,
        librdkafka=("sasl.oauthbearer.assertion.private.key.pem",),
    )
    sasl_oauthbearer_assertion_private_key_passphrase: Secret | str | None = option(
        None, SECRET, "the passphrase of the key that signs assertions, if it is encrypted"
    )
    sasl_oauthbearer_assertion_template_file: str | None = option(
        None,
        PATH,
        "file of claims and header fields of assertions: a JSON object of header and payload",
        librdkafka=("sasl.oauthbearer.assertion.jwt.template.file",),
    )
    https_ca_location: str | None = option(
        None,
        PATH,
        "file of the certificates that are trusted of the token endpoint, PEM; None: the system's",
        java=None,
        librdkafka=("https.ca.location",),
    )
    https_ca_pem: str | None = option(
        None,
        Kind("PEM, or None", read_text),
        "the certificates that are trusted of the token endpoint",
        java=None,
        librdkafka=("https.ca.pem",),
    )


# Holds the options of Amazon MSK's IAM (AWS_MSK_IAM), as the base of the options of bearer tokens, and checks that they fit each other.
#
# Names follow the options of Amazon's login module for Java: awsProfileName, awsRoleArn, awsRoleSessionName. The module has none for the
# region, which it takes from the broker's name.


AWS_MSK_IAM: Final = "AWS_MSK_IAM"
# b-1.NAME.ID.c2.kafka.REGION.amazonaws.com, boot-ID.c1.kafka-serverless.REGION.amazonaws.com; in China .amazonaws.com.cn
_HOST: Final = r"(?:[\w-]+\.)+kafka(?:-serverless)?\.(?P<region>[a-z]+(?:-[a-z]+)+-\d+)\.amazonaws\.com(?:\.cn)?\.?"
_OWN: Final = "sasl_aws_"
# Options that tell when tokens are refreshed are those of any tokens.
_SHARED: Final = ("sasl_mechanism", "sasl_login_")


def _matching(pattern: str, values: str) -> Kind:
    """Return the kind of a text that a pattern matches."""

    def read(name: str, value: Any) -> str | None:
        text = read_text(name, value)
        if text is not None and re.fullmatch(pattern, text.strip()) is None:
            raise ConfigError(f"{name}={text!r}: it is {values}")
        return None if text is None else text.strip()

    return Kind(f"{values}; or None", read)


@option_class(frozen=True, kw_only=True, slots=True, init=False, repr=False, eq=False)
class MskOptions(EndpointOptions):
    """Holds which credentials of AWS are signed, and for which region."""

    sasl_aws_region: str | None = option(
        None,
        _matching(r"[a-z]+(-[a-z]+)+-\d+", "a region of AWS, such as eu-central-1"),
        "the region of the MSK cluster; None: the names in bootstrap_servers tell it",
        java=None,
    )
    sasl_aws_profile_name: str | None = option(
        None, _matching(r"[^\r\n]+", "a name"), "the profile of AWS's configuration files; None: AWS's default credentials", java=None
    )
    sasl_aws_role_arn: str | None = option(
        None,
        _matching(r"arn:aws[\w-]*:iam::\d{12}:role/[\w+=,.@/-]+", "a role as arn:aws:iam::123456789012:role/NAME"),
        "the IAM role that is assumed, with the default credentials",
        java=None,
    )
    sasl_aws_role_session_name: str | None = option(
        None,
        _matching(r"[\w+=,.@-]{2,64}", "2 to 64 letters, digits and +=,.@-_"),
        "the name of the assumed role's session; None: the signer's",
        java=None,
    )


def regions_of(addresses: Iterable[str]) -> list[str]:
    """Return the regions of AWS that the names of MSK's brokers have, each once. An address is `host:port`."""
    matches = (re.fullmatch(_HOST, address.rpartition(":")[0].lower()) for address in addresses)
    return list(dict.fromkeys(match["region"] for match in matches if match is not None))


def check_msk(config: Any, given: Iterable[str]) -> None:
    """Check the options of a config with `sasl_mechanism=AWS_MSK_IAM`.

    Args:
        config: the config, whose values have been read.
        given: the options of SASL that the user gave.

    Raises:
        ConfigError: an option is for another mechanism, two contradict each other, or the region is not known.
    """
    mechanism = f"sasl_mechanism={AWS_MSK_IAM}"
    if config.security_protocol != "SASL_SSL":
        raise ConfigError(f"{mechanism} needs security_protocol=SASL_SSL: MSK has IAM with TLS alone")
    for name in given:
        if not name.startswith((_OWN, *_SHARED)):
            raise ConfigError(f"{mechanism} has no {name}: credentials of AWS are signed. Leave {name} out, or choose another mechanism")
    if config.sasl_aws_profile_name is not None and config.sasl_aws_role_arn is not None:
        raise ConfigError("sasl_aws_profile_name and sasl_aws_role_arn are both given: keep one. A profile may name a role itself")
    if config.sasl_aws_role_session_name is not None and config.sasl_aws_role_arn is None:
        raise ConfigError("sasl_aws_role_session_name needs sasl_aws_role_arn, which is not given")
    if config.sasl_aws_region is None:
        _check_regions(mechanism, config.bootstrap_servers)


def _check_regions(mechanism: str, addresses: tuple[str, ...]) -> None:
    regions = regions_of(addresses)
    if not regions:
        raise ConfigError(f"{mechanism} needs sasl_aws_region: no name in bootstrap_servers={','.join(addresses)} has a region of AWS")
    if len(regions) > 1:
        raise ConfigError(f"bootstrap_servers has brokers in {' and '.join(regions)}: give those of one cluster, or sasl_aws_region")


# Holds the options of bearer tokens (OAUTHBEARER), as the base of the options of TLS and SASL.
#
# Names are Java's with underscores; what Java has no name for is named after librdkafka's option.


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


# Holds the options of Kerberos (SASL's mechanism GSSAPI), as the base of the options of TLS and SASL.


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


# Holds the options of TLS and SASL, as the base of the producer's options, and the kinds of their values.
#
# Names are Java's with underscores; what Java has no name for is named after librdkafka's option. Each secret is held as a `Secret`, from the
# call of the constructor on: no frame of this package holds its text.


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


# Checks that the options of a token endpoint fit each other. Each error names both options; no error shows a secret.


# The beginnings of options that are for OAUTHBEARER alone, and that begin otherwise than its other options.
OF_ENDPOINTS: Final = ("https_ca_",)

_URL: Final = "sasl_oauthbearer_token_endpoint_url"
_RETRIEVER: Final = "sasl_oauthbearer_jwt_retriever_class"
_ID: Final = "sasl_oauthbearer_client_credentials_client_id"
_SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"
_URLENCODE: Final = "sasl_oauthbearer_header_urlencode"

_SCOPE: Final = "sasl_oauthbearer_scope"
_ASSERTION: Final = "sasl_oauthbearer_assertion_"
_CA: Final = ("https_ca_location", "https_ca_pem")
_ASSERTION_KEYS: Final = (f"{_ASSERTION}private_key_file", f"{_ASSERTION}private_key_pem")
_ASSERTIONS: Final = (f"{_ASSERTION}file", *_ASSERTION_KEYS)
_SIGNED: Final = tuple(
    _ASSERTION + name
    for name in (
        "algorithm",
        "claim_aud",
        "claim_exp_seconds",
        "claim_iss",
        "claim_jti_include",
        "claim_nbf_seconds",
        "claim_sub",
        "private_key_passphrase",
        "template_file",
    )
)
_OF_SERVERS: Final = (_ID, _SECRET, _SCOPE, _URLENCODE, *_CA, *_ASSERTIONS, *_SIGNED)


class _Way(NamedTuple):
    """Holds a way to fetch tokens.

    Attributes:
        retriever: Java's class for it.
        what: names it in texts.
        needs: groups of options, of each of which one must be given.
        excludes: options that have no effect.
    """

    retriever: str
    what: str
    needs: tuple[tuple[str, ...], ...]
    excludes: tuple[str, ...]


# The class, or the options of the client's identity, choose one.
_FILE: Final = _Way("FileJwtRetriever", "a file of a token", (), _OF_SERVERS)
_JWT_BEARER: Final = _Way("JwtBearerJwtRetriever", "the grant of JWT bearers", (_ASSERTIONS,), (_ID, _SECRET, _URLENCODE))
_ASSERTED: Final = _Way("ClientCredentialsJwtRetriever", "client credentials with an assertion", (), (_SECRET, _URLENCODE))
_WITH_SECRET: Final = _Way("ClientCredentialsJwtRetriever", "client credentials", ((_ID,), (_SECRET, *_ASSERTIONS)), ())

# Options of which one may be given.
_ENDPOINT_EXCLUDES: Final = (_CA, (_ASSERTIONS[0], _ASSERTION_KEYS[0]), (_ASSERTIONS[0], _ASSERTION_KEYS[1]), _ASSERTION_KEYS)


def check_endpoint_options(config: EndpointOptions, given: Collection[str]) -> None:
    """Check the options of a token endpoint.

    Args:
        config: options; each value has been read on its own.
        given: the names of those that have another value than the default.

    Raises:
        ConfigError: two options contradict each other, or one that another needs is missing.
    """
    url = config.sasl_oauthbearer_token_endpoint_url
    if url is None:
        for name in (_RETRIEVER, *_OF_SERVERS):
            if name in given:
                raise ConfigError(f"{name} needs {_URL}, which is not given")
        return
    for first, second in _ENDPOINT_EXCLUDES:
        if first in given and second in given:
            raise ConfigError(f"{first} and {second} are both given: keep one")
    # Only token endpoints have URLs.

    _check_way(_way(config, given, is_file=file_of(url) is not None), given)
    _check_values(config, given, url)


def _way(config: EndpointOptions, given: Collection[str], *, is_file: bool) -> _Way:
    retriever = config.sasl_oauthbearer_jwt_retriever_class
    if retriever != _BY_URL and is_file != (retriever == _FILE.retriever):
        raise ConfigError(f"{_RETRIEVER}={retriever} is not for {_URL} with {'a file' if is_file else 'a server'}: leave {_RETRIEVER} out")
    if is_file:
        return _FILE
    if retriever == _JWT_BEARER.retriever:
        return _JWT_BEARER
    return _ASSERTED if any(name in given for name in _ASSERTIONS) else _WITH_SECRET


def _check_way(way: _Way, given: Collection[str]) -> None:
    for name in way.excludes:
        if name in given:
            raise ConfigError(f"{name} has no place beside {way.what}: leave one of the two out")
    for names in way.needs:
        if not any(name in given for name in names):
            raise ConfigError(f"{_URL} with {way.what} needs {' or '.join(names)}, which is not given")
    for name in _SIGNED:
        if name in given and not any(key in given for key in _ASSERTION_KEYS):
            raise ConfigError(f"{name} needs {' or '.join(_ASSERTION_KEYS)}, which is not given")


def _check_values(config: EndpointOptions, given: Collection[str], url: str) -> None:
    """Check values that other values restrict."""
    if _SECRET in given and not config.sasl_oauthbearer_client_credentials_client_secret:
        raise ConfigError(f"{_SECRET} is empty")
    # RFC 7617: the first colon ends the id
    if _SECRET in given and ":" in (config.sasl_oauthbearer_client_credentials_client_id or "") and _URLENCODE not in given:
        raise ConfigError(f"{_ID} has a colon, which ends it in the header: give {_URLENCODE}=True")
    for name in _CA:
        if name in given and not url.startswith("https:"):
            raise ConfigError(f"{name} needs TLS, and {_URL} is http: leave {name} out")


# Checks that the options of TLS and SASL fit each other. Each error names both options; no error shows a secret.


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
