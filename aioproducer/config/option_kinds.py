"""Reads the forms in which `bootstrap_servers` may be written into `host:port`.

Java, librdkafka, aiokafka and the tools that write environment files (Terraform, docker-compose) each write a list of brokers in their
own form. Examples are a listener's scheme before the host, blanks or semicolons between addresses, a JSON list, and no port. This module
reads every form that names brokers unambiguously. It refuses text that cannot be an address, because a producer would look that up as a
host name until `max_block_ms` is over. A scheme is the security protocol, which `security_protocol` need not repeat.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import math
import os
import re
from dataclasses import field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Never, get_args, get_type_hints

from aioproducer.config.secret import NotText, Secret, is_reference
from aioproducer.errors import ConfigError, UsageError
from aioproducer.model import Acks, Compression, exact_int, is_number, is_numpy_bool
from aioproducer.user_functions import is_coroutine_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "ACKS",
    "ADDRESSES",
    "AssignedClientId",
    "BrokerAddresses",
    "COMPRESSION",
    "DEFAULT_PORT",
    "DEFAULT_PREFIX",
    "FLAG",
    "Frozen",
    "Kind",
    "MAYBE_FLAG",
    "Option",
    "OptionsSignature",
    "PATH",
    "PROTOCOLS",
    "SECRET",
    "TEXT",
    "TOKEN",
    "Underivable",
    "Yielding",
    "breaker",
    "client_id",
    "function",
    "is_secret",
    "mapping",
    "number",
    "option",
    "option_class",
    "or_word",
    "plain_text",
    "plugins",
    "read_addresses",
    "read_secret",
    "read_text",
    "text",
    "type_name",
    "utf8_size",
    "whole_number",
    "words",
]

# The default of aiokafka and librdkafka, for an address without a port.
DEFAULT_PORT: Final = 9092
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MAX_PORT: Final = 65_535
_BETWEEN: Final = r"[\s,;]+"
_SCHEME: Final = r"([^:/]*)://"
_HOST: Final = r"[\w.-]+"
_FORMS: Final = "'host:port,...' or a sequence of 'host:port'"


class BrokerAddresses(NamedTuple):
    """Holds what a text names.

    Attributes:
        addresses: distinct `host:port`, in the given order.
        is_repeated: True if one of them was named twice.
        protocol: the security protocol, one of `PROTOCOLS`, that schemes before the hosts name; None: there is none.
    """

    addresses: tuple[str, ...]
    is_repeated: bool
    protocol: str | None


def read_addresses(option: str, given: Any) -> BrokerAddresses:
    """Read the value of `option` into distinct addresses.

    Raises:
        ConfigError: there is no address, a part is none, or schemes contradict each other. The error's text never has the text before an
            `@`.
    """
    if isinstance(given, str):
        given = _listed(option, given)
    if not isinstance(given, (list, tuple)) or not all(isinstance(part, str) for part in given):
        raise ConfigError(f"{option} must be {_FORMS}")
    parts = [part for text in given for part in re.split(_BETWEEN, _without_user(option, text)) if part]
    if not parts:
        raise ConfigError(f"{option} is empty: name at least one broker as host:port")
    protocol = _protocol_of_all(option, parts)
    named = [_address(option, part) for part in parts]
    addresses = tuple(dict.fromkeys(named))
    return BrokerAddresses(addresses, len(addresses) < len(named), protocol)


def _protocol_of_all(option: str, parts: list[str]) -> str | None:
    """Return the security protocol that the schemes name; None: no part has a scheme."""
    protocols = list(dict.fromkeys(protocol for part in parts if (protocol := _protocol(option, part)) is not None))
    if len(protocols) > 1:
        raise ConfigError(f"{option} has the schemes {' and '.join(protocols)}: a producer has one security_protocol. Name one of them")
    return protocols[0] if protocols else None


def _listed(option: str, text: str) -> Any:
    """Return the parts of a list as JSON, Python or YAML write it on one text line; any other text unchanged, in a list."""
    inner = text.strip()
    # An environment file of Docker keeps the quotes around a value.
    if len(inner) > 1 and inner[0] == inner[-1] and inner[0] in "\"'":
        inner = inner[1:-1].strip()
    if not (inner.startswith("[") and inner.endswith("]")) or _is_ipv6(inner[1:-1]):
        return [inner]
    # Few users write a list in this way.
    import json

    try:
        read = json.loads(inner)
    except ValueError:
        return [inner[1:-1].replace('"', " ").replace("'", " ")]
    if not all(isinstance(part, str) for part in read):
        raise ConfigError(f"{option} must be {_FORMS}")
    return read


def _without_user(option: str, text: str) -> str:
    if "@" in text:
        where = text.rpartition("@")[2].strip()
        raise ConfigError(f"{option}: a user stands before '@{where}'. Give host:port alone: users are sasl_username and sasl_password")
    return text


def _protocol(option: str, part: str) -> str | None:
    """Return the security protocol that the scheme of an address names; None: it has no scheme."""
    scheme = re.match(_SCHEME, part)
    if scheme is None:
        return None
    if scheme[1].upper() not in PROTOCOLS:
        raise ConfigError(f"{option}: {part!r} has the scheme {scheme[1]!r}: it is one of {', '.join(PROTOCOLS)}, or left out")
    return scheme[1].upper()


def _address(option: str, part: str) -> str:
    """Return one address as `host:port`."""
    scheme = re.match(_SCHEME, part)
    text = part[scheme.end() :] if scheme is not None else part
    if "/" in text:
        raise ConfigError(f"{option}: {part!r} is not host:port: a broker's address has no path")
    if text.upper() in PROTOCOLS:
        raise ConfigError(
            f"{option}: {part!r} is a security protocol, not host:port: name it by security_protocol, or as {text}://host:port"
        )
    host, port = _host_and_port(text)
    if not _is_host(host) or not (port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT):
        raise ConfigError(f"{option}: {part!r} is not host:port")
    return f"{host}:{int(port)}"


def _host_and_port(text: str) -> tuple[str, str]:
    """Return the host and the port. The port is `DEFAULT_PORT` if none is given; an IPv6 address has brackets."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        is_address = _is_ipv6(host) and rest[:1] in {"", ":"}
        return (f"[{host}]" if is_address else ""), rest[1:] if rest else str(DEFAULT_PORT)
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, str(DEFAULT_PORT)
    return (f"[{host}]" if _is_ipv6(host) else host), port


