"""The manager of KIP-693: mutes, probes and restores partitions, and calls the user's circuit breaker.

1. The manager calls `on_send` of the breaker before a batch is drained. It calls `on_complete` when an attempt ended, was not answered
   in time, or could not begin because the broker cannot be reached. It makes no call for a record.
2. A muted partition keeps its batches, in order and with their sequence numbers. The first batch in its queue is the probe. If the queue
   is empty, the partition accepts records again until there is a batch.
3. An exception of the breaker or of the hook is logged once for each function, and has no other effect.

The rules are in `core.circuit_breaker`.
"""

from __future__ import annotations

import heapq
import inspect
import logging
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from aioproducer.core.circuit_breaker import FailureRateCircuitBreaker, PartitionCircuit, counts
from aioproducer.engine.tasks.supervisor import DeadlineTimer
from aioproducer.errors import RequestTimedOut, UsageError
from aioproducer.interfaces import USER_FAILURES
from aioproducer.model import CircuitEvent, CircuitState, TopicPartition, counted, exact_int

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from aioproducer.config import ProducerConfig
    from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues
    from aioproducer.core.produce_exchange import PartitionResponse
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.engine.append.admission import Admission
    from aioproducer.engine.append.loop_budget import DrainSchedule
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.observability.diagnostics import SlowCallbacks
    from aioproducer.interfaces import PartitionCircuitBreaker, ProducerStatusContext
    from aioproducer.net.cluster import BrokerNode, Cluster


_log = logging.getLogger(__name__)
_PREFIX: Final = "circuit_breaker_"
# Seconds until the breaker is asked again about a batch that it holds back.
_HELD: Final = 0.1
# Partitions that a broker is looked for among, in one event-loop iteration, to mute or to restore all of them.
_SWEPT: Final = 1024
_TOLD: Final = {
    CircuitState.OPEN: "breaker-opened",
    CircuitState.PROBING: "breaker-probing",
    CircuitState.CLOSED: "breaker-closed",
}


class _ByBroker(Mapping[int, Any]):
    """Reads an attribute of a broker's node at each access. A broker that is not known has `none`."""

    def __init__(self, cluster: Cluster, attribute: str, none: Any) -> None:
        self._cluster = cluster
        self._read = attrgetter(attribute)
        self._none = none

    def __getitem__(self, node_id: int) -> Any:
        node = self._cluster.node(node_id)
        return self._read(node) if node is not None else self._none

    def __iter__(self) -> Iterator[int]:
        return (node.broker.node_id for node in self._cluster.nodes)

    def __len__(self) -> int:
        return len(self._cluster.nodes)


class _ByPartition(Mapping[TopicPartition, int]):
    """Reads an attribute of a partition queue at each access. A partition that is not known has 0."""

    def __init__(self, partition_queues: PartitionQueues, attribute: str) -> None:
        self._partition_queues = partition_queues
        self._attribute = attribute

    def __getitem__(self, partition: TopicPartition) -> int:
        queue = _find(self._partition_queues, partition)
        return getattr(queue, self._attribute) if queue is not None else 0

    def __iter__(self) -> Iterator[TopicPartition]:
        return (
            name_of(queue)
            for routing in self._partition_queues.routings.values()
            for queue in routing.queues
        )

    def __len__(self) -> int:
        return sum(len(routing.queues) for routing in self._partition_queues.routings.values())


class Status(NamedTuple):
    """Holds the producer's status for one call of the circuit breaker: an `interfaces.ProducerStatusContext`."""

    now: float
    partition: TopicPartition
    node_id: int
    records: int
    in_flight_requests: Mapping[int, int]
    in_flight_batches: Mapping[TopicPartition, int]
    queued_bytes: Mapping[TopicPartition, int]
    throttled: Mapping[int, bool]


def name_of(queue: PartitionQueue) -> TopicPartition:
    """Return the topic and partition of a partition queue."""
    return TopicPartition(queue.topic, queue.partition)


def _find(partition_queues: PartitionQueues, partition: TopicPartition) -> PartitionQueue | None:
    topic, number = partition
    routing = partition_queues.routings.get(topic)
    return (
        routing.queues[number]
        if routing is not None and 0 <= number < len(routing.queues)
        else None
    )


