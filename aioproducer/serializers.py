"""Holds serializers, which make bytes of keys and values."""

from __future__ import annotations

import inspect
import traceback
from typing import TYPE_CHECKING, Any

from aioproducer.errors import ConfigError, SerializationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.interfaces import Serializer
    from aioproducer.model import Headers

__all__ = ["adapt", "json_serializer", "serialize", "string_serializer"]


def string_serializer(value: str) -> bytes:
    """Return the UTF-8 of a string (Kafka's `StringSerializer`)."""
    return value.encode()


def json_serializer(value: object) -> bytes:
    """Return compact UTF-8 JSON of a value. It refuses NaN and infinities, because no JSON reader accepts them."""
    # Imported where it is used, as most producers serialize by other means.
    import json  # noqa: PLC0415

    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def adapt(function: Callable[..., bytes] | None) -> Serializer | None:
    """Return a serializer of three arguments (topic, headers, value), from one with three arguments or from a plain `f(value)`."""
    if function is None:
        return None
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"a serializer is a plain function; {function!r} is a coroutine function. Await before `send`.")
    try:
        inspect.signature(function).bind(b"value")
    except TypeError:
        return function
    # A builtin without a signature.
    except ValueError:
        pass
    return lambda _topic, _headers, value: function(value)


def serialize(what: str, serializer: Serializer | None, topic: str, headers: Headers, value: Any) -> bytes | None:
    """Return the bytes of a key or value. None stays None: it is a null key or a tombstone.

    Raises:
        SerializationError: no serializer and not bytes, or a serializer that raised or returned no bytes. The text never has the value.
    """
    if value is None or type(value) is bytes:
        if serializer is None or value is None:
            return value
    elif serializer is None:
        if isinstance(value, (bytes, bytearray, memoryview)):
            # A subclass might return bytes of its own kind, with a length of their own.
            return bytes(memoryview(value))
        raise SerializationError(
            f"{what} for {topic!r} is {type(value).__name__}, not bytes: encode it, or give the producer a {what}_serializer"
        )
    try:
        encoded = serializer(topic, headers, value)
    except Exception as error:
        told = f"{what}_serializer raised {type(error).__name__}{_place(error)} on a {type(value).__name__} for {topic!r}"
        raise SerializationError(told) from error
    if isinstance(encoded, (bytes, bytearray, memoryview)):
        return bytes(memoryview(encoded))
    advice = ""
    if inspect.iscoroutine(encoded):
        encoded.close()
        advice = ": await in your code, before `send`"
    raise SerializationError(f"{what}_serializer gave {type(encoded).__name__} for {topic!r}, not bytes{advice}")


def _place(error: Exception) -> str:
    """Return the place where a serializer raised. The error's own text is left out: it may have the value. It is in `__cause__`."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" in {frames[-1].name} ({frames[-1].filename}:{frames[-1].lineno})" if frames[-1].filename != __file__ else ""
