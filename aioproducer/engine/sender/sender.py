"""From closed batches to their ends: drain, request, answer, retry, expiry, flush. An event loop in the place of Java's sender thread.

1. Draining is synchronous: while a broker's connection stands and a slot is free, its ready batches become one request. It happens
   once in each loop turn in which something was queued, at each answer, and when a timer lets batches go.
2. An answer frees its slot first, then ends its batches, then drains again; who waits is woken last. What lingers by load goes one turn
   later: two halves of a crowd that send by turns, each in the other's round trip, become one.
3. A batch's bytes stay counted until the connection is done with them, also when its records have failed long before.

The rules are in `core`, the bytes in `produce`; this is the shell that has the loop. Knows nothing of how records come in, but for `appender` and `admission`.
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
_SEND, _PRODUCE = Event.SEND, ApiKey.PRODUCE  # Python 3.11 looks members up slowly
_AT_ONCE: Final = 64  # batches in one request of a burst: a broker that answers late would get each partition's record or two at once
# Of any: a broker takes them one after the other, and thousands in topics new to it longer than a request may take.
_MOST_AT_ONCE: Final = 1024


class BatchObserver(Protocol):
    """What is told of batches and brokers as they are sent: the circuit breaker's manager, where the producer has one."""

    def on_node(self, node: BrokerNode) -> None:
        """A broker's standing changed."""

    def sent(self, batches: Iterable[ProducerBatch]) -> None:
        """A request of these was written."""

    def ended(self, told: Mapping[ProducerBatch, PartitionResponse]) -> None:
        """Attempts ended, and their batches have gone their way."""


