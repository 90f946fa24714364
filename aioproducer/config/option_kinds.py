"""Kinds of options: what may be given for an option, and how the value that a config holds is read from it.

Values come from code, from environment files and from other clients' files, so that a number may be a text, and a flag too.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import timedelta
from typing import Any, Final, NamedTuple

from aioproducer.config.secret import Secret, has_reference, is_reference
from aioproducer.errors import ConfigError, UsageError
from aioproducer.interfaces import is_coroutine_function
from aioproducer.model import Acks, Compression, exact_int, is_number, is_numpy_bool

_log = logging.getLogger(__name__)

INT_MAX: Final = 2**31 - 1
_SHORT_MAX: Final = 2**15 - 1


class Kind(NamedTuple):
    """Holds a kind of value.

    Attributes:
        values: the values that may be given, in words.
        read: returns the value that a config holds, from the option's name and the given value; ConfigError: the value is bad. It
            takes what it returns, too.
        low, high: the range of a number.
        is_secret: no text shows a value.
    """

    values: str
    read: Callable[[str, Any], Any]
    low: int | None = None
    high: int | None = None
    is_secret: bool = False


def or_none(kind: Kind) -> Kind:
    """Return the kind of None, or of a value of another kind."""
    return Kind(
        f"{kind.values}, or None",
        lambda name, value: None if value is None else kind.read(name, value),
        is_secret=kind.is_secret,
    )


class Option(NamedTuple):
    """Holds the description of a config's field.

    Attributes:
        doc: one sentence.
        java: Java's name; empty: the field's name with dots; None: Java has no such option.
        aliases: other names: with dots librdkafka's and those of proposals, with underscores those of arguments of Python's clients.
    """

    kind: Kind
    doc: str
    java: str | None
    aliases: tuple[str, ...]


def option(
    default: Any, kind: Kind, doc: str, *aliases: str, java: str | None = "", repr: bool = True
) -> Any:
    """Return a dataclass field that is an option. `default` is as a config holds it."""
    return field(default=default, repr=repr, metadata={"option": Option(kind, doc, java, aliases)})


# Numbers and flags


def ms(low: int, high: int | None = None, none: tuple[int, ...] = ()) -> Kind:
    """Return the kind of a number of milliseconds."""
    return number(low, high, unit="ms", none=none)


def size(low: int, none: tuple[int, ...] = ()) -> Kind:
    """Return the kind of a number of bytes."""
    return number(low, INT_MAX, unit="bytes", none=none)


def number(
    low: int, high: int | None = None, *, unit: str = "", none: tuple[int, ...] = ()
) -> Kind:
    """Return the kind of a number of milliseconds ("ms"), or of a whole number of any other unit.

    `none` are values outside the range that all mean none. A config holds the first of them.
    """
    besides = "".join(f", or {one}" for one in none if one < low)

    def read(name: str, value: Any) -> Any:
        try:
            given = _milliseconds(name, value) if unit == "ms" else whole_number(name, value)
        except ConfigError as bad:
            raise ConfigError(f"{bad}{besides}") from None
        if given in none:
            return none[0]
        if given < low or (high is not None and given > high):
            most = "" if high is None else f" and at most {high}"
            raise ConfigError(f"{name}={value!r}: it is at least {low}{most}{besides}")
        return given

    bounds = f"{low} and up" if high is None else f"{low} to {high}"
    return Kind(f"{unit or 'number'}, {bounds}{besides}", read, low, high)


def _milliseconds(name: str, value: Any) -> float:
    """Return a finite float of a number of milliseconds, of its text, or of a timedelta."""
    if isinstance(value, timedelta):
        return value / timedelta(milliseconds=1)
    try:
        if not isinstance(value, str) and not is_number(value) and exact_int(value) is None:
            raise TypeError
        parsed = float(value)
        if not math.isfinite(parsed):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{name}={value!r}: it is a number, or a timedelta") from None
    return parsed


def whole_number(name: str, value: Any) -> int:
    """Return the int of an integer of any type, of a float or a Decimal without a fraction, or of an int's text.

    Raises:
        ConfigError: `value` is none of these.
    """
    exact = exact_int(value)
    if exact is not None:
        return exact
    try:
        if not isinstance(value, str) and not is_number(value):
            raise TypeError
        parsed = int(value)
        if not isinstance(value, str) and parsed != value:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{name}={value!r}: it is a whole number") from None
    return parsed


def share(low: float, high: float) -> Kind:
    """Return the kind of a number with a fraction."""

    def read(name: str, value: Any) -> float:
        try:
            given = float(value)
        except (TypeError, ValueError):
            given = math.nan
        if isinstance(value, bool) or not low <= given <= high:
            raise ConfigError(f"{name}={value!r}: it is a number from {low:g} to {high:g}")
        return given

    return Kind(f"number, {low:g} to {high:g}", read)


def _flag(name: str, value: Any) -> bool:
    word = (
        str(value).strip().lower() if isinstance(value, (bool, str)) or is_numpy_bool(value) else ""
    )
    if word not in {"true", "false"}:
        raise ConfigError(f"{name}={value!r}: it is true or false")
    return word == "true"


FLAG: Final = Kind("true or false", _flag)


# Words and texts


def words(*known: str, upper: bool = False) -> Kind:
    """Return the kind of one of some words, in upper or lower case; a config holds it in one of the two."""
    values = " or ".join(known)

    def read(name: str, value: Any) -> str:
        word = value.strip() if isinstance(value, str) else ""
        word = word.upper() if upper else word.lower()
        if word not in known:
            raise ConfigError(f"{name}={value!r}: it is {values}")
        return word

    return Kind(values, read)


def or_word(word: str, kind: Kind) -> Kind:
    """Return the kind of `word`, in upper or lower case, or of any value of another kind."""

    def read(name: str, value: Any) -> Any:
        if isinstance(value, str) and value.strip().lower() == word:
            return word
        try:
            return kind.read(name, value)
        except ConfigError as bad:
            raise ConfigError(f"{bad}, or {word!r}") from None

    return kind._replace(values=f"{kind.values}; or {word}", read=read)


def _acks(name: str, value: Any) -> Acks:
    # The default of aiokafka's `acks` is a bare object(), which means "not given".
    if type(value) is object:
        return Acks.ALL
    exact = exact_int(value)
    word = str(value if exact is None else exact).strip().lower()
    acks = {"all": Acks.ALL, "-1": Acks.ALL, "0": Acks.NONE, "1": Acks.LEADER}.get(word)
    if acks is None:
        raise ConfigError(f"{name}={value!r}: it is 'all', 1 or 0")
    return acks


def _compression(name: str, value: Any) -> Compression:
    if value is None or isinstance(value, Compression):
        return value or Compression.NONE
    try:
        return Compression[str(value).strip().upper()]
    except KeyError:
        raise ConfigError(f"{name}={value!r}: it is one of {COMPRESSION.values}") from None


ACKS: Final = Kind("all, 1 or 0", _acks)
COMPRESSION: Final = Kind(", ".join(codec.name.lower() for codec in Compression), _compression)


def bounded_text(shortest: int = 0) -> Kind:
    """Return the kind of a string whose bytes in UTF-8 a field of Kafka's protocol can hold."""

    def read(name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise ConfigError(f"{name} must be a string, not {type(value).__name__}")
        if utf8_size(name, value, _SHORT_MAX, ConfigError) < shortest:
            raise ConfigError(f"{name} is empty: give it a name, or leave it out")
        return value

    return Kind(f"text, at most {_SHORT_MAX} bytes", read)


def utf8_size(name: str, text: str, longest: int, error_class: type[UsageError]) -> int:
    """Return the number of bytes of a text in UTF-8.

    Raises:
        UsageError: UTF-8 has not all of its characters, or they are more than `longest` bytes; the error is an `error_class`.
    """
    try:
        count = len(text.encode())
    except UnicodeEncodeError:
        raise error_class(f"{name} has characters that UTF-8 does not") from None
    if count > longest:
        raise error_class(f"{name} takes {count} bytes: it is at most {longest}")
    return count


def _client_id(name: str, value: Any) -> str:
    return str(bounded_text().read(name, "" if value is None else value))


CLIENT_ID: Final = Kind(
    f"{bounded_text().values}; None and empty: the producer chooses", _client_id
)


def plain_text(name: str, value: Any) -> str:
    """Return a text that is no reference."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string, not {type(value).__name__}")
    if not value.strip():
        raise ConfigError(f"{name} is empty: leave it out")
    if is_reference(value):
        raise ConfigError(
            f"{name}={value.strip()}: references are read in secret options and sasl_username alone. Give the value itself"
        )
    return value


def _path(name: str, value: Any) -> str:
    return plain_text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def matching(pattern: str, values: str) -> Kind:
    """Return the kind of a text that a pattern matches, or None."""

    def read(name: str, value: Any) -> str:
        text = plain_text(name, value).strip()
        if re.fullmatch(pattern, text) is None:
            raise ConfigError(f"{name}={text!r}: it is {values}")
        return text

    return or_none(Kind(values, read))


def string_list(name: str, value: Any) -> list[str]:
    """Return the words of a text, or of a sequence of texts."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise ConfigError(
            f"{name} must be a string or a sequence of strings, not {type(value).__name__}"
        )
    return [word for part in parts for word in re.split(r"[\s,:]+", part) if word]


