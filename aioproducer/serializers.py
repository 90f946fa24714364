"""Holds serializers, which make bytes of keys and values, and calls the serializer that the user gives."""

from __future__ import annotations

import inspect
import traceback
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import ConfigError, SerializationError
from aioproducer.user_functions import USER_FAILURES, is_coroutine_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.interfaces import Serializer
    from aioproducer.model import Headers

__all__ = [
    "AS_BYTES",
    "OF_RECORD",
    "OF_VALUE",
    "WITH_HEADERS",
    "Step",
    "adapt",
    "as_bytes",
    "failure",
    "finish",
    "is_two_phase",
    "json_serializer",
    "mistyped",
    "serialize",
    "stale_failure",
    "string_serializer",
]

# What a step's function is called with: (value), (topic, headers, value), or (value, headers) as `Encoder.encode` is.
OF_VALUE: Final = 0
OF_RECORD: Final = 1
WITH_HEADERS: Final = 2
# Bytes, or headers beside them, as `Encoder.encode` may return them.
_WITH_HEADERS_LENGTH: Final = 2
# The ends of the files that call the user's serializers. None of their lines is a place where a serializer raised.
_CALLERS: Final = ("aioproducer/serializers.py", "aioproducer/encoding.py", "diagnostics.py", "_fast_path.pyx", "fast_path.py")


def string_serializer(value: str) -> bytes:
    """Return the UTF-8 of a string (Kafka's `StringSerializer`)."""
    return value.encode()


def json_serializer(value: object) -> bytes:
    """Return compact UTF-8 JSON of a value. It refuses NaN and infinities, because no JSON reader accepts them."""
    # Imported where it is used, as most producers serialize by other means.
    import json

    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


class Step(NamedTuple):
    """Holds how the keys, or the values, of records become bytes.

    Attributes:
        function: makes the bytes; None: they are bytes already, or `serializer` is not prepared.
        shape: what the function is called with: `OF_VALUE`, `OF_RECORD` or `WITH_HEADERS`.
        kind: the class of which each key or value must be an instance; None: any.
        serializer: the two-phase serializer that made the function's encoder; None: there is none.
    """

    function: Callable[..., Any] | None = None
    shape: int = OF_VALUE
    kind: type | None = None
    serializer: Serializer[Any] | None = None

    @property
    def is_prepared(self) -> bool:
        """Return whether the step can be taken."""
        return self.function is not None or self.serializer is None


AS_BYTES: Final = Step()


def is_two_phase(given: object) -> bool:
    """Return whether an object is an `interfaces.Serializer`, with a first phase that waits."""
    return not isinstance(given, type) and callable(getattr(given, "prepare", None))


def adapt(function: Callable[..., bytes] | Serializer[Any] | None, name: str = "a serializer") -> Step:
    """Return the step of a `Serializer`, of a function of three arguments (topic, headers, value) or of a plain `f(value)`; None: of bytes.

    `name`: what the caller calls the argument, for texts.

    Raises:
        ConfigError: it is a coroutine function.
    """
    if function is None:
        return AS_BYTES
    if is_two_phase(function):
        return Step(shape=WITH_HEADERS, serializer=function)  # type: ignore[arg-type]
    assert callable(function)
    if is_coroutine_function(function):
        raise ConfigError(f"{name} is a plain function; {function!r} is a coroutine function. Await before `send`.")
    try:
        inspect.signature(function).bind(b"value")
    except TypeError:
        return Step(function, OF_RECORD)
    # A builtin without a signature.
    except ValueError:
        pass
    return Step(function)


def _call(_what: str, function: Callable[..., Any], *given: Any) -> Any:
    return function(*given)


