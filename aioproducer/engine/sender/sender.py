"""The Sender: drains ready batches into requests and ends them at the answers, in place of Java's sender thread.

1. Draining is synchronous: while a broker's connection is ready and a slot is free, its ready batches become one request. The Sender
   drains once in each event-loop iteration in which a record was queued, at each answer, and when a timer makes batches sendable.
2. An answer releases its slot, then ends its batches, then drains again. The waiting tasks are woken last. Partial batches that linger
   by load are drained one event-loop iteration later. So two groups of tasks, each of which sends during the other's round trip, become
   one.
3. The bytes of a batch stay reserved until the connection no longer uses them, also when its records have failed long before.

The rules and the encoding (`produce_exchange`) are in `core`. The Sender connects them to the event loop.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, cast

from aioproducer.core import produce_exchange
from aioproducer.core.drain_policy import DrainState, Fill, Linger
from aioproducer.core.metadata.cluster_metadata import NO_ID
from aioproducer.core.produce_exchange import PartitionResponse
from aioproducer.core.producer_batch import NEXT, Event
from aioproducer.core.record_validation import BATCH_OVERHEAD
from aioproducer.engine.append.batch_sizing import shrink
from aioproducer.engine.sender.parcel import NEWEST
from aioproducer.engine.sender.record_formats import (
    FIRST_WITH_RECORD_BATCHES,
    attributes_of,
    magic_of,
    produce_version,
)
from aioproducer.engine.tasks.supervisor import DeadlineTimer
from aioproducer.errors import (
    ConnectionLost,
    KafkaError,
    ProtocolError,
    TransportError,
    broker_error,
)
from aioproducer.model import Acks, Compression
from aioproducer.net.connection import Answer
from aioproducer.records.record_batch import header
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.core.produce_exchange import Asked
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.core.sequence_numbers import ProducerIdAndEpoch
    from aioproducer.engine.append.admission import Admission
    from aioproducer.engine.append.loop_budget import DrainSchedule
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.engine.metadata.metadata_updater import MetadataUpdater
    from aioproducer.engine.sender.batch_completion import BatchCompletion
    from aioproducer.engine.sender.batch_compressor import BatchCompressor
    from aioproducer.net.cluster import BrokerNode, Cluster
    from aioproducer.net.connection import Connection

_log = logging.getLogger(__name__)
# Python 3.11 looks enum members up slowly.
_SEND, _PRODUCE = Event.SEND, ApiKey.PRODUCE


class Sender:
    """Holds the state between drains, and sends the batches of `PartitionQueues`.

    Args:
        schedule: calls `on_turn` and `on_node`.
        completion: ends attempts and batches.
        admission: holds the pending sends.
        updater: requests new metadata of topics, and takes the leaders that answers name.
    """

    def __init__(
        self,
        context: EngineContext,
        schedule: DrainSchedule,
        partition_queues: PartitionQueues,
        completion: BatchCompletion,
        batch_compressor: BatchCompressor,
        admission: Admission,
        cluster: Cluster,
        updater: MetadataUpdater,
    ) -> None:
        config, loop = context.config, context.loop
        self._config = config
        self._instruments = context.instruments
        self._recorder = context.instruments.recorder
        self._loop = loop
        self._schedule = schedule
        self.turn: Callable[[], None] = schedule.turn
        self._loop_budget = schedule.loop_budget
        self._fast_path = schedule.fast_path
        self._partition_queues = partition_queues
        self._pool = completion.pool
        self._completion = completion
        self._attempts = completion.attempts
        self._completions = completion.completions
        self._circuit_break_manager = completion.circuit_break_manager
        self._transaction = completion.transaction
        self._ask_breaker = (
            completion.circuit_break_manager.on_send
            if completion.circuit_break_manager is not None
            else None
        )
        self._batch_compressor = batch_compressor
        # Batches are compressed or written in an older format. Once true, it stays so: a batch that waits may still be a message set.
        self._encodes = (
            config.compression_type is not Compression.NONE or config.message_format_max < NEWEST
        )
        self._admission = admission
        self._continuing = admission.continuing
        self._cluster = cluster
        self._request_update = updater.schedule.request_update
        self._hint = updater.hint
        self._acks = cast("Acks", config.acks)
        self._is_answered = self._acks is not Acks.NONE
        self._codec = cast("Compression", config.compression_type)
        self._transactional_id = config.transactional_id
        self._attributes = attributes_of(
            self._codec, is_transactional=config.transactional_id is not None
        )
        self._timeout_ms = int(config.request_timeout_ms)
        self._request_timeout = config.request_timeout_ms / 1000
        self._policy = partition_queues.policy
        self._lingers_by_load = self._policy.linger is Linger.LOAD
        self._state = DrainState(admission.continuing)
        # The least fill of the batches that leave in this drain.
        self._least = Fill.PARTIAL
        self._is_serving_due = False
        self._is_closed = False
        self._waking = DeadlineTimer(loop, partition_queues.deadlines.next, self._on_wake)
        self._expiry = DeadlineTimer(
            loop, partition_queues.incomplete.next_expiry, self._on_expiry, is_patient=True
        )
        schedule.drain_by(self)

    # Event-loop iterations

    def on_turn(self) -> None:
        """Drain for all brokers, unless a burst goes on, and serve the pending sends."""
        now = self._loop.time()
        state = self._state
        # An iteration that puts the drain off schedules the next one.
        since = max(self._schedule.due_since, state.now)
        state.now = now
        state.is_burst = bool(self._continuing)
        # How full a batch must be to leave in this drain.
        least = Fill.PARTIAL
        if state.is_burst:
            state.is_budget_full = self._loop_budget.is_full
            state.due_since = self._schedule.due_since
            state.open_batches = self._partition_queues.filling
            state.closed_batches = self._partition_queues.ready.closed
            least = self._policy.drain(state)
        if least is Fill.NEVER:
            self._admission.go_on()
            # The woken tasks send before that call.
            self._schedule.put_off()
            return
        self._schedule.begin(now)
        self._least = least
        state.note(least)
        is_taken = self.drain_all()
        if not least:
            state.partial_left -= state.batches
        self._serve_waiting(is_taken=is_taken)
        # Also if the task of the burst no longer sends: the batches that stayed open for it must leave.
        if least:
            self.turn()
        self._check_waking()
        # All batches have the same lifetime, so no new batch expires before the older ones.
        if self._expiry.timer is None:
            self._expiry.check()
        self._recorder.turned(now, now - since)

    def _serve_waiting(self, *, is_taken: bool) -> None:
        """Serve the pending sends after a drain; `is_taken`: it took a batch."""
        # While the fast path is open, no send waits; and mostly no task is to continue, nor was memory short.
        if (
            self._fast_path.fast
            and not self._continuing
            and not self._partition_queues.ready.memory_is_short
        ):
            return
        # To serve pending sends in the event-loop iteration of a drain, too, would take long.
        has_waiting = self._pool.has_waiting
        if is_taken and has_waiting:
            self.turn()
            if not self._is_serving_due:
                self._loop.call_soon(self._serve)
                self._is_serving_due = True
        elif has_waiting and not self._is_serving_due:
            self._admission.serve()
        elif not self._is_serving_due:
            self._admission.on_none_waiting(goes_on=not is_taken and self._policy.is_by_broker)

    def _serve(self) -> None:
        self._is_serving_due = False
        self._admission.serve()

    def _check_waking(self) -> None:
        # Mostly all batches have left, and nothing waits for a time.
        deadlines = self._partition_queues.deadlines
        if deadlines.filling or deadlines.lingering or deadlines.backing_off:
            self._waking.check()

    def _on_wake(self, now: float) -> None:
        # Otherwise the timer stays due and fires again.
        if not self._least:
            self._partition_queues.wake(now)
            self.drain_all()

    # Draining

    def drain_all(self) -> bool:
        """Drain the ready batches of all brokers. Returns True if any batch was drained."""
        is_taken = False
        if self._circuit_break_manager is not None:
            self._circuit_break_manager.on_turn()
        for node_id in self._partition_queues.ready.nodes():
            node = self._cluster.node(node_id)
            if node is not None:
                is_taken |= self.drain(node)
            else:
                self._request_update(sorted(self._partition_queues.ready.topics(node_id)))
        availability = self._partition_queues.availability
        if availability.timeout and availability.is_watching:
            availability.look(self._loop.time(), self._partition_queues.ready)
        return is_taken

    def on_node(self, node: BrokerNode) -> None:
        """Drain for a broker after its connection became ready or writable again, was lost, or could not be made.

        If the connection fails, other brokers may lead its partitions by now: new metadata is requested.
        """
        if node.failures:
            self._request_update(sorted(self._partition_queues.ready.topics(node.broker.node_id)))
        if self._circuit_break_manager is not None:
            self._circuit_break_manager.on_node(node)
        # In such a burst, the scheduled drain also takes what a writable connection lets go, as with answers.
        if not (self._policy.is_by_broker and self._state.may_be_burst and self._schedule.is_due):
            self.drain(node)

    def drain(self, node: BrokerNode, *, least: Fill = Fill.PARTIAL) -> bool:
        """Send the ready batches of `node`, one request for each free slot. Returns True if any batch was drained.

        The connection must be ready. Open batches that are less full than `least` stay open. In a burst, `DrainPolicy.is_by_broker` allows
        one request.
        """
        is_taken = False
        least = max(least, self._least)
        is_burst = self._state.may_be_burst
        most = self._policy.max_batches[is_burst]
        partition_queues, node_id = self._partition_queues, node.broker.node_id
        while partition_queues.ready.get(node_id):
            connection = node.produce.connection
            if connection is None or not (
                node.is_ready and connection.in_flight_requests.try_acquire()
            ):
                self._wait_for(node)
                break
            batches = partition_queues.drain(
                node_id,
                connection,
                self._config.max_request_size,
                most,
                least=least,
                ask=self._ask_breaker,
            )
            partition_queues.watch_drained(node_id, batches, self._loop.time())
            if not batches:
                connection.in_flight_requests.release()
                break
            self._pass_on(node, connection, batches)
            is_taken = True
            if not least:
                self._state.count(len(batches), self._policy.max_batches[True], is_burst=is_burst)
                if is_burst and self._policy.is_by_broker:
                    # The burst may be over by then, and what is ready must leave all the same.
                    self.turn()
                    break
        return is_taken

    def _pass_on(
        self, node: BrokerNode, connection: Connection, batches: list[ProducerBatch]
    ) -> None:
        """Send drained batches, encoded if a codec or an older format asks for it."""
        if self._encodes or connection.agreed.get(_PRODUCE, 0) < FIRST_WITH_RECORD_BATCHES:
            self._encodes = True
            magic = magic_of(connection, self._config.message_format_max)
            self._batch_compressor.encode(
                batches, magic, connection, partial(self._submit, node, connection, batches)
            )
        else:
            self._send(node, connection, batches)

    def _wait_for(self, node: BrokerNode) -> None:
        """Note that a broker takes no batch now, and request its produce connection if there is none."""
        self._partition_queues.availability.blocked(node.broker.node_id, self._loop.time())
        if not self._is_closed and node.produce.request_connection():
            # A dial to an address that the broker has left may take long.
            self._request_update(sorted(self._partition_queues.ready.topics(node.broker.node_id)))

    def _submit(
        self, node: BrokerNode, connection: Connection, batches: list[ProducerBatch]
    ) -> None:
        """Send batches that the compressor has encoded, perhaps long after their drain.

        They wait while the connection holds requests: a batch that was not sent has no attempt.
        """
        if connection.held is not None:
            again = partial(self._loop.run, self._submit, node, connection, batches)
            connection.held.append((again, lambda _: again()))
            return
        live = [batch for batch in batches if not batch.ended]
        if not live or not connection.is_usable:
            self._take_back(connection, batches, self._attempts.requeue)
            return
        for batch in batches if len(live) < len(batches) else ():
            # It expired while it was compressed, and was not sent in this attempt.
            if batch.ended:
                self._completion.let_go(batch)
        self._send(node, connection, live)

    def _send(self, node: BrokerNode, connection: Connection, batches: list[ProducerBatch]) -> None:
        """Write one request of encoded batches over a connection that takes it."""
        try:
            version = self._version(connection, batches)
            for batch in batches:
                _seal(batch, self._attributes, self._pool)
        except KafkaError as error:
            self._take_back(connection, batches, partial(self._completion.fail, cause=error))
            return
        now = self._loop.time()
        # The batches share it: a tuple in each batch would be one more object for the garbage collector.
        sent = ((now, f"broker {node.broker.node_id} at {connection.where}"),)
        for batch in batches:
            batch.state = NEXT[batch.state, _SEND]
            batch.attempts += 1
            batch.on_wire = True
            batch.history += sent
        asked = produce_exchange.asked(batches, version)
        body = produce_exchange.encode(
            asked, version, self._acks, self._timeout_ms, self._transactional_id
        )
        on_answer = self._loop.guarded(self._on_answer, node, connection, asked, now)
        if self._is_answered:
            connection.send(_PRODUCE, version, body, on_answer, self._request_timeout)
        else:
            connection.send_unanswered(_PRODUCE, version, body, on_answer)
        # The request is written. The calls below do not delay its answer.
        self._recorder.sent(now, batches)
        if self._circuit_break_manager is not None:
            self._circuit_break_manager.sent(batches)

    def _take_back(
        self,
        connection: Connection,
        batches: Iterable[ProducerBatch],
        end: Callable[[ProducerBatch], object],
    ) -> None:
        """Take back the batches of a request that is not written: release its slot, and call `end` with each batch that has not ended."""
        connection.in_flight_requests.release()
        for batch in batches:
            if not self._completion.let_go(batch):
                end(batch)
        self.turn()

    def _version(self, connection: Connection, batches: Sequence[ProducerBatch]) -> int:
        magic = batches[0].magic
        if magic < NEWEST:
            if self._partition_queues.idempotence.granted is not None:
                self.go_without_numbers(connection.where)
            version = produce_version(connection, magic)
        else:
            version = connection.version_of(_PRODUCE)
        if self._transaction is not None:
            version = min(version, self._transaction.newest_produce)
        if version >= produce_exchange.FIRST_WITH_TOPIC_IDS and NO_ID in [
            batch.queue.routing.topic_id for batch in batches
        ]:
            version = produce_exchange.FIRST_WITH_TOPIC_IDS - 1
        if version < produce_exchange.FIRST_WITH_ZSTD and self._codec is Compression.ZSTD:
            raise broker_error(
                "UNSUPPORTED_COMPRESSION_TYPE",
                f"{connection.where} is older than Kafka 2.1 and knows no zstd: choose another compression_type",
            )
        return version

    # Answers

    def _on_answer(
        self,
        node: BrokerNode,
        connection: Connection,
        asked: Asked,
        sent_at: float,
        answer: Answer | TransportError | None,
    ) -> None:
        """Take in an answer, the error that ended the connection, or with acks=0 None: a transport that is not full has the request."""
        connection.in_flight_requests.release()
        now = answer.at if isinstance(answer, Answer) else self._loop.time()
        responses, led, error = self._read(node, asked, answer)
        self._completions.hold()
        stale = self._end_attempts(responses, now)
        if stale - led:
            self._request_update(sorted({batch.queue.topic for batch in stale - led}))
        if isinstance(answer, Answer):
            self._recorder.answered(node.broker.node_id, sent_at, now, responses)
            if error is not None:
                connection.abort(error)
        elif answer is None:
            self._recorder.acknowledged(now, responses)
        self._go_on(node, responses)

    def _end_attempts(
        self, responses: Mapping[ProducerBatch, PartitionResponse], now: float
    ) -> set[ProducerBatch]:
        """End attempts. Returns the batches of partitions with stale metadata."""
        stale = set()
        for batch, response in responses.items():
            if self._completion.end_attempt(batch, response, now):
                stale.add(batch)
        if self._circuit_break_manager is not None:
            self._circuit_break_manager.ended(responses)
        return stale

    def _read(
        self, node: BrokerNode, asked: Asked, answer: Answer | TransportError | None
    ) -> tuple[dict[ProducerBatch, PartitionResponse], set[ProducerBatch], TransportError | None]:
        """Read an answer. Returns the response for each batch, the batches of partitions with a new leader that it named, and its error.

        Such a leader needs no metadata request (KIP-951).
        """
        if not isinstance(answer, Answer):
            return dict.fromkeys(asked.values(), PartitionResponse(answer)), set(), answer
        try:
            usual = produce_exchange.read_usual(asked, answer.version, answer.frame, answer.offset)
            if usual is not None:
                return usual, set(), None
            decoded = answer.decode(most=produce_exchange.most_elements(asked))
            if (
                decoded.throttle_time_ms > 0
                and answer.version >= produce_exchange.FIRST_WITH_THROTTLE
            ):
                node.throttle(decoded.throttle_time_ms)
                self._recorder.record(
                    "produce-throttle-time", self._loop.time(), decoded.throttle_time_ms
                )
            responses = produce_exchange.read(asked, decoded)
            if all(response.error is None for response in responses.values()):
                return responses, set(), None
            hints = produce_exchange.hints(asked, decoded)
            return responses, {batch for batch, hint in hints.items() if self._hint(*hint)}, None
        except ProtocolError as malformed:
            return dict.fromkeys(asked.values(), PartitionResponse(malformed)), set(), malformed

    def _go_on(self, node: BrokerNode, batches: Iterable[ProducerBatch]) -> None:
        node_id = node.broker.node_id
        if self._partition_queues.ready.get(node_id):
            least = self._policy.answer(
                is_burst=self._state.may_be_burst, is_scheduled=self._schedule.is_due
            )
            if least is not Fill.NEVER:
                self.drain(node, least=least)
        for batch in batches:
            # Batches that waited for this one may be ready for another broker.
            if batch.queue.leader != node_id:
                self.turn()
                break
        self._check_waking()
        self._completions.run()
        # After the woken tasks: their next records leave together with the records that lingered.
        if self._lingers_by_load and self._partition_queues.ready.get(node_id):
            self.turn()

    def _on_expiry(self, now: float) -> None:
        for batch in self._partition_queues.incomplete.expired(now):
            node = self._cluster.node(batch.queue.leader)
            now_told = node.last_error if node is not None else None
            cause = batch.error or now_told or ConnectionLost(self._completion.waits_for(batch))
            # Why it could not be sent again may be another reason than why it was sent once.
            why = "; since then: ".join(dict.fromkeys(map(str, filter(None, (cause, now_told)))))
            where = "no leader is known" if batch.queue.leader < 0 else f"it was {batch.state}"
            timeout = f"delivery_timeout_ms={self._config.delivery_timeout_ms:.15g}"
            self._completion.fail(
                batch, cause, f"not acknowledged within {timeout}: {where} ({why})"
            )
        self.turn()

    def fail_all(self, cause: KafkaError) -> None:
        """Fail every batch that has not ended, because the producer ends."""
        self._is_closed = True
        self._waking.stop()
        self._expiry.stop()
        for batch in list(self._partition_queues.incomplete):
            # An exception may have broken the end of one off.
            if not batch.ended:
                self._completion.fail(batch, cause)
        self._completion.wake_all()

    def identify(
        self, identity: ProducerIdAndEpoch | None, transactional_id: str | None = None
    ) -> None:
        """Set the producer id and epoch, and the transactional id that has them; None: the brokers support no producer ids."""
        self._transactional_id = transactional_id
        self._instruments.identity(identity)
        self._partition_queues.identify(identity)
        self.turn()

    def go_without_numbers(self, where: str) -> None:
        """Disable idempotence, with a warning, because the broker at `where` supports no producer ids.

        Raises:
            BrokerError: the user's configuration asks for idempotence or transactions.
        """
        if self._config.enable_idempotence or self._transactional_id is not None:
            raise broker_error(
                "UNSUPPORTED_FOR_MESSAGE_FORMAT",
                f"{where} is older than Kafka 0.11 and knows no idempotence: set enable_idempotence=False",
            )
        _log.warning(
            "%s is older than Kafka 0.11: records may be there twice. Set enable_idempotence=False if that is meant.",
            where,
        )
        self.identify(None)

    def drop_unsent(self, cause: KafkaError) -> None:
        """Fail the batches that have no sequence number: they were never sent (IDM-02, TXN-06).

        It is called when brokers refuse a producer id, or when a transaction is given up.
        """
        for batch in [batch for batch in self._partition_queues.incomplete if batch.sequence < 0]:
            self._completion.fail(batch, cause)


def _seal(batch: ProducerBatch, attributes: int, pool: BufferPool) -> None:
    """Give a batch the header that is before its payload on the wire."""
    payload = batch.payload
    assert payload is not None
    if batch.header is not None:
        return
    if batch.magic < NEWEST:
        # A message set has no header.
        batch.header = b""
    else:
        batch.header = header(
            payload,
            batch.count,
            attributes,
            batch.base_timestamp,
            batch.max_timestamp,
            batch.identity,
            batch.sequence,
        )
    # A batch that is not encoded has the size that it had at its close.
    if batch.is_encoded:
        shrink(pool, batch, len(payload) + BATCH_OVERHEAD)