TEXT: Final = or_none(Kind("a text", plain_text))
PATH: Final = or_none(Kind("a path", _path))
PEM: Final = or_none(Kind("PEM", plain_text))


def unquoted(text: str) -> str:
    """Return a text without the quotes around it, which an environment file of Docker keeps, and without blanks at its ends."""
    inner = text.strip()
    if len(inner) > 1 and inner[0] == inner[-1] and inner[0] in "\"'":
        inner = inner[1:-1].strip()
    return inner


# Secrets


def read_secret(name: str, value: Any) -> Secret:
    """Return the secret of a text, or of a reference."""
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{name} has characters that UTF-8 does not") from None
    if has_reference(value) and not is_reference(value):
        raise ConfigError(
            f"{name} has a reference within other text: a reference is the whole value"
        )
    if re.fullmatch(r"\$\{\w+\}", value.strip()):
        _log.warning(
            "%s looks like a variable, and is the secret itself: write ${env:NAME}, not ${NAME}",
            name,
        )
    return Secret(value)


def _user(name: str, value: Any) -> str | Secret:
    """Return a name as it is, which health shows, or a reference to it."""
    if isinstance(value, Secret) or (isinstance(value, str) and is_reference(value)):
        return read_secret(name, value)
    text = plain_text(name, value)
    utf8_size(name, text, INT_MAX, ConfigError)
    return text


