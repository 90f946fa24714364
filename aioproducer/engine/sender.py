"""From closed batches to their ends: drain, request, answer, retry, expiry, flush. An event loop in the place of Java's sender thread.

1. Draining is synchronous: while a broker's connection stands and a slot is free, its ready batches become one request. It happens
   once in each loop turn in which something was queued, at each answer, and when a timer lets batches go.
2. An answer frees its slot first, then ends its batches, then drains again; who waits is woken last.
3. A batch's bytes stay counted until the connection is done with them, also when its records have failed long before.

The rules are in `core`; this is the shell that has the loop. Knows nothing of how records come in, but for `intake`.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer.core.batch import Batch, Event, State
from aioproducer.core.metadata import NO_ID
from aioproducer.core.outcome import Action, fate, judge
from aioproducer.engine.alarm import Alarm
from aioproducer.engine.intake import BATCH_OVERHEAD
from aioproducer.errors import BrokerError, ConnectionLost, DeliveryError, KafkaError, ProtocolError, TransportError, broker_error
from aioproducer.model import Acks, Compression
from aioproducer.net.connection import Answer
from aioproducer.records.record_batch import header
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterable, Sequence

    from aioproducer.config import ProducerConfig
    from aioproducer.core.accumulator import Accumulator
    from aioproducer.core.backoff import Backoff
    from aioproducer.engine.completions import Completions
    from aioproducer.engine.encoder import Encoder
    from aioproducer.engine.hot import Way
    from aioproducer.engine.intake import Intake
    from aioproducer.engine.pool import BufferPool
    from aioproducer.net.cluster import Cluster
    from aioproducer.net.connection import Connection
    from aioproducer.net.node import Node

__all__ = ["Sender"]

_BURST_TURNS: Final = 8  # of a burst after which partial batches go too: a few ms; until then they fill instead
_FIRST_WITH_TOPIC_IDS: Final = 13
_FIRST_WITH_ZSTD: Final = 7


class Sender:
    """Sends what the accumulator holds; `connect` gives it the parts that need it first."""

    def __init__(
        self,
        config: ProducerConfig,
        loop: AbstractEventLoop,
        way: Way,
        accumulator: Accumulator,
        pool: BufferPool,
        completions: Completions,
        encoder: Encoder,
        backoff: Backoff,
        chance: Callable[[], float],
    ) -> None:
        self._config = config
        self._loop = loop
        self._way = way
        self._accumulator = accumulator
        self._pool = pool
        self._completions = completions
        self._encoder = encoder
        self._backoff = backoff
        self._chance = chance
        self._acks = cast("Acks", config.acks)
        self._codec = cast("Compression", config.compression_type)
        self._request_timeout = config.request_timeout_ms / 1000
        self._burst = 0  # loop turns that the burst of sends at hand has lasted
        self._is_turn_due = False
        self._is_closed = False
        self._flushes: list[Flush] = []
        self._waking = Alarm(loop, accumulator.next_wake, self._on_wake)
        self._expiry = Alarm(loop, accumulator.next_expiry, self._on_expiry)

    def connect(self, intake: Intake, cluster: Cluster, urge: Callable[[Iterable[str]], None]) -> None:
        """Name the parts that it works with; `urge` asks for fresh metadata."""
        self._intake = intake
        self._cluster = cluster
        self._urge = urge

    # Turns

    def tick(self) -> int:
        """The first send of a loop turn: the turn's time in ms, and a drain at its end."""
        now_ms = self._way.turn_ms = int(time.time() * 1000)
        self.turn()
        return now_ms

    def turn(self) -> None:
        """See to it that the next loop turn drains and serves who waits."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._is_turn_due = False
        self._way.turn_ms = 0
        self._burst = self._burst + 1 if self._intake.is_bursting else 0
        self._intake.new_turn()
        self._drain_all()
        self._intake.serve()
        self._waking.check()
        self._expiry.check()

    def _on_wake(self, now: float) -> None:
        self._accumulator.wake(now)
        self._drain_all()

    # Draining

    def _drain_all(self) -> None:
        for node_id in tuple(self._accumulator.ready_nodes()):
            node = self._cluster.node(node_id)
            if node is not None:
                self.drain(node)
            else:
                self._urge(self._accumulator.ready_topics(node_id))

    def on_node(self, node: Node) -> None:
        """A broker's connection stands, has room again, was lost, or could not be made: then perhaps others lead its partitions by now."""
        if node.failures:
            self._urge(self._accumulator.ready_topics(node.broker.node_id))
        self.drain(node)

    def drain(self, node: Node) -> None:
        """While the connection stands and a slot is free: what is ready, as one request."""
        accumulator = self._accumulator
        node_id = node.broker.node_id
        while node.is_ready and accumulator.has_ready(node_id) and node.slots.try_acquire():
            lane = node.produce.connection
            assert lane is not None
            batches = accumulator.drain(node_id, lane, self._config.max_request_size, full_only=self._burst % _BURST_TURNS != 0)
            if not batches:
                node.slots.release()
                return
            self._encoder.encode(batches, lane, partial(self._submit, node, lane, batches))
        if node.produce.connection is None and accumulator.has_ready(node_id) and not self._is_closed:
            node.want_produce()

    def _submit(self, node: Node, lane: Connection, batches: Sequence[Batch]) -> None:
        """Write one request of encoded batches."""
        live = [batch for batch in batches if not batch.ended]
        for batch in batches:
            if batch.ended:  # expired while it was compressed; it was never on the wire
                self._let_go(batch)
        if not live or not lane.is_usable:
            node.slots.release()
            for batch in live:
                self._accumulator.landed(batch)
                self._accumulator.requeue(batch, 0.0)
            self.turn()
            return
        try:
            version = self._version(lane, live)
        except KafkaError as error:
            node.slots.release()
            for batch in live:
                self._accumulator.landed(batch)
                self._fail(batch, error)
            self.turn()
            return
        for batch in live:
            self._seal(batch)
        if self._intake.has_line:  # what compression saved is free
            self.turn()
        body = codec("Produce.request", version).encode(self._request(live))
        if self._acks is Acks.NONE:
            lane.send_unanswered(ApiKey.PRODUCE, version, body, partial(self._on_written, node, lane, live))
        else:
            lane.send(ApiKey.PRODUCE, version, body, partial(self._on_answer, node, lane, live), self._request_timeout)

    def _version(self, lane: Connection, batches: Sequence[Batch]) -> int:
        version = lane.version_of(ApiKey.PRODUCE)
        if version >= _FIRST_WITH_TOPIC_IDS and any(batch.cell.route.topic_id == NO_ID for batch in batches):
            version = _FIRST_WITH_TOPIC_IDS - 1
        if self._codec is Compression.ZSTD and version < _FIRST_WITH_ZSTD:
            raise broker_error(
                "UNSUPPORTED_COMPRESSION_TYPE", f"{lane.where} is older than Kafka 2.1 and knows no zstd: choose another compression_type"
            )
        return version

    def _seal(self, batch: Batch) -> None:
        assert batch.payload is not None
        if batch.header is None:
            batch.header = header(batch.payload, batch.count, int(self._codec), batch.base_timestamp, batch.max_timestamp)
            self._intake.shrink(batch, len(batch.payload) + BATCH_OVERHEAD)
        batch.move(Event.SEND)
        batch.attempts += 1
        batch.on_wire = True

    def _request(self, batches: Sequence[Batch]) -> Any:
        topics: dict[str, Any] = {}
        for batch in batches:
            cell = batch.cell
            topic = topics.get(cell.topic)
            if topic is None:
                topic = topics[cell.topic] = message("Produce.request.topics", name=cell.topic, topic_id=cell.route.topic_id, partitions=[])
            topic.partitions.append(
                message("Produce.request.topics.partitions", index=cell.partition, records=(batch.header, batch.payload))
            )
        return message(
            "Produce.request",
            acks=int(self._acks),
            timeout_ms=int(self._config.request_timeout_ms),
            topics=list(topics.values()),
        )

    # Answers

    def _on_answer(self, node: Node, lane: Connection, batches: Sequence[Batch], answer: Answer | TransportError) -> None:
        node.slots.release()
        stale: set[str] = set()
        malformed: ProtocolError | None = None
        if isinstance(answer, Answer):
            try:
                told = self._told(batches, answer.decode())
            except ProtocolError as error:
                malformed, told = error, [error] * len(batches)
        else:
            told = [answer] * len(batches)
        for batch, outcome in zip(batches, told, strict=True):
            if self._end_attempt(batch, outcome):
                stale.add(batch.cell.topic)
        if stale:
            self._urge(stale)
        if malformed is not None:
            lane.abort(malformed)
        self._go_on(node, batches)

    def _on_written(self, node: Node, _lane: Connection, batches: Sequence[Batch], error: TransportError | Answer | None) -> None:
        """acks=0: a request is done when it is handed to a transport that is not full."""
        node.slots.release()
        for batch in batches:
            self._end_attempt(batch, error if isinstance(error, TransportError) else (-1, -1))
        self._go_on(node, batches)

    def _go_on(self, node: Node, batches: Sequence[Batch]) -> None:
        self.drain(node)
        node_id = node.broker.node_id
        if self._intake.has_line or any(batch.cell.leader != node_id for batch in batches):  # what waited for these may go elsewhere
            self.turn()
        self._waking.check()
        self._completions.run()

    def _told(self, batches: Sequence[Batch], answer: Any) -> list[Any]:
        """What an answer says of each batch: (base offset, log append time), or an error. What it leaves out may have been written."""
        by_place: dict[Any, Any] = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                by_place[topic.name or topic.topic_id, partition.index] = partition
        told: list[Any] = []
        for batch in batches:
            cell = batch.cell
            partition = by_place.get((cell.topic, cell.partition)) or by_place.get((cell.route.topic_id, cell.partition))
            if partition is None:
                told.append(ProtocolError(f"the answer left out {cell.topic}-{cell.partition}"))
            elif partition.error_code:
                told.append(broker_error(partition.error_code, partition.error_message))
            else:
                told.append((partition.base_offset, partition.log_append_time_ms))
        return told

    def _end_attempt(self, batch: Batch, outcome: tuple[int, int] | BrokerError | TransportError) -> bool:
        """One attempt is over; True: metadata is stale."""
        self._let_go(batch)
        if batch.ended:
            return False
        if isinstance(outcome, tuple):
            batch.result.complete(*outcome)
            self._accumulator.end(batch, Event.ACKNOWLEDGE)
            self._accumulator.succeeded(batch.cell)
            self._finish(batch)
            return False
        verdict = judge(outcome)
        batch.may_be_written |= verdict.uncertain
        now = self._loop.time()
        if verdict.action is Action.FAIL or now >= batch.expires_at:
            self._fail(batch, outcome)
        else:
            self._accumulator.requeue(batch, now + self._backoff.after(batch.attempts, self._chance()))
        return verdict.refresh

    def _let_go(self, batch: Batch) -> None:
        """The connection is done with the bytes of a batch."""
        batch.on_wire = False
        self._accumulator.landed(batch)
        if batch.ended:
            self._pool.release(batch.credit)
            batch.credit = 0

    # Ends

    def _fail(self, batch: Batch, cause: KafkaError, reason: str | None = None) -> None:
        cell = batch.cell
        error = DeliveryError(
            reason or str(cause), topic=cell.topic, partition=cell.partition, persisted=fate(batch), attempts=batch.attempts
        )
        error.__cause__ = cause
        self._accumulator.end(batch, Event.FAIL)
        batch.result.fail(error)
        self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        """A batch ended: its payload and, unless a connection holds them, its bytes are free; who waits for it is woken."""
        batch.payload = batch.header = None
        if not batch.held:
            self._pool.release(batch.credit)
            batch.credit = 0
        self._completions.add(batch.result)
        for flush in tuple(self._flushes):
            if flush.ended(batch):
                self._flushes.remove(flush)

    def _on_expiry(self, now: float) -> None:
        for batch in self._accumulator.expired(now):
            node = self._cluster.node(batch.cell.leader)
            cause: KafkaError = (
                node.last_error if node is not None and node.last_error is not None else ConnectionLost("no acknowledgement")
            )
            where = "no leader is known" if batch.cell.leader < 0 else f"it was {batch.state}"
            self._fail(batch, cause, f"not acknowledged within delivery_timeout_ms={self._config.delivery_timeout_ms:g}: {where} ({cause})")
        self.turn()

    def fail_all(self, cause: KafkaError) -> None:
        """The producer ends: every record that is not acknowledged fails."""
        self._is_closed = True
        self._waking.stop()
        self._expiry.stop()
        for batch in list(self._accumulator.incomplete):
            self._fail(batch, cause)

    # Flush

    def start_flush(self, wake: Callable[[], None]) -> Flush:
        """Let every batch go now and watch those that are not ended; `wake` is called when the last one is."""
        self._accumulator.hurry()
        for cell in self._accumulator.open_cells():
            self._accumulator.close(cell)
        flush = Flush(self._accumulator.incomplete, wake)
        if flush.pending:
            self._flushes.append(flush)
        self._drain_all()
        return flush

    def stop_flush(self, flush: Flush) -> None:
        """Nobody waits for it any more."""
        if flush in self._flushes:
            self._flushes.remove(flush)


class Flush:
    """The batches that one flush covers, and what became of their records."""

    __slots__ = ("_batches", "_wake", "acknowledged", "failed", "pending")

    def __init__(self, batches: Iterable[Batch], wake: Callable[[], None]) -> None:
        self._batches = set(batches)
        self._wake = wake
        self.acknowledged = 0
        self.failed = 0
        self.pending = sum(batch.count for batch in self._batches)

    def ended(self, batch: Batch) -> bool:
        """Count a batch that ended; True: it was the last."""
        if batch not in self._batches:
            return False
        self._batches.remove(batch)
        self.pending -= batch.count
        if batch.state is State.DONE:
            self.acknowledged += batch.count
        else:
            self.failed += batch.count
        if not self._batches:
            self._wake()
        return not self._batches
