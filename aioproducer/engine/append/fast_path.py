"""The fast path of `send` in plain Python: one dict lookup leads to the batch that a record is appended to.

The compiled twin is `_fast_path.pyx`; one contract suite runs both.
"""

from __future__ import annotations

import sys
from asyncio import get_running_loop
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Literal

from aioproducer.interfaces import USER_FAILURES
from aioproducer.serializers import BYTES, OF_VALUE, failure, finish

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproducer.core.topic_routing import TopicRouting
    from aioproducer.engine.delivery.delivery import Delivery
    from aioproducer.engine.observability.diagnostics import SlowCallbacks
    from aioproducer.serializers import Encoding

# Identifies the running loop in less than 30 ns. CPython 3.11's get_running_loop asks the kernel for the process each time (250 ns).
# There the thread identifies the loop instead, and `tick` looks at the loop itself, once an event-loop iteration.
here: Final[Callable[[], object]] = get_running_loop if sys.version_info >= (3, 12) else get_ident
# Bytes that sends append in one event-loop iteration before the next send waits: a millisecond of appending, or two.
SLICE_BYTES: Final = 98_304
# Records that one task sends before it waits for the event loop, regardless of their bytes.
SLICE_RECORDS: Final = 512
# What stands for the bytes of a record until its serializer was called, and until it has returned.
_NOT_CALLED: Final = object()
_NOT_RETURNED: Final = object()


class Encoded(tuple[Any, ...]):
    """Holds the value, key and headers of a record that the fast path has encoded and leaves to the slow path: a serializer is called once.

    It is false, as None is: the record is not appended.
    """

    __slots__ = ()

    def __bool__(self) -> Literal[False]:
        return False