def _is_host(host: str) -> bool:
    if host.startswith("["):
        return True
    # No top-level domain is a number, so a text of digits is a port without its host.
    return re.fullmatch(_HOST, host) is not None and not host.isdigit()


def _is_ipv6(host: str) -> bool:
    if ":" not in host:
        return False
    # Only such addresses need it.
    import ipaddress

    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


# Holds the parts of an option: its names, and its kind, which reads values of users and environment files.


# What names of environment variables begin with.
DEFAULT_PREFIX: Final = "KAFKA_"
_log = logging.getLogger(__name__)
_ACKS: Final = {"all": Acks.ALL, "-1": Acks.ALL, "0": Acks.NONE, "1": Acks.LEADER}
_MILLISECOND: Final = timedelta(milliseconds=1)
_FLAGS: Final = {"true": True, "false": False}


class Kind(NamedTuple):
    """Holds a kind of value.

    Attributes:
        values: the values that may be given, in words.
        read: returns the value that a config holds, from the option's name and the given value; ConfigError: the value is bad.
        low, high: the range of a number.
    """

    values: str
    read: Callable[[str, Any], Any]
    low: int | None = None
    high: int | None = None


class Option(NamedTuple):
    """Holds the description of a config's field.

    Attributes:
        doc: one sentence.
        java: Java's name; empty: the field's name with dots; None: Java has no such option.
        librdkafka: other names in librdkafka, and the factor from their unit to the unit here.
        python: names of the argument in aiokafka and kafka-python.
        kips: names of the option in proposals.
    """

    kind: Kind
    doc: str
    java: str | None
    librdkafka: Mapping[str, int]
    kips: tuple[str, ...]
    python: tuple[str, ...]


def option(
    default: Any,
    kind: Kind,
    doc: str,
    *,
    java: str | None = "",
    librdkafka: tuple[str, ...] | Mapping[str, int] = (),
    kips: tuple[str, ...] = (),
    python: tuple[str, ...] = (),
) -> Any:
    """Return a dataclass field that is an option."""
    names = dict.fromkeys(librdkafka, 1) if isinstance(librdkafka, tuple) else librdkafka
    return field(default=default, metadata={"option": Option(kind, doc, java, names, kips, python)})


class Yielding(float):
    """A default that may change: a value that the user gave for another option takes precedence."""