class Sender:
    """Sends what the accumulator holds; `connect` gives it the parts that need it first.

    Attributes:
        newest_produce: the newest version of Produce that may be used; None: any. Transactions of the first kind end at 11.
        ends: what becomes of batches after an attempt.
        circuit_break_manager: which partitions are left alone; None: none is.
        on_identity: told who the producer is to brokers.
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
        self._least = Fill.PARTIAL  # of what leaves in this turn
        self._burst = 0  # turns of the burst of sends at hand since partial batches left
        self._burst_since = 0.0
        self._drained_at = 0.0
        self._drained = 0  # batches that the last turn drained
        self._was_burst = False  # when the last turn began; whoever was woken since may be about to send
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
        """Name the parts that it works with; `urge` asks for fresh metadata, `hint` takes a leader that an answer named, a `LeaderHint`'s fields."""
        self._appender = appender
        self._admission = admission
        self._cluster = self.ends.cluster = cluster
        self._urge = urge
        self._hint = hint

    # Turns

    def tick(self) -> int:
        """The first send of a loop turn: the turn's time in ms, and a drain at its end."""
        now_ms = self._fast_path.turn_ms = self._appender.now_ms()
        self.turn()
        return now_ms

    def turn(self) -> None:
        """See to it that the next loop turn drains and serves who waits."""
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
            self._loop.call_soon(self._on_turn)  # once those who were woken have sent
            return
        since = self._turn_since
        self._is_turn_due = False
        self._fast_path.turn_ms = 0
        if self._linger is not Linger.NONE:
            self._fill(now)
        self._turn.new(now)
        self._drained_at, self._drained = now, 0
        is_taken = self._drain_all()
        if is_taken and self._admission.has_line:  # a go in this round of the loop too would be long
            if not self._is_serving_due:
                self._is_serving_due = True
                self._loop.call_soon(self._serve)
        elif not self._is_serving_due:
            self._admission.serve(goes_on=not is_taken and self._linger is Linger.NONE)
        if self._least:  # also if the task that sent so has left: what stays open for that must leave
            self.turn()
        self._waking.check()
        self._expiry.ensure()  # all batches live equally long
        self._meter.turned(now, now - since)

    @property
    def _is_burst(self) -> bool:
        """Whether some task sends without a pause."""
        return self._was_burst or self._admission.is_bursting

    def _is_due(self, now: float) -> bool:
        """Whether a burst's records are drained in this turn."""
        return is_due(self._linger, is_full=self._turn.is_full, seconds=now - self._drained_at, batches=self._drained)

    def _fill(self, now: float) -> None:
        """Count the turns of a burst, and decide what leaves in this one."""
        self._burst = self._burst + 1 if self._admission.is_bursting else 0
        self._least = least_fill(self._linger, drains=self._burst, seconds=now - self._burst_since, filling=self._partition_queues.filling)
        if not self._least:
            self._burst, self._burst_since = 0, now

    def _serve(self) -> None:
        self._is_serving_due = False
        self._admission.serve()

    def _on_wake(self, now: float) -> None:
        if not self._least:  # else it rings again
            self._partition_queues.wake(now)
            self._drain_all()

    # Draining

    def _drain_all(self) -> bool:
        """Whether anything was taken to be sent."""
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
        """A broker's connection stands, has room again, was lost, or could not be made: then perhaps others lead its partitions by now."""
        if node.failures:
            self._urge(self._partition_queues.ready.topics(node.broker.node_id))
        if self.circuit_break_manager is not None:
            self.circuit_break_manager.on_node(node)
        self.drain(node)

    def drain(self, node: BrokerNode, *, least: Fill = Fill.PARTIAL) -> bool:
        """While the connection stands and a slot is free: what is ready, as one request; what is less than `least` stays open. Whether anything went."""
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
        """It takes nothing now."""
        self._partition_queues.availability.blocked(node.broker.node_id, self._loop.time())
        if node.produce.connection is None and not self._is_closed:
            node.want_produce()

    def _submit(self, node: BrokerNode, connection: Connection, batches: Sequence[ProducerBatch]) -> None:
        """Write one request of encoded batches."""
        live = [batch for batch in batches if not batch.ended]
        for batch in batches if len(live) < len(batches) else ():
            if batch.ended:  # expired while it was compressed; it was never on the wire
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
        # what follows takes no time from who waits for the answer
        self._meter.sent(now, live)
        if self.circuit_break_manager is not None:
            self.circuit_break_manager.sent(live)
        if self._admission.has_line:  # what compression saved is free
            self.turn()

    def _take_back(self, node: BrokerNode, batches: Iterable[ProducerBatch], end: Callable[[ProducerBatch], object]) -> None:
        """A request is not written after all."""
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
            if batch.is_encoded:  # else it is as large as it closed
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
        """Attempts are over; of which batches metadata is stale."""
        stale = {batch for batch, outcome in told.items() if self.ends.end_attempt(batch, outcome, now)}
        if self.circuit_break_manager is not None:
            self.circuit_break_manager.ended(told)
        return stale

    def _read(self, node: BrokerNode, asked: Asked, answer: Answer) -> tuple[dict[ProducerBatch, PartitionResponse], set[ProducerBatch]]:
        """What an answer says of each batch, and those whose new leader it told: nobody else needs to be asked for that (KIP-951)."""
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
        """acks=0: a request is done when it is handed to a transport that is not full."""
        node.slots.release()
        now = self._loop.time()
        told = dict.fromkeys(batches, PartitionResponse(error if isinstance(error, TransportError) else None))
        self._end_attempts(told, now)
        self._go_on(node, batches)

    def _go_on(self, node: BrokerNode, batches: Iterable[ProducerBatch]) -> None:
        by_load = self._partition_queues.by_load
        node_id = node.broker.node_id
        if self._partition_queues.ready.get(node_id) and not (self._is_turn_due and self._is_burst):  # else the turn drains, soon
            self.drain(node, least=least_fill(self._linger, is_answer=True))
        is_due = self._admission.has_line
        for batch in batches:
            is_due |= batch.queue.leader != node_id  # what waited for these may go elsewhere
        if is_due:
            self.turn()
        self._waking.check()
        self._completions.run()
        # after the tasks that are woken: what they send next goes with what has waited
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
        """The producer ends: every record that is not acknowledged fails."""
        self._is_closed = True
        self._waking.stop()
        self._expiry.stop()
        for batch in list(self._partition_queues.incomplete):
            self.ends.fail(batch, cause)

    def identify(self, identity: ProducerIdAndEpoch | None) -> None:
        """Who the producer is to brokers; None: nobody, as they know no producer ids."""
        self.on_identity(identity)
        self._partition_queues.identify(identity)
        self.turn()

    def go_without_numbers(self, where: str) -> None:
        """A broker knows no producer ids: the default gives way to it, with a warning; what a user asked for does not.

        Raises:
            BrokerError: the user did.
        """
        if self._config.enable_idempotence or self._transactional_id is not None:
            raise broker_error(
                "UNSUPPORTED_FOR_MESSAGE_FORMAT", f"{where} is older than Kafka 0.11 and knows no idempotence: set enable_idempotence=False"
            )
        _log.warning("%s is older than Kafka 0.11: records may be there twice. Set enable_idempotence=False if that is meant.", where)
        self.identify(None)

    def drop_unsent(self, cause: KafkaError) -> None:
        """There is no producer id, or a transaction is given up: what has no number yet was never sent, and fails (IDM-02, TXN-06)."""
        for batch in [batch for batch in self._partition_queues.incomplete if batch.sequence < 0]:
            self.ends.fail(batch, cause)

    def explain(self) -> list[str]:
        """What the oldest batches wait for."""
        lifetime = self._config.delivery_timeout_ms / 1000
        return list(backlog(self._partition_queues, self._cluster, self._loop.time(), lifetime))

    def start_flush(self, wake: Callable[[], None]) -> Flush:
        """Let every batch go now and watch those that are not ended; `wake` is called when the last one is."""
        for queue in self._partition_queues.open_queues():
            self._partition_queues.close(queue)
        flush = self.ends.watch(Flush(self._partition_queues.incomplete, wake))
        self._drain_all()
        return flush

    def stop_flush(self, flush: Flush) -> None:
        """Nobody waits for it any more."""
        self.ends.unwatch(flush)
