"""The Sender: drains ready batches into requests and ends them at the answers, in place of Java's sender thread.

1. Draining is synchronous: while a broker's connection is ready and a slot is free, its ready batches become one request. The Sender
   drains once in each event-loop iteration in which a record was queued, at each answer, and when a timer makes batches sendable.
2. An answer releases its slot, then ends its batches, then drains again. The waiting tasks are woken last. Partial batches that linger
   by load are drained one event-loop iteration later. So two groups of tasks, each of which sends during the other's round trip, become
   one.
3. The bytes of a batch stay reserved until the connection no longer uses them, also when its records have failed long before.

The rules are in `core`, and the encoding is in `produce_exchange`. The Sender connects them to the event loop.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from aioproducer.core.batch_state import Event
from aioproducer.core.drain_policy import Fill, Linger, is_due, least_fill
from aioproducer.core.metadata.cluster_metadata import NO_ID
from aioproducer.engine.memory.buffer_pool import BATCH_OVERHEAD
from aioproducer.engine.observability.diagnostics import backlog
from aioproducer.engine.sender import produce_exchange
from aioproducer.engine.sender.batch_completion import BatchCompletion
from aioproducer.engine.sender.flush import Flush
from aioproducer.engine.sender.produce_exchange import PartitionResponse
from aioproducer.engine.sender.record_formats import NEWEST, attributes_of, head, magic_of, produce_version
from aioproducer.engine.tasks.deadline_timer import DeadlineTimer
from aioproducer.errors import (
    ConnectionLost,
    KafkaError,
    ProtocolError,
    TransportError,
    broker_error,
)
from aioproducer.model import Acks, Compression
from aioproducer.net.connection import Answer
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aioproducer.config import ProducerConfig
    from aioproducer.core.backoff import Backoff
    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.core.sequence_numbers import ProducerIdAndEpoch
    from aioproducer.engine.append.admission import Admission
    from aioproducer.engine.append.appender import Appender
    from aioproducer.engine.append.chosen_build import FastPath
    from aioproducer.engine.append.loop_budget import LoopBudget
    from aioproducer.engine.delivery.completion_queue import CompletionQueue
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.engine.observability.metrics_recorder import Meter
    from aioproducer.engine.sender.batch_compressor import BatchCompressor
    from aioproducer.engine.sender.produce_exchange import Asked
    from aioproducer.engine.tasks.guarded_loop import GuardedLoop
    from aioproducer.net.broker_node import BrokerNode
    from aioproducer.net.cluster import Cluster
    from aioproducer.net.connection import Connection

__all__ = ["Sender"]

_log = logging.getLogger(__name__)
# Python 3.11 looks enum members up slowly.
_SEND, _PRODUCE = Event.SEND, ApiKey.PRODUCE
# Maximum batches of one request during a burst. Without it, a broker that answers late would get a record or two of each partition
# at once.
_AT_ONCE: Final = 64
# Maximum batches of any request. A broker appends them one after the other. Thousands of them, in topics that are new to it, would take
# longer than a request may take.
_MOST_AT_ONCE: Final = 1024


class BatchObserver(Protocol):
    """Observes batches and brokers as the Sender sends: the circuit breaker's manager, if the producer has one."""

    def on_node(self, node: BrokerNode) -> None:
        """Handle a change of a broker's connections or throttling."""

    def sent(self, batches: Iterable[ProducerBatch]) -> None:
        """Note that a request of `batches` was written."""

    def ended(self, told: Mapping[ProducerBatch, PartitionResponse]) -> None:
        """Note that attempts ended, after their batches were completed, requeued or failed."""