class AssignedClientId(str):
    """A client id that a producer chose. Another producer with the same config chooses its own."""

    __slots__ = ()


def client_id(longest: int) -> Kind:
    """Return the kind of a client id: at most `longest` bytes in UTF-8. None and empty: the producer chooses a name."""
    kind = text(longest)

    def read(name: str, value: Any) -> str:
        return str(kind.read(name, "" if value is None else value)) if not isinstance(value, AssignedClientId) else value

    return Kind(kind.values + "; None and empty: the producer chooses", read)


def number(low: int, high: int | None = None, *, unit: str = "", none: tuple[int, ...] = ()) -> Kind:
    """Return the kind of a number of milliseconds ("ms"), or of a whole number of any other unit.

    `none` are values outside the range that all mean none. A config holds the first of them.
    """
    parse = _float if unit == "ms" else whole_number

    def read(name: str, value: Any) -> Any:
        if isinstance(value, Yielding):
            return value
        try:
            given = parse(name, value)
        except ConfigError as bad:
            raise ConfigError(f"{bad}{besides}") from None
        if given in none:
            return none[0]
        if given < low or (high is not None and given > high):
            most = "" if high is None else f" and at most {high}"
            raise ConfigError(f"{name}={value!r}: it is at least {low}{most}{besides}")
        return given

    besides = "".join(f", or {one}" for one in none if one < low)
    bounds = f"{low} and up" if high is None else f"{low} to {high}"
    return Kind(f"{unit or 'number'}, {bounds}{besides}", read, low, high)


def _float(name: str, value: Any) -> float:
    """Return a finite float of a number of milliseconds, of its text, or of a timedelta."""
    if isinstance(value, timedelta):
        return value / _MILLISECOND
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
    number = exact_int(value)
    if number is not None:
        return number
    try:
        if not isinstance(value, str) and not is_number(value):
            raise TypeError
        parsed = int(value)
        if not isinstance(value, str) and parsed != value:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{name}={value!r}: it is a whole number") from None
    return parsed


def words(*known: str) -> Kind:
    """Return the kind of one of some words, in upper or lower case."""
    values = " or ".join(known)

    def read(name: str, value: Any) -> str:
        word = value.strip().lower() if isinstance(value, str) else ""
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

    return Kind(f"{kind.values}; or {word}", read, kind.low, kind.high)


def function(classes: Mapping[str, Any] | None = None, shape: Callable[[Any], bool] = callable) -> Kind:
    """Return the kind of a callable, or None.

    Args:
        classes: the equivalents of classes of other clients, by their full names; a user may also give the class, or an object of it.
        shape: returns whether a value is accepted.
    """
    known = classes or {}

    def read(name: str, value: Any) -> Any:
        if (full := value.strip() if isinstance(value, str) else _class_name(value)) in known:
            return known[full]
        if isinstance(value, (str, bytes, bytearray)) or not (value is None or shape(value)):
            given = repr(value) if isinstance(value, str) else type(value).__name__
            raise ConfigError(f"{name} must be callable, not {given}")
        if is_coroutine_function(value):
            advice = "await in your code, before `send`" if name.endswith("_serializer") else "it is called between two steps of the loop"
            raise ConfigError(f"{name} must be a plain function, not a coroutine function: {advice}")
        return value

    names = dict.fromkeys(one.rpartition(".")[2] for one in known)
    return Kind("callable" + "".join(f", `{one}`" for one in names), read)


def _class_name(value: object) -> str:
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def breaker(word: str, name_of_class: str) -> Kind:
    """Return the kind of a circuit breaker: None, the built-in one, or a user's own breaker or its class.

    `word`, or a name of a class that ends in `name_of_class`, names the built-in one.
    """

    def read(name: str, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, str):
            if value.strip() == word or value.strip().rpartition(".")[2] == name_of_class:
                return word
            raise ConfigError(f"{name}={value!r}: it is {word!r}, or a circuit breaker of your own")
        if not all(
            callable(getattr(value, hook, None)) for hook in ("configure", "set_circuit_break_manager", "on_send", "on_complete", "close")
        ):
            raise ConfigError(f"{name} must be a PartitionCircuitBreaker, with all of its methods, not {type(value).__name__}")
        return value

    return Kind(f"None, `{word}`, a PartitionCircuitBreaker or its class", read)


