"""The fast path of a producer with interceptors or a partitioner of its own, on both builds.

The user's functions are called before the record is appended, in the order of the slow path: interceptors, serializers, partitioner. A record
that they have made, and that cannot be appended at once, goes along to the slow path, which calls none of them again for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer import partitioners
from aioproducer.engine.append.fast_path import Begun
from aioproducer.engine.chosen_build import SLICE_RECORDS, FastPath, here
from aioproducer.model import ProducerRecord
from aioproducer.serializers import BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproducer.core.partition_queues import TopicRouting
    from aioproducer.engine.append.interceptors import ProducerInterceptors
    from aioproducer.engine.chosen_build import Delivery
    from aioproducer.model import Headers
    from aioproducer.serializers import Encoding

_PLAIN: Final = frozenset({bytes, type(None)})


class HookedFastPath(FastPath):
    """Calls interceptors and the user's partitioner before it appends a record.

    Attributes:
        interception: calls the interceptors; None: there are none.
        choose: the user's partitioner; None: Kafka's own.
        longest: bytes of a key and value for which the partitioner is called here; the slow path refuses no record for so many.
    """

    __slots__ = ("choose", "interception", "longest")

    def __init__(self, tick: Callable[[], int], slowly: Callable[..., Awaitable[Delivery]]) -> None:
        super().__init__(tick, slowly)
        self.interception: ProducerInterceptors | None = None
        self.choose: partitioners.Choose | None = None
        self.longest: int = 0

    def append(
        self, topic: str, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any
    ) -> Delivery | None:
        """Append a record as `append_encoded` does, encoded as the options say."""
        return self.append_encoded(topic, value, key, partition, timestamp_ms, headers, None)

    def append_encoded(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        encoding: Encoding | None,
    ) -> Delivery | None:
        """Call the user's functions for a record, and append it. Returns its delivery, or None: the record takes the slow path.

        Raises:
            UsageError: a serializer or the partitioner failed.
            ProducerClosed: the producer has stopped.
        """
        try:
            if topic not in self.fast or here() != self.here:
                return None
        except (TypeError, RuntimeError):
            return None
        if not self.turn_ms:
            # It raises where no record may be sent, before any function of the user's is called.
            self.tick()
        if self.interception is None:
            return self._append_chosen(
                topic, value, key, partition, timestamp_ms, headers, encoding
            )
        append = super().append_encoded if self.choose is None else self._append_chosen
        return self.interception.append(
            append, ProducerRecord(topic, value, key, partition, timestamp_ms, headers), encoding
        )

    def _append_chosen(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        encoding: Encoding | None,
    ) -> Delivery | None:
        """Encode a record, ask the partitioner for its partition, and append it."""
        if self.choose is None or partition is not None:
            return FastPath.append_encoded(
                self, topic, value, key, partition, timestamp_ms, headers, encoding
            )
        encoding = self._prepared(topic, encoding)
        # The slow path checks headers and a time before it calls the partitioner.
        if timestamp_ms is not None or headers or encoding is None:
            return None
        given = topic, value, key
        changed: Headers = ()
        if encoding is not BYTES:
            value, key, changed = encoding.encode(topic, value, key, (), self.watch.call)
        delivery, chosen = (
            (None, None) if changed else self._append_to_chosen(self.choose, topic, value, key)
        )
        if delivery is None and (chosen is not None or encoding is not BYTES):
            self.begun = Begun(given, value, key, changed, chosen)
        return delivery

    def _prepared(self, topic: str, encoding: Encoding | None) -> Encoding | None:
        """Return how a record becomes bytes; None: its serializers are not prepared, or the slow path checks its topic."""
        if type(topic) is not str:
            return None
        if encoding is None:
            encoding = BYTES if self.encodings is None else self.encodings.get(topic)
        return encoding if encoding is not None and encoding.is_current() else None

    def _append_to_chosen(
        self, choose: partitioners.Choose, topic: str, value: Any, key: Any
    ) -> tuple[Delivery | None, tuple[TopicRouting, int] | None]:
        """Append a record of bytes to the partition that the partitioner chooses.

        Returns its delivery, None if it was not appended; and the choice, with the routing that it was made for, None if there is none yet.
        """
        # A serializer may have sent, too.
        routing: TopicRouting | None = self.fast.get(topic)
        if routing is None or not self._may_choose(value, key):
            return None, None
        number = partitioners.choose(
            choose, topic, key, value, len(routing.queues), routing.available
        )
        chosen, queue = (routing, number), routing.queues[number]
        # The partitioner may have sent, too.
        if self.fast.get(topic) is not routing:
            return None, chosen
        now_ms = self.turn_ms or self.tick()
        self.taken += 1
        delivery = queue.open.append(now_ms, key, value)
        if delivery is None:
            delivery = self.make_room(None, queue, key, value)
        return delivery, chosen

    def _may_choose(self, value: Any, key: Any) -> bool:
        """Return whether the slow path would call the partitioner for such a record now."""
        is_plain = (
            type(value) in _PLAIN
            and type(key) in _PLAIN
            and len(value or b"") + len(key or b"") <= self.longest
        )
        return is_plain and (self.taken < SLICE_RECORDS or self.goes_on())
