"""A producer that records every call: used by the drawn workload, and passed to a test's own workload.

Each record's value is unique (a number and padding), so that the checker finds it in the log.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from aioproducer import Deliveries
from aioproducer.errors import DeliveryError, KafkaError, Persisted, TransactionError
from aioproducer.model import Record
from tests.simulation.history import End, Fate, History, Sent, Transaction, value_of

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["Client"]


class Client:
    """Sends through a producer and records each call in a history.

    Args:
        make: makes the producer under test, and another one after a fatal error.
        history: the history to write to.
        rng: random source for a workload's choices.
        limits: see Attributes.
        jumped: returns the seconds that the process has slept so far; they do not count towards the limits.

    Attributes:
        limits: seconds that a call of `send`, `flush` and `stop` may take.
        transaction: the open transaction.
        cancelled: numbers of cancelled calls, by kind.
        is_stopping: whether no new producer may be made.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        history: History,
        rng: random.Random,
        limits: dict[str, float],
        jumped: Callable[[], float],
    ) -> None:
        self.producer: Any = make()
        self.history = history
        self.rng = rng
        self.limits = limits
        self.transaction: Transaction | None = None
        self.cancelled: Counter[str] = Counter()
        self.is_stopping = False
        self.on_end: Callable[[Any], None] = lambda _producer: None
        self._make = make
        self._jumped = jumped
        self._loop = asyncio.get_running_loop()

    # --- records

    async def send(
        self, topic: str, *, size: int = 0, key: bytes | None = None, partition: int | None = None
    ) -> Any:
        """Call `Producer.send` with a value of `size` + 6 bytes. Returns the delivery; errors and cancellation as `Producer.send`."""
        sent = self._called(topic, partition, size, key)
        try:
            delivery = await self._bounded(
                "send",
                self.producer.send(topic, value_of(sent.number, size), key, partition=partition),
            )
        # whatever ends the call, a cancellation too, is in the history
        except BaseException as error:
            self._refused(sent, error)
            raise
        self._queued(sent, delivery)
        return delivery

    def send_nowait(
        self, topic: str, *, size: int = 0, key: bytes | None = None, partition: int | None = None
    ) -> Any:
        """Call `Producer.send_nowait` with a value of `size` + 6 bytes. Returns the delivery."""
        sent = self._called(topic, partition, size, key)
        try:
            delivery = self.producer.send_nowait(
                topic, value_of(sent.number, size), key, partition=partition
            )
        except KafkaError as error:
            self._refused(sent, error)
            raise
        self._queued(sent, delivery)
        return delivery

    async def send_many(
        self, topic: str, count: int, *, size: int = 0, partition: int | None = None
    ) -> Any:
        """Call `Producer.send_many` with `count` records. Returns the deliveries."""
        many = [self._called(topic, partition, size) for _ in range(count)]
        records = [Record(value_of(sent.number, size), partition=partition) for sent in many]
        deliveries: Sequence[Any] = ()
        try:
            deliveries = await self.producer.send_many(topic, records)
        # as in `send`
        except BaseException as error:
            deliveries = Deliveries.of(error)
            for sent in many[len(deliveries) :]:
                self._refused(sent, error)
            raise
        finally:
            for sent, delivery in zip(many, deliveries, strict=False):
                self._queued(sent, delivery)
                sent.last = self.history.calls
        return deliveries

    async def send_and_wait(
        self, topic: str, *, size: int = 0, key: bytes | None = None, partition: int | None = None
    ) -> Any:
        """Call `send`, and wait for the acknowledgement."""
        return await (await self.send(topic, size=size, key=key, partition=partition))

    # --- flush and stop

    async def flush(self, timeout: float | None = None) -> Any:
        """Call `Producer.flush`."""
        self.history.tell("flush", f"within {timeout} s")
        summary = await self._bounded("flush", self.producer.flush(timeout))
        self.history.tell("flush", f"{summary}")
        return summary

    async def stop(self) -> None:
        """Call `Producer.stop`."""
        self.history.tell("stop", "called")
        await self._bounded("stop", self.producer.stop())
        self.history.tell("stop", "returned")

    # --- transactions

    async def begin(self) -> None:
        """Call `Producer.begin_transaction`."""
        await self.producer.begin_transaction()
        self.opened()

    async def commit(self) -> None:
        """Call `Producer.commit_transaction`."""
        self.told("commit")
        await self._bounded("end", self.producer.commit_transaction())

    async def abort(self) -> None:
        """Call `Producer.abort_transaction`."""
        self.told("abort")
        await self._bounded("end", self.producer.abort_transaction())

    async def send_offset(self, topic: str, group: str) -> None:
        """Call `Producer.send_offsets_to_transaction` with the transaction's number as the offset."""
        assert self.transaction is not None
        self.transaction.offset = self.transaction.number
        await self.producer.send_offsets_to_transaction(
            {(topic, 0): self.transaction.number}, group
        )
        self.transaction.has_offset = True

    def opened(self) -> Transaction:
        """Record an opened transaction; further records belong to it."""
        self.transaction = Transaction(len(self.history.transactions))
        self.history.transactions.append(self.transaction)
        self.told("open")
        return self.transaction

    def closed(self, fate: Fate) -> None:
        """Record the end of the transaction, as the producer reported it to its caller."""
        assert self.transaction is not None
        self.transaction.fate = fate
        self.told(f"is {fate}")
        self.transaction = None

    def told(self, what: str) -> None:
        """Add an event of the open transaction, or of a call outside one."""
        who = "call" if self.transaction is None else f"transaction {self.transaction.number}"
        self.history.tell(who, what)

    async def renew(self) -> bool:
        """Stop a producer after a fatal error, and start another one. Returns False if the client is stopping."""
        if self.is_stopping:
            return False
        await self.stop()
        self.on_end(self.producer)
        # `is_stopping` may have changed during the stop
        if self.is_stopping:
            return False
        self.producer = self._make()
        self.history.tell("start", "another producer")
        await self.producer.start(wait=False)
        if self.is_stopping:
            await self.stop()
        return not self.is_stopping

    # --- recording

    def _called(
        self, topic: str, partition: int | None, size: int, key: bytes | None = None
    ) -> Sent:
        history = self.history
        call = history.next_call()
        sent = Sent(
            len(history.sent),
            topic,
            partition,
            call,
            call,
            self._loop.time(),
            transaction=self.transaction,
            size=size,
            key=key,
        )
        history.sent.append(sent)
        if self.transaction is not None:
            self.transaction.records.append(sent)
        return sent

    def _refused(self, sent: Sent, error: BaseException) -> None:
        sent.refused = type(error).__name__
        self.history.tell("send", f"{sent}: not queued: {sent.refused}: {error}")

    def _queued(self, sent: Sent, delivery: Any) -> None:
        sent.queued_at = self._loop.time()
        self.history.tell("send", f"{sent}: queued")
        delivery.add_done_callback(lambda ended: self._ended(sent, ended))

    def _ended(self, sent: Sent, delivery: Any) -> None:
        end = self._end_of(sent, delivery)
        sent.ends.append(end)
        told = (
            f"ok, {sent.topic}-{end.partition} at {end.offset}"
            if not end.error
            else f"{end.error} (persisted={end.persisted})"
        )
        self.history.tell("delivery", f"{sent}: {told}")

    def _end_of(self, sent: Sent, delivery: Any) -> End:
        now = self._loop.time()
        if delivery.cancelled():
            sent.is_doubtful = True
            return End(now, -1, -1, "cancelled", Persisted.MAYBE)
        error = delivery.exception()
        if error is None:
            metadata = delivery.result()
            return End(now, metadata.partition, metadata.offset)
        persisted = error.persisted if isinstance(error, DeliveryError) else Persisted.MAYBE
        is_dropped = isinstance(error.__cause__, TransactionError)
        return End(
            now,
            getattr(error, "partition", -1),
            -1,
            f"{type(error).__name__}: {error}",
            persisted,
            is_dropped,
        )

    async def _bounded(self, what: str, call: Awaitable[Any]) -> Any:
        began = self._loop.time() - self._jumped()
        try:
            return await call
        finally:
            took = self._loop.time() - self._jumped() - began
            if took > self.limits[what]:
                self.history.overdue.append(
                    f"{what} took {took:.3f} s, and may take {self.limits[what]:.3f} s"
                )
