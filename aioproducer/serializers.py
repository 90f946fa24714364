"""Holds serializers, which make bytes of keys and values, and calls the serializer that the user gives."""

from __future__ import annotations

import inspect
import json
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from aioproducer.errors import ConfigError, SerializationError
from aioproducer.interfaces import USER_FAILURES, is_coroutine_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.interfaces import Encoder, Serializer
    from aioproducer.model import Headers

__all__ = [
    "AS_BYTES",
    "BYTES",
    "OF_RECORD",
    "OF_VALUE",
    "WITH_HEADERS",
    "Encoding",
    "Encodings",
    "Step",
    "adapt",
    "as_bytes",
    "failure",
    "finish",
    "is_two_phase",
    "json_serializer",
    "mistyped",
    "serialize",
    "string_serializer",
]

# What a step's function is called with: (value), (topic, headers, value), or (value, headers) as `Encoder.encode` is.
OF_VALUE: Final = 0
OF_RECORD: Final = 1
WITH_HEADERS: Final = 2


def string_serializer(value: str) -> bytes:
    """Return the UTF-8 of a string (Kafka's `StringSerializer`)."""
    return value.encode()


def json_serializer(value: object) -> bytes:
    """Return compact UTF-8 JSON of a value. It refuses NaN and infinities, because no JSON reader accepts them."""
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


AS_BYTES: Final = Step()


def is_two_phase(given: object) -> bool:
    """Return whether an object is an `interfaces.Serializer`, with a first phase that waits."""
    return not isinstance(given, type) and callable(getattr(given, "prepare", None))


def adapt(
    function: Callable[..., bytes] | Serializer[Any] | None, name: str = "a serializer"
) -> Step:
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
        raise ConfigError(
            f"{name} is a plain function; {function!r} is a coroutine function. Await before `send`."
        )
    try:
        inspect.signature(function).bind(b"value")
    except TypeError:
        return Step(function, OF_RECORD)
    # A builtin without a signature.
    except ValueError:
        pass
    return Step(function)