def _by_topic(queues: Iterable[PartitionQueue]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for queue in queues:
        found.setdefault(queue.topic, []).append(name_of(queue))
    return found


class ProducerCircuitBreakManager:
    """Holds the circuits of one producer.

    Args:
        watch: times the user's functions.
        drains: schedules a drain, which also serves the pending sends.

    Attributes:
        is_closed: the producer stops: no circuit opens any more.
    """

    def __init__(
        self,
        context: EngineContext,
        partition_queues: PartitionQueues,
        cluster: Cluster,
        admission: Admission,
        watch: SlowCallbacks,
        drains: DrainSchedule,
    ) -> None:
        config, loop = context.config, context.loop
        self._loop = loop
        self._partition_queues = partition_queues
        self._admission = admission
        self._events = context.instruments.events
        self._drains = drains
        self._interval = config.circuit_breaker_mute_retry_interval_ms / 1000
        self._longest = config.circuit_breaker_mute_retry_max_interval_ms / 1000
        self._mappings = (
            _ByBroker(cluster, "produce.in_flight", 0),
            _ByPartition(partition_queues, "in_flight"),
            _ByPartition(partition_queues, "bytes"),
            _ByBroker(cluster, "is_muted", False),
        )
        self._open: dict[PartitionQueue, PartitionCircuit] = {}
        # The times of the probes. A circuit that is not open at that time is ignored.
        self._due: list[tuple[float, int, PartitionQueue]] = []
        self._ties = count()
        # The batches in flight that are not overdue, and the time of each send.
        self._sent: OrderedDict[ProducerBatch, float] = OrderedDict()
        # The batches in flight that were reported as failed.
        self._overdue: set[ProducerBatch] = set()
        # By broker: the consecutive failed attempts to connect that were reported.
        self._unreachable: dict[int, int] = {}
        # The error of the current call of the breaker.
        self._cause: Exception | None = None
        self._logged: set[str] = set()
        self.is_closed: bool = False
        self._deadline_timer = DeadlineTimer(
            loop, self._next_moment, self._on_alarm, is_patient=True
        )
        hook = config.on_circuit_event
        self._hook = watch.over("on_circuit_event", hook) if hook is not None else None
        self._breaker = _made(config.circuit_breaker_class)
        self._on_send = watch.over("circuit breaker", partial(_truth, self._breaker.on_send))
        self._on_complete = watch.over(
            "circuit breaker", partial(_truth, self._breaker.on_complete)
        )
        self._breaker.configure(_options(config))
        self._breaker.set_circuit_break_manager(self)

    # What the breaker may do and ask (`interfaces.CircuitBreakManager`)

    def mute(self, place: int | TopicPartition) -> None:
        """Mute a partition, or all partitions that a broker leads now."""
        self._apply(place, self.open)

    def unmute(self, place: int | TopicPartition) -> None:
        """Restore a partition, or all partitions that a broker leads now."""
        self._apply(place, self.restore)

    def _apply(
        self, place: int | TopicPartition, change: Callable[[PartitionQueue], object]
    ) -> None:
        node_id = exact_int(place)
        if node_id is None:
            change(self._queue(cast("TopicPartition", place)))
            return
        self._sweep(
            [
                queue
                for routing in self._partition_queues.routings.values()
                for queue in routing.queues
            ],
            node_id,
            change,
        )

    def _sweep(
        self, queues: list[PartitionQueue], node_id: int, change: Callable[[PartitionQueue], object]
    ) -> None:
        """Apply `change` to those of a broker, a few in each event-loop iteration: a broker may lead thousands, and each is an event."""
        some = [queue for queue in queues[:_SWEPT] if queue.leader == node_id and self._has(queue)]
        for queue in some:
            change(queue)
        if len(queues) > _SWEPT and not self.is_closed:
            self._loop.call_soon(self._sweep, queues[_SWEPT:], node_id, change)

    def _queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = _find(self._partition_queues, partition)
        if queue is None:
            raise UsageError(f"there is no partition {partition[0]}-{partition[1]}")
        return queue

    def _has(self, queue: PartitionQueue) -> bool:
        """Return False for a partition that its topic no longer has. A breaker could not mute it, and is not told of its last batches."""
        return _find(self._partition_queues, name_of(queue)) is queue

    def is_muted(self, partition: TopicPartition) -> bool:
        """Return whether a partition is muted or being probed."""
        return self._queue(partition).circuit is not None

    def available_partitions_for_topic(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that have a leader and are neither muted nor being probed."""
        return [
            name_of(queue)
            for queue in self._queues(topic)
            if queue.leader >= 0 and queue.circuit is None
        ]

    def muted_partitions_for_topic(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that are muted or being probed."""
        return [name_of(queue) for queue in self._queues(topic) if queue.circuit is not None]

    def available_partitions_for_node(self, node_id: int) -> dict[str, list[TopicPartition]]:
        """Return the partitions that a broker leads and that are neither muted nor being probed, by topic."""
        queues = (
            queue
            for routing in self._partition_queues.routings.values()
            for queue in routing.queues
        )
        return _by_topic(
            queue for queue in queues if queue.leader == node_id and queue.circuit is None
        )

    def muted_partitions_for_node(self, node_id: int) -> dict[str, list[TopicPartition]]:
        """Return the partitions that a broker leads and that are muted or being probed, by topic."""
        return _by_topic(queue for queue in self._open if queue.leader == node_id)

    def _queues(self, topic: str) -> Sequence[PartitionQueue]:
        routing = self._partition_queues.routings.get(topic)
        return routing.queues if routing is not None else ()

    # Batches

    def on_send(self, batch: ProducerBatch) -> float:
        """Return 0 if a batch may be drained, or the time at which to ask again."""
        queue = batch.queue
        if self.is_closed or not self._has(queue):
            return 0.0
        # This batch is the probe of a partition that had none.
        if queue.circuit is not None and not queue.is_avoided:
            self._partition_queues.availability.avoid(queue)
        self._cause = None
        if self._guarded("on_send", True, self._on_send, self._status(queue, batch.count)):
            return 0.0
        # The scheduled drain also sets the timer for that time.
        self._drains.turn()
        return self._loop.time() + _HELD

    def sent(self, batches: Iterable[ProducerBatch]) -> None:
        """Note that a request of `batches` was written."""
        now = self._loop.time()
        for batch in batches:
            self._sent[batch] = now
        self._deadline_timer.check()

    def ended(self, responses: Mapping[ProducerBatch, PartitionResponse]) -> None:
        """Handle ended attempts, after their batches were completed, requeued or failed."""
        for batch, outcome in responses.items():
            self._end(batch, outcome.error)

    def _end(self, batch: ProducerBatch, error: Exception | None) -> None:
        """Handle one ended attempt. `error`: None if the batch was acknowledged."""
        was_counted = batch in self._overdue
        self._sent.pop(batch, None)
        self._overdue.discard(batch)
        is_failure = error is not None and counts(error)
        queue = batch.queue
        if is_failure:
            self._fail(queue, error)
        elif queue.circuit is not None and queue.circuit.state is CircuitState.PROBING:
            self.restore(queue)
        if not (is_failure and was_counted):
            self._tell_breaker(queue, batch.count + (_waiting(queue) if is_failure else 0), error)

    def freed(self, queue: PartitionQueue) -> None:
        """Handle a partition that holds less memory than before.

        Other partitions may hold more then. Its probe may also have ended without an attempt: the partition accepts records again.
        """
        circuit = queue.circuit
        if (
            circuit is not None
            and circuit.state is CircuitState.PROBING
            and queue.is_avoided
            and _is_empty(queue)
        ):
            self._partition_queues.availability.welcome(queue)
        self._admission.freed(queue)

    def on_node(self, node: BrokerNode) -> None:
        """Handle a change of a broker's connections.

        Another failed attempt to connect counts as a failure of the partitions that have a batch ready for the broker.
        """
        node_id, failures = node.broker.node_id, node.produce.failures
        if failures <= self._unreachable.get(node_id, 0):
            self._unreachable[node_id] = failures
            return
        self._unreachable[node_id] = failures
        error = node.produce.last_error
        for queue in self._partition_queues.ready.queues(node_id):
            if error is not None:
                self._fail(queue, error)
                self._tell_breaker(queue, _waiting(queue), error)

    def _tell_breaker(self, queue: PartitionQueue, records: int, error: Exception | None) -> None:
        if not self._has(queue):
            return
        self._cause = error
        if self._guarded(
            "on_complete",
            False,
            self._on_complete,
            self._status(queue, records),
            name_of(queue),
            error,
        ):
            self._drains.turn()
        self._cause = None

    def _status(self, queue: PartitionQueue, records: int) -> ProducerStatusContext:
        return Status(self._loop.time(), name_of(queue), queue.leader, records, *self._mappings)

    def _guarded(self, what: str, otherwise: Any, function: Callable[..., Any], *args: Any) -> Any:
        """Call the user's function and return its result; `otherwise` if it raises."""
        try:
            return function(*args)
        except USER_FAILURES as error:
            if what not in self._logged:
                self._logged.add(what)
                _log.exception(
                    "The circuit breaker's %s raised %s; this is told once",
                    what,
                    type(error).__name__,
                )
            return otherwise

    # Time

    def _next_moment(self) -> float | None:
        moments = [self._due[0][0]] if self._due else []
        if self._sent:
            moments.append(next(iter(self._sent.values())) + self._interval)
        return min(moments, default=None)

    def _on_alarm(self, now: float) -> None:
        while self._sent:
            batch, since = next(iter(self._sent.items()))
            if since + self._interval > now:
                break
            del self._sent[batch]
            self._overdue.add(batch)
            if not batch.ended and batch.queue.circuit is None:
                late = RequestTimedOut(f"no answer for {self._interval:g} s yet")
                self._tell_breaker(batch.queue, batch.count + _waiting(batch.queue), late)
        while self._due and self._due[0][0] <= now:
            queue = heapq.heappop(self._due)[2]
            if queue.circuit is not None and queue.circuit.due <= now:
                self._probe(queue)

    # Circuits

    def on_turn(self) -> None:
        """Probe the muted partitions that got another leader, and notify the sends that wait for a partition that may hold more."""
        # Memory is also released where no batch ends: batches close, and `on_failed` has had its records.
        self._admission.freed()
        moved = self._partition_queues.moved
        while moved:
            self._probe(moved.pop())

    def open(self, queue: PartitionQueue) -> None:
        """Open the circuit of a partition."""
        circuit = queue.circuit
        if self.is_closed or (circuit is not None and circuit.state is CircuitState.OPEN):
            return
        now = self._loop.time()
        interval = self._interval if circuit is None else circuit.interval
        queue.circuit = self._open[queue] = PartitionCircuit(now, interval, self._cause)
        self._mute(queue, queue.circuit)

    def _fail(self, queue: PartitionQueue, cause: Exception | None) -> None:
        """Count a failure of a partition: a failed probe opens its circuit again."""
        circuit = queue.circuit
        if circuit is not None and circuit.fail(self._loop.time(), self._longest, cause):
            self._mute(queue, circuit)

    def _mute(self, queue: PartitionQueue, circuit: PartitionCircuit) -> None:
        heapq.heappush(self._due, (circuit.due, next(self._ties), queue))
        self._deadline_timer.check()
        self._partition_queues.availability.avoid(queue)
        self._partition_queues.mute(queue)
        # The pending sends of the partition are appended to another one or refused, depending on the keyed policy.
        self._admission.notify(queue)
        self._tell(queue, circuit.state, circuit.interval, circuit.cause)

    def _probe(self, queue: PartitionQueue) -> None:
        """Probe a partition, with the batch that it has or with its next one."""
        circuit = queue.circuit
        if circuit is None or not circuit.probe():
            return
        if _is_empty(queue):
            self._partition_queues.availability.welcome(queue)
        self._partition_queues.unmute(queue, is_trial=True)
        self._tell(queue, circuit.state, circuit.interval, None)
        self._drains.turn()

    def restore(self, queue: PartitionQueue) -> None:
        """Close the circuit of a partition that works again. Nothing happens if its circuit is closed."""
        if queue.circuit is None:
            return
        self._let(queue)
        self._tell(queue, CircuitState.CLOSED, 0.0, None)

    def _let(self, queue: PartitionQueue) -> None:
        queue.circuit = None
        del self._open[queue]
        self._partition_queues.availability.welcome(queue)
        self._partition_queues.unmute(queue, is_trial=False)
        self._drains.turn()

    def _tell(
        self, queue: PartitionQueue, state: CircuitState, interval: float, cause: Exception | None
    ) -> None:
        what = f"{queue.topic}-{queue.partition}"
        self._events.tell(
            _TOLD[state],
            **(
                {"what": what, "seconds": interval}
                if state is CircuitState.OPEN
                else {"what": what}
            ),
        )
        # In a callback of its own: the hook may call `send`.
        if self._hook is not None:
            self._loop.call_soon(
                self._call_hook, CircuitEvent(name_of(queue), state, interval * 1000, cause)
            )

    def _call_hook(self, event: CircuitEvent) -> None:
        told = self._guarded("on_circuit_event", None, self._hook or (lambda _event: None), event)
        if inspect.iscoroutine(told):
            told.close()
            self._guarded("on_circuit_event", None, _refuse)

    # The end

    def told(self) -> list[str]:
        """Return one text for each partition that is muted or being probed."""
        return [
            f"{queue.topic}-{queue.partition} {circuit.state}"
            for queue, circuit in self._open.items()
        ]

    def forget(self, topic: str) -> None:
        """Drop the circuits of a topic that is forgotten and has no batches."""
        for queue in [queue for queue in self._open if queue.topic == topic]:
            queue.circuit = None
            del self._open[queue]
        self._due = [entry for entry in self._due if entry[2].topic != topic]
        heapq.heapify(self._due)

    def close(self) -> None:
        """Restore all partitions and close the breaker, because the producer stops. Held batches are sent once more."""
        if self.is_closed:
            return
        self.is_closed = True
        self._deadline_timer.stop()
        for queue in tuple(self._open):
            self._let(queue)
        self._guarded("close", None, self._breaker.close)

    def __repr__(self) -> str:
        return f"<ProducerCircuitBreakManager of {type(self._breaker).__name__}: {counted(len(self._open), 'open circuit')}>"


def _truth(function: Callable[..., object], *args: Any) -> bool:
    """Return what a function of the user's returns as a bool: its truth value is the user's code, too."""
    return bool(function(*args))


def _refuse() -> None:
    raise UsageError(
        "on_circuit_event gave a coroutine: it is a plain function, called with a CircuitEvent"
    )


def _is_empty(queue: PartitionQueue) -> bool:
    return not (queue.closed or queue.current or queue.in_flight)


def _waiting(queue: PartitionQueue) -> int:
    """Return the number of records in a partition's queue, which are delayed by the same failure."""
    filling = queue.current.open if queue.current is not None else None
    return sum(batch.count for batch in queue.closed) + (0 if filling is None else filling.count)


def _made(given: Any) -> PartitionCircuitBreaker:
    """Return the user's breaker, an object of the user's class, or a `FailureRateCircuitBreaker`."""
    if isinstance(given, str):
        return FailureRateCircuitBreaker()
    if not isinstance(given, type):
        return given  # type: ignore[no-any-return]
    try:
        return given()  # type: ignore[no-any-return]
    except TypeError as error:
        raise UsageError(
            f"the circuit breaker class {given.__name__} cannot be made without arguments: give an object of it"
        ) from error


def _options(config: ProducerConfig) -> dict[str, Any]:
    """Return the options of the breaker: its own, and the producer's `circuit_breaker_` options without that prefix."""
    ours = (
        "trigger_message_count",
        "trigger_failure_perc",
        "mute_retry_interval_ms",
        "mute_retry_max_interval_ms",
    )
    named = {name: getattr(config, _PREFIX + name) for name in (*ours, "keyed_policy")}
    mutes_full = (
        config.circuit_breaker_enable_mute_inflight_full
        and config.max_in_flight_requests_per_connection == 1
    )
    return {
        **named,
        "enable_mute_inflight_full": mutes_full,
        **(config.circuit_breaker_options or {}),
    }
