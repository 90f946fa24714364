"""Tells what the producer does: events, the history of a batch, why something waits, and which of the user's functions is slow.

1. Each change of state is one structured log record of `aioproducer.events`, and is counted. There is no event for a Kafka record, and none
   contains keys, values or header values. A log record has the name of the event as `event` and its values as `facts`, for handlers that
   write JSON. Its text says the same to people.
2. A batch keeps two entries for each attempt: its broker and its answer. The texts about them are made only when `explain` asks for them,
   or when a batch fails. They contain no keys, values or headers.
3. While a serializer, a partitioner or a callback blocks, no request is sent, no answer is read, and no other task runs. `SlowCallbacks`
   warns about that, without the arguments of the function.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.drain_policy import Linger
from aioproducer.core.producer_batch import State
from aioproducer.core.sequence_numbers import NO_IDENTITY, WINDOW
from aioproducer.model import counted

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterator, Sequence

    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.metrics.registry import Metrics
    from aioproducer.net.cluster import BrokerNode, Cluster

_events = logging.getLogger("aioproducer.events")
_log = logging.getLogger("aioproducer")


_DEBUG: Final = logging.DEBUG
_INFO: Final = logging.INFO
_WARNING: Final = logging.WARNING

# The level and the text of each event.
EVENTS: Final = {
    "producer-started": (_INFO, "the producer runs"),
    "producer-stopped": (
        _INFO,
        "the producer has stopped; batches that had not ended: {unfinished}",
    ),
    "producer-failed": (_INFO, "the producer failed: {cause}"),
    "broker-connected": (_DEBUG, "broker {node_id} at {where}: a {lane} connection stands"),
    "broker-lost": (_DEBUG, "broker {node_id} at {where}: the {lane} connection is gone: {cause}"),
    "broker-unreachable": (_WARNING, "broker {node_id} at {where} cannot be reached: {cause}"),
    "broker-authenticated": (
        _DEBUG,
        "broker {node_id} at {where}: the {lane} connection is authenticated; its session lasts {seconds:g} s (0: it does not end)",
    ),
    "authentication-failed": (
        _INFO,
        "broker {node_id} at {where}: the {lane} connection could not be authenticated: {cause}",
    ),
    "session-renewed": (
        _DEBUG,
        "broker {node_id} at {where}: the session of the {lane} connection goes on for {seconds:g} s",
    ),
    "session-not-renewed": (
        _INFO,
        "broker {node_id} at {where}: the session of the {lane} connection was not renewed: {cause}",
    ),
    "broker-throttles": (
        _DEBUG,
        "broker {node_id} at {where} wants to be left alone for {milliseconds} ms",
    ),
    "broker-late": (
        _INFO,
        "broker {node_id} took nothing for {seconds:g} s: records without a key avoid it",
    ),
    "broker-in-time": (_INFO, "broker {node_id} is avoided no more"),
    "cluster-forgotten": (
        _INFO,
        "no known broker answers: the producer starts over at bootstrap_servers",
    ),
    "producer-id-granted": (_DEBUG, "the producer id is {producer_id}, epoch {epoch}"),
    "topic-forgotten": (
        _DEBUG,
        "topic {topic} was not produced to for {seconds:g} s: it is forgotten",
    ),
    "certificate-expires": (_WARNING, "the certificate of {what} ends in {days:.1f} days"),
    "token-fetched": (_DEBUG, "{source} gave a token, which lives for {seconds:.0f} s"),
    "token-unavailable": (_WARNING, "no token, at attempt {failures} in a row: {cause}"),
    "breaker-opened": (_WARNING, "{what} fails: its circuit breaker is open for {seconds:g} s"),
    "breaker-probing": (_INFO, "{what}: a batch is sent to see whether it works again"),
    "breaker-closed": (_INFO, "{what} works again: its circuit breaker is closed"),
}


class Events:
    """Logs and counts the events of one producer.

    Args:
        client_id: of the producer; a fact of each event.
    """

    def __init__(self, client_id: str, metrics: Metrics) -> None:
        self._client_id = client_id
        self._metrics = metrics

    def tell(self, event: str, **facts: object) -> None:
        """Log and count an event; `facts` are the values that its text names."""
        level, text = EVENTS[event]
        self._metrics.count("events-total", event)
        if _events.isEnabledFor(level):
            told = text.format(**facts)
            _events.log(
                level,
                "%s: %s",
                self._client_id,
                told,
                extra={"event": event, "facts": {"client_id": self._client_id, **facts}},
            )


# Entries of a long history that the text contains, at its beginning and at its end.
_FIRST: Final = 6
_LAST: Final = 14
# Batches that the text of a backlog contains.
_MOST: Final = 20


def story(batch: ProducerBatch, now: float, lifetime: float, end: str) -> tuple[str, ...]:
    """Return the history of a batch, one text for each change of its state, with seconds since it was opened."""
    born = batch.expires_at - lifetime
    lines = [
        f"{batch.queue.topic}-{batch.queue.partition}, a batch of {counted(batch.count, 'record')}:",
        _line(0.0, "queued"),
    ]
    history = batch.history
    told = [
        _line(
            when - born,
            f"sent to {what}" if isinstance(what, str) else f"{type(what).__name__}: {what}",
        )
        for when, what in history
    ]
    if len(told) > _FIRST + _LAST:
        told[_FIRST:-_LAST] = [
            f"           ... {counted(len(told) - _FIRST - _LAST, 'line')} more ..."
        ]
    return (*lines, *told, _line(now - born, end))


def _line(seconds: float, what: str) -> str:
    return f"  {seconds:+8.3f} s {what}"


def waits_for(batch: ProducerBatch, cluster: Cluster, partition_queues: PartitionQueues) -> str:
    """Return the reason why a batch that has not ended waits now."""
    queue = batch.queue
    numbers = queue.numbers
    node = cluster.node(queue.leader)
    where = node.where if node is not None else "its broker"
    trouble = partition_queues.idempotence.trouble
    why = f" ({trouble})" if trouble is not None else ""
    reasons = (
        (batch.on_wire, f"the answer of {where}"),
        (batch.state is State.ENCODING, "its compression"),
        (node is None, "a leader of its partition"),
        (queue.is_muted, "its partition's circuit breaker, which leaves it alone for a while"),
        (queue.retry_at, "the end of a pause after a failure (retry_backoff_ms)"),
        (
            queue.in_flight and queue.one_at_a_time,
            "the batch before it: after a failure one goes at a time",
        ),
        (queue.is_held, f"its transaction's coordinator, which is to learn of the partition{why}"),
        (partition_queues.idempotence.granted == NO_IDENTITY, f"a producer id{why}"),
        (
            numbers is not None and (numbers.lost >= 0 or numbers.gap >= 0),
            "the batches before it: then its partition begins a new epoch",
        ),
        (
            numbers is not None and len(numbers.outstanding) >= WINDOW,
            f"one of the {WINDOW} batches before it: brokers remember no more",
        ),
        *(_of_node(node) if node is not None else ()),
        (
            batch.state is State.OPEN
            and partition_queues.policy.linger is Linger.LOAD
            and queue.in_flight,
            "more records, or the end of what its partition has in flight (linger_ms='auto')",
        ),
        (
            batch.state is State.OPEN,
            "more records (linger_ms), the next turn of the loop, or one of many requests on their way",
        ),
    )
    full = f"an answer of {where}: it has as many requests as max_in_flight_requests_per_connection allows, or does not read"
    return next((reason for applies, reason in reasons if applies), full)


def _of_node(node: BrokerNode) -> tuple[tuple[bool, str], ...]:
    trouble = f" ({node.last_error})" if node.last_error is not None else ""
    return (
        (node.is_muted, f"{node.where}, which throttles"),
        (
            node.produce.is_renewing,
            f"{node.where}, which renews the session of the connection (KIP-368)",
        ),
        (node.produce.connection is None, f"a connection to {node.where}{trouble}"),
    )


def backlog(
    partition_queues: PartitionQueues, cluster: Cluster, now: float, lifetime: float
) -> Iterator[str]:
    """Yield one text for each of the oldest batches, with the reason why it waits."""
    remaining = iter(partition_queues.incomplete)
    for batch in islice(remaining, _MOST):
        age = now - (batch.expires_at - lifetime)
        records = counted(batch.open.count if batch.open is not None else batch.count, "record")
        sent = f", sent {counted(batch.attempts, 'time')}" if batch.attempts else ""
        error = (
            f", last {type(batch.error).__name__}: {batch.error}" if batch.error is not None else ""
        )
        waits = waits_for(batch, cluster, partition_queues)
        yield f"  {batch.queue.topic}-{batch.queue.partition}: {records}, {age:.3f} s old{sent}{error}; waits for {waits}"
    if more := sum(1 for _ in remaining):
        yield f"  and {counted(more, 'batch')} more"


# Seconds after which a call is slow.
LONG: Final = 0.5
# Seconds between two warnings about one kind of function.
_WARN_EVERY: Final = 10.0
# Names of functions in a warning.
_MOST_NAMES: Final = 3
# Where `time` of the loops in real time is defined. A loop with a virtual clock has a method of its own.
_REAL_TIME: Final = frozenset({"asyncio.base_events", "uvloop.loop"})


class SlowCallbacks:
    """Times functions, and logs a warning about a slow call.

    Attributes:
        is_real: the clock is asyncio's or uvloop's, which show real time; False: it is another one, such as a simulation's.
        clock: the same time, as cheaply as there is a clock for it.
        slow_after: as given.
    """

    __slots__ = ("_told", "clock", "is_real", "slow_after")

    def __init__(self, clock: Callable[[], float], slow_after: float = LONG) -> None:
        self.is_real: bool = (
            getattr(getattr(clock, "__func__", None), "__module__", None) in _REAL_TIME
        )
        self.clock: Callable[[], float] = time.monotonic if self.is_real else clock
        self.slow_after: float = slow_after
        self._told: dict[str, float] = {}

    def over(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with a timer around it; a warning calls it `kind`."""
        clock = self.clock

        def watched(*args: Any) -> Any:
            began = clock()
            try:
                return function(*args)
            finally:
                seconds = clock() - began
                if seconds > self.slow_after:
                    self.note(kind, seconds)

        return watched

    def call(self, kind: str, function: Callable[..., Any], *args: Any) -> Any:
        """Return what the function returns, and log a warning about a slow call."""
        began = self.clock()
        try:
            return function(*args)
        finally:
            self.note(kind, self.clock() - began)

    def note(self, kind: str, seconds: float, functions: Sequence[Callable[..., Any]] = ()) -> None:
        """Log a warning about a call that took so long, if it was slow, and if the last one of its kind is some time ago.

        `functions`: those that were called and that the warning names, some of them if there are many.
        """
        if seconds <= self.slow_after:
            return
        now = self.clock()
        if now - self._told.get(kind, -_WARN_EVERY) < _WARN_EVERY:
            return
        self._told[kind] = now
        _log.warning(
            "%s held the event loop for %.1f s: nothing was sent or answered meanwhile, and no other task ran. "
            "Do what takes long before `send`, or in a thread (asyncio.to_thread).",
            f"{kind} ({_names(functions)})" if functions else kind,
            seconds,
        )


def _names(functions: Sequence[Callable[..., Any]]) -> str:
    named = dict.fromkeys(map(_name, functions))
    return ", ".join(list(named)[:_MOST_NAMES]) + (", ..." if len(named) > _MOST_NAMES else "")


def _name(function: Callable[..., Any]) -> str:
    """Return a name without the function's arguments or values: a `repr` may have those."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__))


# Seconds.
_NOTICE_AFTER: Final = 2.0


@contextmanager
def waiting_notice(loop: AbstractEventLoop, text: Callable[[], str]) -> Iterator[None]:
    """Log `text()` as a warning, once, if the body takes longer than two seconds.

    Without a reachable broker, `start` and `stop` wait for many seconds. After Ctrl-C at a terminal, that would look like a hang.
    """
    timer = loop.call_later(_NOTICE_AFTER, lambda: _log.warning("%s", text()))
    try:
        yield
    finally:
        timer.cancel()
