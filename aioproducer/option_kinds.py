"""Holds the parts of an option: its names, and its kind, which reads values of users and environment files."""

from __future__ import annotations

import logging
import math
from dataclasses import field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from aioproducer.broker_addresses import read_addresses
from aioproducer.errors import ConfigError, UsageError
from aioproducer.model import Acks, Compression
from aioproducer.named_tuples import NamedTuple
from aioproducer.number_conversion import exact_int, is_number, is_numpy_bool
from aioproducer.user_functions import is_coroutine_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "ACKS",
    "ADDRESSES",
    "COMPRESSION",
    "DEFAULT_PREFIX",
    "FLAG",
    "MAYBE_FLAG",
    "AssignedClientId",
    "Kind",
    "Option",
    "Yielding",
    "breaker",
    "client_id",
    "function",
    "mapping",
    "number",
    "option",
    "or_word",
    "plugins",
    "text",
    "utf8_size",
    "whole_number",
    "words",
]

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