class Sender:
    """Holds the state between drains, and sends the batches of `PartitionQueues`.

    `connect` sets the parts that are made after the Sender, because they need it.

    Attributes:
        newest_produce: the newest version of Produce that may be used; None: any. Transactions of version 1 end at 11.
        ends: ends attempts and batches.
        circuit_break_manager: decides which partitions are muted; None: none is.
        on_identity: called with the producer id and epoch; None: the brokers support none.
    """

    newest_produce: int | None = None
    circuit_break_manager: BatchObserver | None = None
    on_identity: Callable[[ProducerIdAndEpoch | None], object] = staticmethod(lambda _identity: None)

    def __init__(
        self,
        config: ProducerConfig,
        loop: GuardedLoop,
        way: FastPath,
        turn: LoopBudget,
        partition_queues: PartitionQueues,
        pool: BufferPool,
        completions: CompletionQueue,
        batch_compressor: BatchCompressor,
        backoff: Backoff,
        chance: Callable[[], float],
        meter: Meter,
    ) -> None:
        self._config = config
        self._meter = meter
        self._loop = loop
        self._fast_path = way
        self._turn = turn
        self._partition_queues = partition_queues
        self._completions = completions
        self._batch_compressor = batch_compressor
        self.ends = BatchCompletion(config, loop, partition_queues, pool, completions, batch_compressor, backoff, chance, meter)
        self._acks = cast("Acks", config.acks)
        self._is_answered = self._acks is not Acks.NONE
        self._codec = cast("Compression", config.compression_type)
        self._transactional_id = config.transactional_id
        self._attributes = attributes_of(self._codec, is_transactional=config.transactional_id is not None)
        self._timeout_ms = int(config.request_timeout_ms)
        self._request_timeout = config.request_timeout_ms / 1000
        self._linger = Linger.LOAD if partition_queues.by_load else Linger.TIME if config.linger_ms else Linger.NONE
        # The least fill of the batches that leave in this drain.
        self._least = Fill.PARTIAL
        # Drains of the current burst of sends since partial batches left.
        self._burst = 0
        self._burst_since = 0.0
        self._drained_at = 0.0
        # Batches of the last drain.
        self._drained = 0
        # True if there was a burst when the last drain began. A task that was woken since then may be about to send.
        self._was_burst = False
        self._is_turn_due = self._is_serving_due = False
        self._turn_since = 0.0
        self._is_closed = False
        self._waking = DeadlineTimer(loop, partition_queues.next_wake, self._on_wake)
        self._expiry = DeadlineTimer(loop, partition_queues.incomplete.next_expiry, self._on_expiry, is_patient=True)

    def connect(
        self,
        appender: Appender,
        admission: Admission,
        cluster: Cluster,
        urge: Callable[[Iterable[str]], None],
        hint: Callable[..., object] = lambda *_hint: False,
    ) -> None:
        """Set the parts that the Sender works with.

        Args:
            appender: appends records.
            admission: holds the pending sends.
            cluster: the brokers.
            urge: requests new metadata of topics.
            hint: takes a leader that an answer named, as the fields of a `LeaderHint`; returns True if the leader was applied.
        """
        self._appender = appender
        self._admission = admission
        self._cluster = self.ends.cluster = cluster
        self._urge = urge
        self._hint = hint

    # Event-loop iterations

    def tick(self) -> int:
        """Schedule a drain at the first send of an event-loop iteration. Returns the time of that iteration in ms."""
        now_ms = self._fast_path.turn_ms = self._appender.now_ms()
        self.turn()
        return now_ms

    def turn(self) -> None:
        """Schedule a drain for the next event-loop iteration, which also serves the pending sends."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._turn_since = self._loop.time()
            self._loop.call_soon(self._on_turn)

    def _on_turn(self) -> None:
        now = self._loop.time()
        self._was_burst = self._admission.is_bursting
        if self._was_burst and not self._is_due(now):
            self._turn_since = now
            self._admission.go_on()
            # The woken tasks send before that call.
            self._loop.call_soon(self._on_turn)
            return
        since = self._turn_since
        self._is_turn_due = False
        self._fast_path.turn_ms = 0
        if self._linger is not Linger.NONE:
            self._fill(now)
        self._turn.new(now)
        self._drained_at, self._drained = now, 0
        is_taken = self._drain_all()
        # To serve pending sends in the same event-loop iteration, too, would take long.
        if is_taken and self._admission.has_waiting:
            if not self._is_serving_due:
                self._is_serving_due = True
                self._loop.call_soon(self._serve)
        elif not self._is_serving_due:
            self._admission.serve(goes_on=not is_taken and self._linger is Linger.NONE)
        # Also if the task of the burst no longer sends: the batches that stayed open for it must leave.
        if self._least:
            self.turn()
        self._waking.check()
        # All batches have the same lifetime, so no new batch expires before the older ones.
        self._expiry.ensure()
        self._meter.turned(now, now - since)

    @property
    def _is_burst(self) -> bool:
        """Return whether some task sends without a pause."""
        return self._was_burst or self._admission.is_bursting

    def _is_due(self, now: float) -> bool:
        """Return whether the records of a burst are drained in this event-loop iteration."""
        return is_due(self._linger, is_full=self._turn.is_full, seconds=now - self._drained_at, batches=self._drained)

    def _fill(self, now: float) -> None:
        """Count the drains of a burst, and set the least fill of the batches that leave in this one."""
        self._burst = self._burst + 1 if self._admission.is_bursting else 0
        self._least = least_fill(self._linger, drains=self._burst, seconds=now - self._burst_since, filling=self._partition_queues.filling)
        if not self._least:
            self._burst, self._burst_since = 0, now

    def _serve(self) -> None:
        self._is_serving_due = False
        self._admission.serve()

    def _on_wake(self, now: float) -> None:
        # Otherwise the timer stays due and fires again.
        if not self._least:
            self._partition_queues.wake(now)
            self._drain_all()

    # Draining

    def _drain_all(self) -> bool:
        """Drain the ready batches of all brokers. Returns True if any batch was drained."""
        is_taken = False
        for node_id in tuple(self._partition_queues.ready.nodes()):
            node = self._cluster.node(node_id)
            if node is not None:
                is_taken |= self.drain(node)
            else:
                self._urge(self._partition_queues.ready.topics(node_id))
        availability = self._partition_queues.availability
        if availability.timeout and availability.is_watching:
            availability.look(self._loop.time(), self._partition_queues.ready)
        return is_taken

    def on_node(self, node: BrokerNode) -> None:
        """Drain for a broker after its connection became ready or writable again, was lost, or could not be made.

        If the connection fails, other brokers may lead its partitions by now: new metadata is requested.
        """
        if node.failures:
            self._urge(self._partition_queues.ready.topics(node.broker.node_id))
        if self.circuit_break_manager is not None:
            self.circuit_break_manager.on_node(node)
        self.drain(node)

    def drain(self, node: BrokerNode, *, least: Fill = Fill.PARTIAL) -> bool:
        """Send the ready batches of `node`, one request for each free slot. Returns True if any batch was drained.

        The connection must be ready. Open batches that are less full than `least` stay open.
        """
        is_taken = False
        partition_queues = self._partition_queues
        availability = partition_queues.availability
        node_id = node.broker.node_id
        least = max(least, self._least)
        while partition_queues.ready.get(node_id):
            if not (node.is_ready and node.slots.try_acquire()):
                self._wait_for(node)
                break
            connection = node.produce.connection
            assert connection is not None
            if availability.timeout:
                availability.drained(node_id)
            most = _AT_ONCE if self._is_burst else _MOST_AT_ONCE
            batches = partition_queues.drain(node_id, connection, self._config.max_request_size, most, least=least)
            if not batches:
                node.slots.release()
                break
            is_taken = True
            self._drained += len(batches)
            magic = magic_of(connection, self._config.message_format_max)
            self._batch_compressor.encode(batches, magic, connection, partial(self._submit, node, connection, batches))
            for batch in batches if availability.timeout else ():
                partition_queues.watch(batch.queue, self._loop.time())
        return is_taken

    def _wait_for(self, node: BrokerNode) -> None:
        """Note that a broker takes no batch now, and make its produce connection if there is none."""
        self._partition_queues.availability.blocked(node.broker.node_id, self._loop.time())
        if node.produce.connection is None and not self._is_closed:
            node.want_produce()

    def _submit(self, node: BrokerNode, connection: Connection, batches: Sequence[ProducerBatch]) -> None:
        """Write one request of encoded batches."""
        live = [batch for batch in batches if not batch.ended]
        for batch in batches if len(live) < len(batches) else ():
            # It expired while it was compressed, and was not sent in this attempt.
            if batch.ended:
                self.ends.let_go(batch)
        if not live or not connection.is_usable:
            self._take_back(node, live, lambda batch: self._partition_queues.requeue(batch, 0.0))
            return
        try:
            version = self._version(connection, live)
            for batch in live:
                self._seal(batch)
        except KafkaError as error:
            self._take_back(node, live, partial(self.ends.fail, cause=error))
            return
        self._write(node, connection, version, live)

    def _write(self, node: BrokerNode, connection: Connection, version: int, live: Sequence[ProducerBatch]) -> None:
        now = self._loop.time()
        place = f"broker {node.broker.node_id} at {connection.where}"
        sent = (now, place)
        for batch in live:
            batch.move(_SEND)
            batch.attempts += 1
            batch.on_wire = True
            batch.history += (sent,)
        body = produce_exchange.encode(live, version, self._acks, self._timeout_ms, self._transactional_id)
        if self._is_answered:
            on_answer = self._loop.guarded(self._on_answer, node, connection, produce_exchange.asked(live, version), now)
            connection.send(_PRODUCE, version, body, on_answer, self._request_timeout)
        else:
            connection.send_unanswered(_PRODUCE, version, body, self._loop.guarded(self._on_written, node, live))
        # The request is written. The calls below do not delay its answer.
        self._meter.sent(now, live)
        if self.circuit_break_manager is not None:
            self.circuit_break_manager.sent(live)
        # The bytes that compression saved are free for pending sends.
        if self._admission.has_waiting:
            self.turn()

    def _take_back(self, node: BrokerNode, batches: Iterable[ProducerBatch], end: Callable[[ProducerBatch], object]) -> None:
        """Take back the batches of a request that cannot be written: release its slot, and call `end` with each batch."""
        node.slots.release()
        for batch in batches:
            self._partition_queues.landed(batch)
            end(batch)
        self.turn()

    def _version(self, connection: Connection, batches: Sequence[ProducerBatch]) -> int:
        magic = batches[0].magic
        if magic < NEWEST and self._partition_queues.granted is not None:
            self.go_without_numbers(connection.where)
        version = produce_version(connection, magic)
        if self.newest_produce is not None:
            version = min(version, self.newest_produce)
        if version >= produce_exchange.FIRST_WITH_TOPIC_IDS and NO_ID in [batch.queue.routing.topic_id for batch in batches]:
            version = produce_exchange.FIRST_WITH_TOPIC_IDS - 1
        if version < produce_exchange.FIRST_WITH_ZSTD and self._codec is Compression.ZSTD:
            raise broker_error(
                "UNSUPPORTED_COMPRESSION_TYPE",
                f"{connection.where} is older than Kafka 2.1 and knows no zstd: choose another compression_type",
            )
        return version

    def _seal(self, batch: ProducerBatch) -> None:
        assert batch.payload is not None
        if batch.header is None:
            batch.header = head(batch, self._attributes)
            # A batch that is not encoded has the size that it had at its close.
            if batch.is_encoded:
                self._appender.room.shrink(batch, len(batch.payload) + BATCH_OVERHEAD)

    # Answers

    def _on_answer(self, node: BrokerNode, connection: Connection, asked: Asked, sent_at: float, answer: Answer | TransportError) -> None:
        node.slots.release()
        now = answer.at if isinstance(answer, Answer) else self._loop.time()
        error: TransportError | None = None
        told: dict[ProducerBatch, PartitionResponse] = {}
        led: set[ProducerBatch] = set()
        try:
            if isinstance(answer, Answer):
                self._meter.answered(node.broker.node_id, now - sent_at)
                told, led = self._read(node, asked, answer)
            else:
                error = answer
        except ProtocolError as malformed:
            error = malformed
        told = told or {batch: PartitionResponse(error) for batch in asked.values()}
        stale = self._end_attempts(told, now) - led
        if stale:
            self._urge({batch.queue.topic for batch in stale})
        if isinstance(answer, Answer) and error is not None:
            connection.abort(error)
        self._go_on(node, told)

    def _end_attempts(self, told: Mapping[ProducerBatch, PartitionResponse], now: float) -> set[ProducerBatch]:
        """End attempts. Returns the batches of partitions with stale metadata."""
        stale = {batch for batch, outcome in told.items() if self.ends.end_attempt(batch, outcome, now)}
        if self.circuit_break_manager is not None:
            self.circuit_break_manager.ended(told)
        return stale

    def _read(self, node: BrokerNode, asked: Asked, answer: Answer) -> tuple[dict[ProducerBatch, PartitionResponse], set[ProducerBatch]]:
        """Read an answer. Returns the response for each batch, and the batches of partitions with a new leader that it named.

        Such a leader needs no metadata request (KIP-951).
        """
        usual = produce_exchange.read_usual(asked, answer)
        if usual is not None:
            return usual, set()
        decoded = answer.decode()
        if decoded.throttle_time_ms > 0 and answer.version >= produce_exchange.FIRST_WITH_THROTTLE:
            node.throttle(decoded.throttle_time_ms)
            self._meter.throttled(self._loop.time(), decoded.throttle_time_ms)
        told = produce_exchange.read(asked, decoded)
        for outcome in told.values():
            if outcome.error is not None:
                return told, {batch for batch, hint in produce_exchange.hints(asked, decoded).items() if self._hint(*hint)}
        return told, set()

    def _on_written(self, node: BrokerNode, batches: Iterable[ProducerBatch], error: TransportError | Answer | None) -> None:
        """End the attempts of a request with acks=0, which is done when a transport that is not full has taken it."""
        node.slots.release()
        now = self._loop.time()
        told = dict.fromkeys(batches, PartitionResponse(error if isinstance(error, TransportError) else None))
        self._end_attempts(told, now)
        self._go_on(node, batches)

    def _go_on(self, node: BrokerNode, batches: Iterable[ProducerBatch]) -> None:
        by_load = self._partition_queues.by_load
        node_id = node.broker.node_id
        # Otherwise the scheduled drain sends the ready batches soon.
        if self._partition_queues.ready.get(node_id) and not (self._is_turn_due and self._is_burst):
            self.drain(node, least=least_fill(self._linger, is_answer=True))
        is_due = self._admission.has_waiting
        for batch in batches:
            # Batches that waited for this one may be ready for another broker.
            is_due |= batch.queue.leader != node_id
        if is_due:
            self.turn()
        self._waking.check()
        self._completions.run()
        # After the woken tasks: their next records leave together with the records that lingered.
        if by_load and self._partition_queues.ready.get(node_id):
            self.turn()

    def _on_expiry(self, now: float) -> None:
        for batch in self._partition_queues.incomplete.expired(now):
            node = self._cluster.node(batch.queue.leader)
            cause = batch.error or (node and node.last_error) or ConnectionLost("no acknowledgement")
            where = "no leader is known" if batch.queue.leader < 0 else f"it was {batch.state}"
            timeout = f"delivery_timeout_ms={self._config.delivery_timeout_ms:g}"
            self.ends.fail(batch, cause, f"not acknowledged within {timeout}: {where} ({cause})")
        self.turn()

    def fail_all(self, cause: KafkaError) -> None:
        """Fail every batch that has not ended, because the producer ends."""
        self._is_closed = True
        self._waking.stop()
        self._expiry.stop()
        for batch in list(self._partition_queues.incomplete):
            self.ends.fail(batch, cause)

    def identify(self, identity: ProducerIdAndEpoch | None) -> None:
        """Set the producer id and epoch; None: the brokers support no producer ids."""
        self.on_identity(identity)
        self._partition_queues.identify(identity)
        self.turn()

    def go_without_numbers(self, where: str) -> None:
        """Disable idempotence, with a warning, because the broker at `where` supports no producer ids.

        Raises:
            BrokerError: the user's configuration asks for idempotence or transactions.
        """
        if self._config.enable_idempotence or self._transactional_id is not None:
            raise broker_error(
                "UNSUPPORTED_FOR_MESSAGE_FORMAT", f"{where} is older than Kafka 0.11 and knows no idempotence: set enable_idempotence=False"
            )
        _log.warning("%s is older than Kafka 0.11: records may be there twice. Set enable_idempotence=False if that is meant.", where)
        self.identify(None)

    def drop_unsent(self, cause: KafkaError) -> None:
        """Fail the batches that have no sequence number: they were never sent (IDM-02, TXN-06).

        It is called when brokers refuse a producer id, or when a transaction is given up.
        """
        for batch in [batch for batch in self._partition_queues.incomplete if batch.sequence < 0]:
            self.ends.fail(batch, cause)

    def explain(self) -> list[str]:
        """Return the reasons why the oldest batches wait, one text for each batch."""
        lifetime = self._config.delivery_timeout_ms / 1000
        return list(backlog(self._partition_queues, self._cluster, self._loop.time(), lifetime))

    def start_flush(self, wake: Callable[[], None]) -> Flush:
        """Close and drain every batch. Returns a flush of the batches that have not ended; it calls `wake` after the last one."""
        for queue in self._partition_queues.open_queues():
            self._partition_queues.close(queue)
        flush = self.ends.watch(Flush(self._partition_queues.incomplete, wake))
        self._drain_all()
        return flush

    def stop_flush(self, flush: Flush) -> None:
        """Stop updating a flush, because no task waits for it any more."""
        self.ends.unwatch(flush)