def serialize(
    what: str, step: Step, topic: str, headers: Headers, value: Any, call: Callable[..., Any] = _call
) -> tuple[bytes | None, Headers]:
    """Return the bytes of a key or value, and the headers that the record has now.

    None stays None: it is a null key or a tombstone.

    Args:
        what: "key" or "value".
        step: how it becomes bytes.
        topic: the topic of the record.
        headers: pairs.
        value: the key or value.
        call: calls the serializer's function: `SlowCallbacks.call`.

    Raises:
        SerializationError: no serializer and not bytes, or a serializer that raised or returned no bytes. The text never has the value.
    """
    function, shape, kind, _ = step
    if value is None:
        return None, headers
    if function is None:
        return as_bytes(what, topic, value), headers
    if kind is not None and not isinstance(value, kind):
        raise mistyped(what, kind, topic, value)
    given = (value,) if shape == OF_VALUE else (topic, headers, value) if shape == OF_RECORD else (value, headers)
    try:
        encoded = call(f"{what}_serializer", function, *given)
    except USER_FAILURES as error:
        raise failure(what, topic, value, error) from error
    return (encoded, headers) if type(encoded) is bytes else finish(what, shape, topic, headers, encoded)


def as_bytes(what: str, topic: str, value: Any) -> bytes:
    """Return bytes, or a buffer, as bytes.

    Raises:
        SerializationError: it is neither.
    """
    if type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _copied(what, topic, value)
    raise SerializationError(
        f"{what} for {topic!r} is {type(value).__name__}, not bytes: encode it, or give the producer a {what}_serializer"
    )


def _copied(what: str, topic: str, buffer: Any) -> bytes:
    try:
        # A subclass might return bytes of its own kind, with a length of their own.
        return bytes(memoryview(buffer))
    # A memoryview was released, as that of a `with` block is at its end.
    except ValueError as error:
        raise SerializationError(f"{what} for {topic!r} is a {type(buffer).__name__} that cannot be read: {error}") from error


def mistyped(what: str, kind: type, topic: str, value: object) -> SerializationError:
    """Return the error of a key or value that is no instance of the class that the topic was given."""
    return SerializationError(f"{what} for {topic!r} is {type(value).__name__}, not {kind.__name__}, which `topic({what}=...)` names")


def failure(what: str, topic: str, value: object, error: BaseException) -> SerializationError:
    """Return the error of a serializer that raised."""
    return SerializationError(f"{what}_serializer raised {type(error).__name__}{_place(error)} on a {type(value).__name__} for {topic!r}")


def stale_failure(topic: str, encoder: object, error: BaseException) -> SerializationError:
    """Return the error of an encoder whose `is_stale` raised."""
    return SerializationError(
        f"`is_stale` of the encoder {type(encoder).__name__} raised {type(error).__name__}{_place(error)} for {topic!r}"
    )


def finish(what: str, shape: int, topic: str, headers: Headers, encoded: Any) -> tuple[bytes, Headers]:
    """Return the bytes and headers of what a serializer returned, if that is not bytes.

    Raises:
        SerializationError: it is neither bytes of another type nor, from an `Encoder`, a pair of bytes and headers.
    """
    if shape == WITH_HEADERS and isinstance(encoded, tuple) and len(encoded) == _WITH_HEADERS_LENGTH:
        encoded, headers = encoded
    if isinstance(encoded, (bytes, bytearray, memoryview)):
        return _copied(what, topic, encoded), headers
    if inspect.iscoroutine(encoded):
        encoded.close()
    advice = ": await in your code, before `send`" if inspect.isawaitable(encoded) or inspect.isasyncgen(encoded) else ""
    raise SerializationError(f"{what}_serializer gave {type(encoded).__name__} for {topic!r}, not bytes{advice}")


def _place(error: BaseException) -> str:
    """Return the place where a serializer raised. The error's own text is left out: it may have the value. It is in `__cause__`."""
    frames = traceback.extract_tb(error.__traceback__)
    filename = frames[-1].filename.replace("\\", "/")
    return "" if filename.endswith(_CALLERS) else f" in {frames[-1].name} ({frames[-1].filename}:{frames[-1].lineno})"