SECRET: Final = or_none(Kind("a secret or a reference to one", read_secret, is_secret=True))
PEM_SECRET: Final = or_none(Kind("PEM or a reference to it", read_secret, is_secret=True))
USER: Final = or_none(Kind("a name or a reference to it", _user))


# Functions, objects and mappings


def function(
    classes: Mapping[str, Any] | None = None, shape: Callable[[Any], bool] = callable
) -> Kind:
    """Return the kind of a callable, or None.

    Args:
        classes: the equivalents of classes of other clients, by their full names; a user may also give the class, or an object of it.
        shape: returns whether a value is accepted.
    """
    known = classes or {}

    def read(name: str, value: Any) -> Any:
        kind = value if isinstance(value, type) else type(value)
        full = value.strip() if isinstance(value, str) else f"{kind.__module__}.{kind.__qualname__}"
        if full in known:
            return known[full]
        if isinstance(value, (str, bytes, bytearray)) or not (value is None or shape(value)):
            given = repr(value) if isinstance(value, str) else type(value).__name__
            raise ConfigError(f"{name} must be callable, not {given}")
        if is_coroutine_function(value):
            advice = (
                "await in your code, before `send`"
                if name.endswith("_serializer")
                else "it is called between two steps of the loop"
            )
            raise ConfigError(
                f"{name} must be a plain function, not a coroutine function: {advice}"
            )
        return value

    names = dict.fromkeys(one.rpartition(".")[2] for one in known)
    return Kind("callable" + "".join(f", `{one}`" for one in names), read)


def breaker(word: str, name_of_class: str) -> Kind:
    """Return the kind of a circuit breaker: None, the built-in one, or a user's own breaker or its class.

    `word`, or a name of a class that ends in `name_of_class`, names the built-in one.
    """

    def read(name: str, value: Any) -> Any:
        if isinstance(value, str):
            if value.strip() == word or value.strip().rpartition(".")[2] == name_of_class:
                return word
            raise ConfigError(f"{name}={value!r}: it is {word!r}, or a circuit breaker of your own")
        methods = ("configure", "set_circuit_break_manager", "on_send", "on_complete", "close")
        if value is not None and not all(
            callable(getattr(value, method, None)) for method in methods
        ):
            raise ConfigError(
                f"{name} must be a PartitionCircuitBreaker, with all of its methods, not {type(value).__name__}"
            )
        return value

    return Kind(f"None, `{word}`, a PartitionCircuitBreaker or its class", read)


def plugins(*methods: str) -> Kind:
    """Return the kind of objects or classes with at least one of these methods each. A config holds a tuple of them."""

    def read(name: str, value: Any) -> tuple[Any, ...]:
        given = (
            ()
            if value in (None, "")
            else tuple(value)
            if isinstance(value, (list, tuple))
            else (value,)
        )
        for one in given:
            known = [found for method in methods if callable(found := getattr(one, method, None))]
            if not known:
                shown = repr(one) if isinstance(one, str) else f"a {type(one).__name__}"
                raise ConfigError(f"{name}: {shown} has none of the methods {', '.join(methods)}")
            if any(map(is_coroutine_function, known)):
                raise ConfigError(
                    f"{name}: methods are plain functions, not coroutine functions: they are called between two steps of the loop"
                )
        return given

    return Kind("objects or classes", read)


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    try:
        given = dict(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} must be a mapping, not {type(value).__name__}") from None
    if not all(isinstance(one, str) for one in given):
        raise ConfigError(f"{name}: its names are strings")
    return given