def mapping() -> Kind:
    """Return the kind of a mapping from names to values, or None for none."""

    def read(name: str, value: Any) -> Mapping[str, Any] | None:
        if value is None:
            return None
        try:
            given = dict(value)
        except (TypeError, ValueError):
            raise ConfigError(f"{name} must be a mapping, not {type(value).__name__}") from None
        if not all(isinstance(one, str) for one in given):
            raise ConfigError(f"{name}: its names are strings")
        return given

    return Kind("a mapping, or None", read)


def plugins(*methods: str) -> Kind:
    """Return the kind of objects or classes with at least one of these methods each. A config holds a tuple of them."""

    def read(name: str, value: Any) -> tuple[Any, ...]:
        given = () if value in (None, "") else tuple(value) if isinstance(value, (list, tuple)) else (value,)
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


def text(longest: int, *, shortest: int = 0, none: bool = False) -> Kind:
    """Return the kind of a string of `shortest` to `longest` bytes in UTF-8. With `none`, None is accepted too."""

    def read(name: str, value: Any) -> str | None:
        if value is None and none:
            return None
        if not isinstance(value, str):
            raise ConfigError(f"{name} must be a string, not {type(value).__name__}")
        if utf8_size(name, value, longest, ConfigError) < shortest:
            raise ConfigError(f"{name} is empty: give it a name" + (", or leave it out" if none else ""))
        return value

    return Kind(f"text, at most {longest} bytes" + (", or None" if none else ""), read)


def utf8_size(name: str, text: str, longest: int, error_class: type[UsageError]) -> int:
    """Return the number of bytes of a text in UTF-8.

    Raises:
        UsageError: UTF-8 has not all of its characters, or they are more than `longest` bytes; the error is an `error_class`.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise error_class(f"{name} has characters that UTF-8 does not") from None
    if size > longest:
        raise error_class(f"{name} takes {size} bytes: it is at most {longest}")
    return size


def _flag(name: str, value: Any) -> bool:
    flag = _FLAGS.get(str(value).strip().lower()) if isinstance(value, (bool, str)) or is_numpy_bool(value) else None
    if flag is None:
        raise ConfigError(f"{name}={value!r}: it is true or false")
    return flag


def _acks(name: str, value: Any) -> Acks:
    # The default of aiokafka's `acks` is a bare object(), which means "not given".
    if type(value) is object:
        return Acks.ALL
    number = exact_int(value)
    acks = _ACKS.get(str(value if number is None else number).strip().lower())
    if acks is None:
        raise ConfigError(f"{name}={value!r}: it is 'all', 1 or 0")
    return acks


def _compression(name: str, value: Any) -> Compression:
    if isinstance(value, Compression):
        return value
    try:
        return Compression[str(value).strip().upper()] if value is not None else Compression.NONE
    except KeyError:
        raise ConfigError(f"{name}={value!r}: it is one of {COMPRESSION.values}") from None


def _addresses(name: str, value: Any) -> tuple[str, ...]:
    found = read_addresses(name, value)
    if found.is_repeated:
        _log.warning("%s has an address twice: it is used once", name)
    return found.addresses


def _maybe_flag(name: str, value: Any) -> bool | None:
    return None if value is None else _flag(name, value)


FLAG: Final = Kind("true or false", _flag)
MAYBE_FLAG: Final = Kind("true, false or None", _maybe_flag)
ACKS: Final = Kind("all, 1 or 0", _acks)
COMPRESSION: Final = Kind(", ".join(codec.name.lower() for codec in Compression), _compression)
ADDRESSES: Final = Kind("host:port (9092 where no port is given), separated by commas, semicolons or blanks, or a sequence", _addresses)


# Kinds of values that the options of security share: texts, paths and secrets.


def plain_text(name: str, value: Any) -> str:
    """Return a text that is no reference."""
    if isinstance(value, Secret):
        raise ConfigError(f"{name} has a private key, which is a secret: give it as ssl_keystore_key, or in a file")
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string, not {type_name(value)}")
    if not value.strip():
        raise ConfigError(f"{name} is empty: leave it out")
    if is_reference(value):
        raise ConfigError(f"{name}={value.strip()}: references are read in secret options and sasl_username alone. Give the value itself")
    return value


def read_text(name: str, value: Any) -> str | None:
    """Return a text that is no reference, or None."""
    return None if value is None else plain_text(name, value)


def _path(name: str, value: Any) -> str | None:
    return read_text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def read_secret(name: str, value: Any) -> Secret | None:
    """Return the secret. The caller has hidden its text already."""
    if value is None:
        return None
    if not isinstance(value, Secret):
        raise ConfigError(f"{name} must be a string, not {type_name(value)}")
    if not value.is_encodable:
        raise ConfigError(f"{name} has characters that UTF-8 does not")
    if value.is_mixed:
        raise ConfigError(f"{name} has a reference within other text: a reference is the whole value")
    return value


def _token(name: str, value: Any) -> Secret | NotText | None:
    """Return the source of tokens: a secret, or a function or an object, hidden as it may have a secret. The caller has hidden it already."""
    if not isinstance(value, NotText):
        return read_secret(name, value)
    given = value.reveal()
    if not callable(getattr(given, "token", given)) or isinstance(given, type):
        raise ConfigError(f"{name} must be a string, a function, or an object with token(), not {value.type_name}")
    return value


def type_name(value: object) -> str:
    """Return the name of the type of a value, also of a hidden one."""
    return value.type_name if isinstance(value, NotText) else type(value).__name__


def is_secret(kind: Kind) -> bool:
    """Return whether values of a kind are hidden."""
    return kind.read in {read_secret, _token}


TEXT: Final = Kind("a text, or None", read_text)
PATH: Final = Kind("a path, or None", _path)
SECRET: Final = Kind("a secret or a reference to one, or None", read_secret)
TOKEN: Final = Kind("a token or a reference to one, a function, an object with token(), or None", _token)


# Makes the classes whose fields are options: frozen dataclasses, without the methods that `dataclasses` compiles for each frozen class.
#
# Two methods that name the fields take three quarters of the time that such a class takes. `Frozen` has them for all. For type checkers,
# `option_class` is `dataclasses.dataclass`. A constructor takes `**options`; `OptionsSignature` tells which.


if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as option_class
else:

    def option_class(*, frozen: bool, **arguments: bool) -> Callable[[type], type]:
        """Return a decorator that makes a dataclass of a subclass of `Frozen`, which is frozen by that."""
        assert frozen
        return dataclasses.dataclass(**arguments)


class Frozen:
    """Refuses to change its fields. `object.__setattr__` sets them, in a constructor."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, _value: object) -> Never:
            """Raise FrozenInstanceError."""
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

        def __delattr__(self, name: str) -> Never:
            """Raise FrozenInstanceError."""
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return the attributes of a plain subclass, and the fields with the subclass's slots, for copies and pickles."""
        state: Any = super().__getstate__()
        return state if isinstance(state, tuple) else (state, None)

    def __setstate__(self, state: tuple[dict[str, Any] | None, dict[str, Any] | None]) -> None:
        """Set the attributes, and the fields."""
        for values in state:
            for name, value in (values or {}).items():
                object.__setattr__(self, name, value)