def serialize(
    what: str, step: Step, topic: str, headers: Headers, value: Any, call: Callable[..., Any]
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
    given = (
        (value,)
        if shape == OF_VALUE
        else (topic, headers, value)
        if shape == OF_RECORD
        else (value, headers)
    )
    try:
        encoded = call(f"{what}_serializer", function, *given)
    except USER_FAILURES as error:
        raise failure(what, topic, value, error) from error
    return (
        (encoded, headers)
        if type(encoded) is bytes
        else finish(what, shape, topic, headers, encoded)
    )


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
        raise SerializationError(
            f"{what} for {topic!r} is a {type(buffer).__name__} that cannot be read: {error}"
        ) from error


def mistyped(what: str, kind: type, topic: str, value: object) -> SerializationError:
    """Return the error of a key or value that is no instance of the class that the topic was given."""
    return SerializationError(
        f"{what} for {topic!r} is {type(value).__name__}, not {kind.__name__}, which `topic({what}=...)` names"
    )


def failure(what: str, topic: str, value: object, error: BaseException) -> SerializationError:
    """Return the error of a serializer that raised."""
    return SerializationError(
        f"{what}_serializer raised {type(error).__name__}{_place(error)} on a {type(value).__name__} for {topic!r}"
    )


def finish(
    what: str, shape: int, topic: str, headers: Headers, encoded: Any
) -> tuple[bytes, Headers]:
    """Return the bytes and headers of what a serializer returned, if that is not bytes.

    Raises:
        SerializationError: it is neither bytes of another type nor, from an `Encoder`, a pair of bytes and headers.
    """
    if shape == WITH_HEADERS and isinstance(encoded, tuple) and len(encoded) == 2:
        encoded, headers = encoded
    if isinstance(encoded, (bytes, bytearray, memoryview)):
        return _copied(what, topic, encoded), headers
    if inspect.iscoroutine(encoded):
        encoded.close()
    advice = (
        ": await in your code, before `send`"
        if inspect.isawaitable(encoded) or inspect.isasyncgen(encoded)
        else ""
    )
    raise SerializationError(
        f"{what}_serializer gave {type(encoded).__name__} for {topic!r}, not bytes{advice}"
    )


def _place(error: BaseException) -> str:
    """Return the place where a serializer raised. The error's own text is left out: it may have the value. It is in `__cause__`."""
    trace: Any = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    # A builtin has no frame of its own: the last one is that of our caller.
    if frame.f_globals.get("__name__", "").startswith(
        ("aioproducer.serializers", "aioproducer.engine.")
    ):
        return ""
    return f" in {frame.f_code.co_name} ({frame.f_code.co_filename}:{trace.tb_lineno})"


# Holds how the keys and values of one topic become bytes: by plain functions, or by encoders that are prepared once for each topic.


class _Nothing:
    """Has no instances."""


class Encoding:
    """Holds the two steps in which the records of one topic are encoded. A two-phase serializer is prepared before the first of them.

    Args:
        topic: the topic.
        key: how its keys become bytes.
        value: how its values do.

    Attributes:
        topic, key, value: as given; preparation replaces the steps of two-phase serializers.
        is_prepared: records can be encoded now.
        is_two_phase: a serializer has to be prepared.
        simple: the function that makes bytes of a value of `simple_kind`. The fast path in plain Python calls it without the checks that
            other steps need.
        simple_kind: the class of the values, None aside, that `simple` encodes by themselves, beside keys of bytes. Where the encoding has
            other steps, nothing is an instance of it.
        fast: what the compiled fast path has made of the steps; None: nothing yet.
    """

    __slots__ = (
        "_encoders",
        "fast",
        "is_prepared",
        "is_two_phase",
        "key",
        "simple",
        "simple_kind",
        "topic",
        "value",
    )

    def __init__(self, topic: str, key: Step, value: Step) -> None:
        self.topic: str = topic
        self.key: Step = key
        self.value: Step = value
        self.fast: Any = None
        self.is_two_phase: bool = key.serializer is not None or value.serializer is not None
        self.is_prepared: bool = not self.is_two_phase
        is_simple = key is AS_BYTES and value.function is not None and value.shape == OF_VALUE
        self.simple: Callable[..., Any] = cast("Callable[..., Any]", value.function)
        self.simple_kind: type = (value.kind or object) if is_simple else _Nothing
        self._encoders: list[Encoder[Any]] = []

    @property
    def is_plain(self) -> bool:
        """Return whether keys and values are bytes, which are sent as they are."""
        return self.key is AS_BYTES and self.value is AS_BYTES

    @property
    def name(self) -> str:
        """Return which serializers are prepared, for texts."""
        parts = [("key", self.key.serializer), ("value", self.value.serializer)]
        return " and ".join(
            f"{what}_serializer {type(given).__name__}"
            for what, given in parts
            if given is not None
        )

    def is_current(self) -> bool:
        """Return whether records can be encoded now: the encoders are prepared, and none of them is stale.

        Raises:
            SerializationError: an encoder's `is_stale` failed.
        """
        if (
            self.is_prepared
            and self.is_two_phase
            and any(map(_is_stale, repeat(self.topic), self._encoders))
        ):
            self.is_prepared, self.fast = False, None
        return self.is_prepared

    def encode(
        self, topic: str, value: Any, key: Any, headers: Headers, call: Callable[..., Any]
    ) -> tuple[bytes | None, bytes | None, Headers]:
        """Return the bytes of value and key, and the headers that the record has now.

        Raises:
            SerializationError: as `serializers.serialize`.
        """
        encoded_key, headers = serialize("key", self.key, topic, headers, key, call)
        encoded_value, headers = serialize("value", self.value, topic, headers, value, call)
        return encoded_value, encoded_key, headers

    async def prepare(self) -> None:
        """Prepare the encoders. Cancellation, or an error: they are as before.

        Raises:
            SerializationError: a serializer raised, or gave no encoder.
        """
        encoders: list[Encoder[Any]] = []
        key, value = [
            await self._prepared(what, step, encoders)
            for what, step in (("key", self.key), ("value", self.value))
        ]
        self.key, self.value, self._encoders = key, value, encoders
        self.is_prepared, self.fast = True, None

    async def _prepared(self, what: str, step: Step, encoders: list[Encoder[Any]]) -> Step:
        if step.serializer is None:
            return step
        try:
            given: Any = step.serializer.prepare(self.topic)
            is_awaitable = inspect.isawaitable(given)
            encoder: Any = await given if is_awaitable else None
        except Exception as error:
            raise SerializationError(
                f"{what}_serializer raised {type(error).__name__}{_place(error)} while it was prepared for {self.topic!r}"
            ) from error
        if not is_awaitable:
            raise SerializationError(
                f"{what}_serializer was prepared for {self.topic!r}, and `prepare` returned {type(given).__name__}, "
                "which cannot be awaited: make it an `async def`"
            )
        function = getattr(encoder, "encode", None)
        if not callable(function):
            raise SerializationError(
                f"{what}_serializer was prepared for {self.topic!r}, and `prepare` returned {type(encoder).__name__}, "
                "which has no `encode`: return the encoder of the topic"
            )
        if is_coroutine_function(function):
            raise SerializationError(
                f"{what}_serializer gave an encoder for {self.topic!r} whose `encode` is a coroutine function: "
                "await in your code, before `send`, what each record needs"
            )
        encoders.append(encoder)
        return step._replace(function=function)

    def __repr__(self) -> str:
        return f"<Encoding for {self.topic!r}{'' if self.is_prepared else ': not prepared'}>"


def _is_stale(topic: str, encoder: Encoder[Any]) -> bool:
    try:
        ask: Callable[[], bool] | None = getattr(encoder, "is_stale", None)
        return ask is not None and bool(ask())
    except USER_FAILURES as error:
        raise SerializationError(
            f"`is_stale` of the encoder {type(encoder).__name__} raised {type(error).__name__}{_place(error)} for {topic!r}"
        ) from error


class Encodings:
    """Makes the encoding of each topic, of the same two serializers.

    Args:
        key: the key's: an option of a producer, or None for bytes.
        value: the value's.

    Attributes:
        by_topic: the encodings that were made.
    """

    __slots__ = ("_key", "_value", "by_topic")

    def __init__(
        self,
        key: Callable[..., bytes] | Serializer[Any] | None,
        value: Callable[..., bytes] | Serializer[Any] | None,
    ) -> None:
        self._key = adapt(key)
        self._value = adapt(value)
        self.by_topic: dict[str, Encoding] = {}

    @property
    def is_plain(self) -> bool:
        """Return whether keys and values are bytes, which are sent as they are."""
        return self._key is AS_BYTES and self._value is AS_BYTES

    def of(self, topic: str) -> Encoding:
        """Return the encoding of a topic: the same one each time."""
        encoding = self.by_topic.get(topic)
        if encoding is None:
            encoding = self.by_topic[topic] = Encoding(topic, self._key, self._value)
        return encoding

    def forget(self, topic: str) -> None:
        """Forget a topic that the producer has forgotten (`metadata_max_idle_ms`). Its serializers are prepared again when it is used."""
        self.by_topic.pop(topic, None)


# Encodes nothing: the encoding of a record with a key and a value that are bytes by now.
BYTES: Final = Encoding("", AS_BYTES, AS_BYTES)