MAPPING: Final = or_none(Kind("a mapping", _mapping))


# Addresses of brokers
#
# Java, librdkafka, aiokafka and the tools that write environment files (Terraform, docker-compose) each write a list of brokers in their
# own form: a listener's scheme before the host, blanks or semicolons between addresses, a JSON list, no port. Every form that names brokers
# unambiguously is read. Text that cannot be an address is refused, because a producer would look that up as a host name until `max_block_ms`
# is over. A scheme is the security protocol, which `security_protocol` need not repeat.

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# The default of aiokafka and librdkafka, for an address without a port.
_DEFAULT_PORT: Final = "9092"
_FORMS: Final = "'host:port,...' or a sequence of 'host:port'"


def read_addresses(option: str, given: Any) -> tuple[tuple[str, ...], str | None]:
    """Return distinct addresses as `host:port`, in the given order, and the security protocol that schemes before them name, if any.

    Raises:
        ConfigError: there is no address, a part is none, or schemes contradict each other. The error's text never has the text before an
            `@`.
    """
    if isinstance(given, str):
        given = _parts_of_text(given)
    if not isinstance(given, (list, tuple)) or not all(isinstance(part, str) for part in given):
        raise ConfigError(f"{option} must be {_FORMS}")
    for text in given:
        if "@" in text:
            where = text.rpartition("@")[2].strip()
            raise ConfigError(
                f"{option}: a user stands before '@{where}'. Give host:port alone: users are sasl_username and sasl_password"
            )
    found = [
        _address(option, part) for text in given for part in re.split(r"[\s,;]+", text) if part
    ]
    if not found:
        raise ConfigError(f"{option} is empty: name at least one broker as host:port")
    protocols = list(dict.fromkeys(protocol for protocol, _ in found if protocol))
    if len(protocols) > 1:
        raise ConfigError(
            f"{option} has the schemes {' and '.join(protocols)}: a producer has one security_protocol. Name one of them"
        )
    addresses = tuple(dict.fromkeys(address for _, address in found))
    if len(addresses) < len(found):
        _log.warning("%s has an address twice: it is used once", option)
    return addresses, protocols[0] if protocols else None


def _parts_of_text(text: str) -> Any:
    """Return the parts of a list as JSON, Python or YAML write it on one text line; any other text unchanged, in a list."""
    inner = unquoted(text)
    if not (inner.startswith("[") and inner.endswith("]")) or _is_ipv6(inner[1:-1]):
        return [inner]
    try:
        return json.loads(inner)
    except ValueError:
        return [inner[1:-1].replace('"', " ").replace("'", " ")]


def _address(option: str, part: str) -> tuple[str, str]:
    """Return the protocol, if it is named, and the address as `host:port`."""
    scheme, separator, text = part.partition("://")
    protocol = scheme.upper() if separator else ""
    if separator and protocol not in PROTOCOLS:
        raise ConfigError(
            f"{option}: {part!r} has the scheme {scheme!r}: it is one of {', '.join(PROTOCOLS)}, or left out"
        )
    text = text if separator else part
    if "/" in text:
        raise ConfigError(f"{option}: {part!r} is not host:port: a broker's address has no path")
    if text.upper() in PROTOCOLS:
        raise ConfigError(
            f"{option}: {part!r} is a security protocol, not host:port: name it by security_protocol, or as {text}://host:port"
        )
    host, port = _host_and_port(text)
    # No top-level domain is a number, so a text of digits is a port without its host.
    is_host = host.startswith("[") or (re.fullmatch(r"[\w.-]+", host) and not host.isdigit())
    if not is_host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ConfigError(f"{option}: {part!r} is not host:port")
    return protocol, f"{host}:{int(port)}"


def _host_and_port(text: str) -> tuple[str, str]:
    """Return the host, in brackets if it is an IPv6 address, and the port. The host is empty if the text is none of both."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        is_address = _is_ipv6(host) and rest[:1] in {"", ":"}
        return (f"[{host}]" if is_address else ""), rest[1:] if rest else _DEFAULT_PORT
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, _DEFAULT_PORT
    return (f"[{host}]" if _is_ipv6(host) else host), port


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


ADDRESSES: Final = Kind(
    "host:port (9092 where no port is given), separated by commas, semicolons or blanks, or a sequence",
    lambda name, value: read_addresses(name, value)[0],
)
