"""Holds how the keys and values of one topic become bytes: by plain functions, or by encoders that are prepared once for each topic."""

from __future__ import annotations

import inspect
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer.errors import SerializationError
from aioproducer.serializers import AS_BYTES, OF_VALUE, Step, adapt, failure, serialize, stale_failure
from aioproducer.user_functions import USER_FAILURES, is_coroutine_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.interfaces import Encoder, Serializer
    from aioproducer.model import Headers

__all__ = ["BYTES", "Encoding", "Encodings"]


# The value in place of the awaitable of `prepare` until it has returned.
_NOT_RETURNED: Final = object()


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

    __slots__ = ("_encoders", "fast", "is_prepared", "is_two_phase", "key", "simple", "simple_kind", "topic", "value")

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
        return " and ".join(f"{what}_serializer {type(given).__name__}" for what, given in parts if given is not None)

    def is_current(self) -> bool:
        """Return whether records can be encoded now: the encoders are prepared, and none of them is stale.

        Raises:
            SerializationError: an encoder's `is_stale` failed.
        """
        if self.is_prepared and self.is_two_phase and any(map(_is_stale, repeat(self.topic), self._encoders)):
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
        key, value = [await self._prepared(what, step, encoders) for what, step in (("key", self.key), ("value", self.value))]
        self.key, self.value, self._encoders = key, value, encoders
        self.is_prepared, self.fast = True, None

    async def _prepared(self, what: str, step: Step, encoders: list[Encoder[Any]]) -> Step:
        if step.serializer is None:
            return step
        given: Any = _NOT_RETURNED
        try:
            given = step.serializer.prepare(self.topic)
            encoder = await given
        except Exception as error:
            if given is not _NOT_RETURNED and not inspect.isawaitable(given):
                raise SerializationError(
                    f"{what}_serializer was prepared for {self.topic!r}, and `prepare` returned {type(given).__name__}, "
                    "which cannot be awaited: make it an `async def`"
                ) from error
            cause = failure(what, self.topic, None, error)
            told = str(cause).replace(" on a NoneType for ", " while it was prepared for ")
            raise SerializationError(told) from error
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
        raise stale_failure(topic, encoder, error) from error


class Encodings:
    """Makes the encoding of each topic, of the same two serializers.

    Args:
        key: the key's: an option of a producer, or None for bytes.
        value: the value's.

    Attributes:
        by_topic: the encodings that were made.
    """

    __slots__ = ("_key", "_value", "by_topic")

    def __init__(self, key: Callable[..., bytes] | Serializer[Any] | None, value: Callable[..., bytes] | Serializer[Any] | None) -> None:
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