class OptionsSignature:
    """Computes `__signature__` when it is asked for, of a constructor that takes `**options: Unpack[SomeTypedDict]`.

    `inspect.signature` and `help` show each option with its default. The type is the one that the constructor takes, of which a field may
    hold a converted value.
    """

    def __init__(self, init: Callable[..., None]) -> None:
        self._init = init

    def __get__(self, _instance: object, owner: type) -> inspect.Signature:
        """Return the signature of `owner`, which has the constructor.

        Raises:
            AttributeError: `owner` derives from a class with this signature, and has a constructor of its own.
        """
        if owner.__init__ is not self._init:  # type: ignore[misc]
            raise AttributeError("__signature__")
        (options,) = get_args(get_type_hints(self._init)["options"])
        defaults = {field.name: field.default for field in dataclasses.fields(owner)}
        return inspect.Signature(
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind)
                for name, kind in get_type_hints(options).items()
            ],
            return_annotation=None,
        )


class Underivable:
    """Holds the parameters of a dataclass, and refuses to derive another dataclass from it.

    `dataclasses` asks each base whether it is frozen. The constructor that it would compile for a derived class holds every option as a
    local variable, secrets among them, and the methods that return a changed config would lose the fields that it adds.
    """

    def __init__(self, config: type) -> None:
        self._name = config.__name__
        self._parameters = config.__dataclass_params__  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        """Return any other parameter."""
        return getattr(self._parameters, name)

    @property
    def frozen(self) -> bool:
        """Raise TypeError."""
        raise TypeError(
            f"a dataclass cannot be derived from {self._name}: derive a plain class with a `__post_init__`, make a changed config by "
            "`replace`, or have a class with a config as one of its fields"
        )