class FastPath:
    """Holds the state by which `send` appends a record at once, if the fast path is open.

    Attributes:
        fast: topic routings by topic while no send waits before a new one, else empty. One assignment closes every topic.
        here: the value of `here()` where the producer runs; None: it does not run, and every send takes the slow path.
        turn_ms: the time of this event-loop iteration, 0 before its first send.
        taken: records that this iteration appended one by one; beyond `SLICE_RECORDS`, `goes_on` decides.
        goes_on: returns whether this iteration may append another record; asked again some records later. False: the slow path waits.
        tick: called by the first send of an iteration: returns its time, and schedules a drain at its end.
        takes_headers: records may have headers; the compiled twin takes these on the fast path.
        make_room: appends a plain record that did not fit, and returns its delivery; None: the record takes the slow path.
            Without a routing as its first argument, it goes to the partition that did not take it.
        encodings: how keys and values become bytes by the options, by topic; None: they are bytes.
        watch: times the serializers; `clock` and `slow_after` are its own, where they are read for each record.
        slowly: called for every send that is not fast, with the arguments of `append_encoded` and what that returned.
        now: called like `slowly`, for sends that must not wait.
    """

    __slots__ = (
        "_watch",
        "clock",
        "encodings",
        "fast",
        "goes_on",
        "here",
        "make_room",
        "now",
        "slow_after",
        "slowly",
        "taken",
        "takes_headers",
        "tick",
        "turn_ms",
    )

    def __init__(self, tick: Callable[[], int], slowly: Callable[..., Awaitable[Delivery]]) -> None:
        self.fast: dict[str, TopicRouting] = {}
        self.here: object = None
        self.turn_ms: int = 0
        self.taken: int = 0
        self.takes_headers: bool = True
        self.tick: Callable[[], int] = tick
        self.goes_on: Callable[[], bool] = lambda: True
        self.make_room: Callable[[Any, Any, bytes | None, bytes | None], Delivery | None] = (
            lambda _routing, _queue, _key, _value: None
        )
        self.encodings: dict[str, Encoding] | None = None
        self._watch: SlowCallbacks
        self.clock: Callable[[], float]
        self.slow_after: float
        self.slowly: Callable[..., Awaitable[Delivery]] = slowly
        self.now: Callable[..., Delivery]

    @property
    def watch(self) -> SlowCallbacks:
        """Return what times the serializers."""
        return self._watch

    @watch.setter
    def watch(self, watch: SlowCallbacks) -> None:
        self._watch = watch
        self.clock, self.slow_after = watch.clock, watch.slow_after

    def append(
        self, topic: str, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any
    ) -> Delivery | Encoded | None:
        """Append a record of bytes to its partition's open batch. Returns its delivery, or None: the record takes the slow path.

        The slow path raises the error of a record that is not valid.
        """
        try:
            # Of a producer with interceptors or a partitioner, this fast path is never `here`: no exception comes of its empty table.
            if partition is not None or timestamp_ms is not None or headers or here() != self.here:
                return None
            routing = self.fast[topic]
            queue = (
                routing.sticky
                if key is None
                else routing.by_key.get(key) or routing.by_key.place(key)
            )
            now_ms = self.turn_ms or self.tick()
            self.taken = taken = self.taken + 1
            delivery: Delivery | None = (
                queue.open.append(now_ms, key, value)  # type: ignore[union-attr]
                if taken <= SLICE_RECORDS
                else None
            )
            if delivery is None:
                delivery = self._append_further(routing, queue, key, value)
        # AttributeError: no partition is sticky yet. RuntimeError: no loop runs in this thread (Python 3.12). ValueError: a key is a
        # memoryview that was released.
        except (KeyError, TypeError, AttributeError, RuntimeError, ValueError):
            return None
        return delivery

    def _append_further(
        self, routing: Any, queue: Any, key: bytes | None, value: bytes | None
    ) -> Delivery | None:
        """Append a record beyond `SLICE_RECORDS`, or one that the open batch did not take, if this iteration goes on and there is room."""
        if self.taken > SLICE_RECORDS and self.goes_on():
            delivery: Delivery | None = queue.open.append(self.turn_ms, key, value)
            if delivery is not None:
                return delivery
        return self.make_room(routing, queue, key, value)

    def append_encoded(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        encoding: Encoding | None,
    ) -> Delivery | Encoded | None:
        """Encode a record and append it, as `append` does. Returns its delivery, or what the slow path takes: None, or what was encoded.

        `encoding`: how its key and value become bytes; None: as `encodings` has it.

        Raises:
            SerializationError: a serializer failed.
        """
        # The topic is looked up after the serializer was called, which may have sent, too.
        if not self.fast:
            return None
        encoded: Any = _NOT_CALLED
        began = 0.0
        try:
            if (
                encoding is not None
                and isinstance(value, encoding.simple_kind)
                and value is not None
                and partition is None
                and timestamp_ms is None
                and not headers
                and (key is None or type(key) is bytes)
                and here() == self.here
            ):
                # The serializer is called and the record appended here, as a call of another method would cost a twentieth of the send.
                encode, clock = encoding.simple, self.clock
                began = clock()
                encoded = _NOT_RETURNED
                encoded = encode(value)
                if clock() - began > self.slow_after:
                    self._watch.note("value_serializer", clock() - began)
                routing = self.fast[topic]
                queue = routing.sticky if key is None else routing.by_key[key]
                now_ms = self.turn_ms or self.tick()
                taken = self.taken
                # The batch does not take what is not bytes.
                delivery: Delivery | None = (
                    queue.open.append(now_ms, key, encoded)  # type: ignore[union-attr]
                    if taken < SLICE_RECORDS
                    else None
                )
                if delivery is not None:
                    self.taken = taken + 1
                    return delivery
        except USER_FAILURES as error:  # raised again there
            self._raise_if_failed(error, topic, value, encoded, began)
        return self._append_rest(
            topic, value, key, partition, timestamp_ms, headers, encoding, encoded
        )

    def _raise_if_failed(
        self, error: BaseException, topic: str, value: Any, encoded: Any, began: float
    ) -> None:
        """Raise SerializationError if the serializer raised `error`, and `error` unless it only means that the record was not appended."""
        if encoded is _NOT_RETURNED:
            self._watch.note("value_serializer", self.clock() - began)
            raise failure("value", topic, value, error) from error
        # RuntimeError: no loop runs in this thread (Python 3.12).
        if not isinstance(
            error,
            (TypeError, RuntimeError) if encoded is _NOT_CALLED else (KeyError, AttributeError),
        ):
            raise error

    def _append_rest(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        encoding: Encoding | None,
        encoded: Any,
    ) -> Delivery | Encoded | None:
        """Append a record of bytes, one that an open batch did not take, or one that needs more than one plain function."""
        if encoding is BYTES or (encoding is None and self.encodings is None):
            return FastPath.append(self, topic, value, key, partition, timestamp_ms, headers)
        if encoded is _NOT_CALLED:
            return self._append_any(topic, value, key, partition, timestamp_ms, headers, encoding)
        return self._append_again(topic, key, encoded)

    def _append_again(self, topic: str, key: Any, encoded: Any) -> Delivery | Encoded:
        """Append a record that was encoded and that its open batch did not take, where there is room."""
        if type(encoded) is not bytes:
            encoded = finish("value", OF_VALUE, topic, (), encoded)[0]
        delivery = FastPath.append(self, topic, encoded, key, None, None, ())
        return Encoded((encoded, key, ())) if delivery is None else delivery

    def _append_any(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        encoding: Encoding | None,
    ) -> Delivery | Encoded | None:
        """Encode any record and append it, if its encoders are prepared."""
        try:
            # Asked before a serializer is called, and again after it, which may have sent, too.
            if (
                partition is not None
                or timestamp_ms is not None
                or headers
                or topic not in self.fast
                or here() != self.here
            ):
                return None
        except (TypeError, RuntimeError):
            return None
        if encoding is None:
            assert self.encodings is not None
            encoding = self.encodings.get(topic)
        if encoding is None or not encoding.is_current():
            return None
        encoded, encoded_key, changed = encoding.encode(
            topic, value, key, () if headers is None else headers, self._watch.call
        )
        delivery = (
            None if changed else FastPath.append(self, topic, encoded, encoded_key, None, None, ())
        )
        return Encoded((encoded, encoded_key, changed)) if delivery is None else delivery


class EncodingFastPath(FastPath):
    """Is the fast path of a producer whose options have serializers."""

    __slots__ = ()

    def append(
        self, topic: str, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any
    ) -> Delivery | Encoded | None:
        """Encode a record as the options say and append it, as `FastPath.append_encoded` does."""
        try:
            encoding = self.encodings[topic]  # type: ignore[index]
        # TypeError: no topic has that hash, or the producer has not started. KeyError: the slow path makes the encoding.
        except (KeyError, TypeError):
            return None
        return self.append_encoded(topic, value, key, partition, timestamp_ms, headers, encoding)
