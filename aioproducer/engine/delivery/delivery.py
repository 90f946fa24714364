"""Holds `Delivery`, the outcome of one record, in plain Python.

The compiled twin is `_delivery.pyx`; one contract suite runs both.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError
from collections.abc import Callable, Generator, Iterable
from contextvars import Context, copy_context
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.delivery.outcome import Outcome
from aioproducer.errors import DeliveryError
from aioproducer.model import RecordMetadata

if TYPE_CHECKING:
    from asyncio import Future

    from aioproducer.engine.delivery.produce_request_result import ProduceRequestResult

_index: Final = attrgetter("index")
_PENDING: Final = Outcome.PENDING
_DONE: Final = Outcome.DONE
_CANCELLED: Final = Outcome.CANCELLED
_SPLIT: Final = Outcome.SPLIT


if TYPE_CHECKING:
    # To type checkers, asyncio.wait accepts only a Future. At run time a Delivery is one by its methods alone.
    FutureMetadata = Future[RecordMetadata]
else:
    FutureMetadata = object


class Delivery(FutureMetadata):
    """Holds the outcome of one record: awaitable, and a future for asyncio's helpers.

    `await delivery` returns its `RecordMetadata` or raises its `DeliveryError`. A delivery satisfies asyncio's future protocol by duck
    typing: `gather`, `wait`, `wait_for`, `shield` and `as_completed` accept it without a task.

    Cancellation: cancelling a task that awaits the delivery affects neither the record nor any other waiter. `cancel()`, which `gather`
    and Python 3.11's `wait_for` call, ends this handle; the record is sent all the same.
    """

    # Few and small: the cyclic collector walks each slot.
    __slots__ = ("_result", "index")
    # asyncio.isfuture checks for this attribute. A task blocks on a private future.
    _asyncio_future_blocking = False
    _result: ProduceRequestResult
    index: int

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        result = self._result
        if result.outcome is _DONE:
            return result.metadata(self.index)
        index = self.index
        while True:
            if result.outcome is _SPLIT:
                result, index = result.place_of(index)
            if result.outcome is not _PENDING:
                return result.get(index)
            # Each task has a future of its own: cancelling one affects no other.
            future = result.delivery_context.loop.create_future()
            if result.futures is None:
                result.futures = [future]
            else:
                result.futures.append(future)
            yield from future

    def result(self) -> RecordMetadata:
        """Return the metadata of the record.

        Raises:
            DeliveryError: the record was not acknowledged; each call raises its own copy.
            asyncio.InvalidStateError: the record has not ended yet.
            asyncio.CancelledError: this handle was cancelled.
        """
        result = self._result
        return result.metadata(self.index) if result.outcome is _DONE else result.get(self.index)

    def exception(self) -> DeliveryError | None:
        """Return the record's `DeliveryError`, or None once it is acknowledged. Raises as `result` does while neither is known."""
        return None if self._result.outcome is _DONE else self._follow().failure()

    def done(self) -> bool:
        """Return whether the record has ended."""
        outcome = self._result.outcome
        return outcome is not _PENDING and (
            outcome is not _SPLIT or self._follow().outcome is not _PENDING
        )

    def cancelled(self) -> bool:
        """Return whether this handle was cancelled."""
        return self._result.outcome is _CANCELLED

    def cancel(self, msg: object = None) -> bool:
        """End this handle, but never the record. Returns False if it had ended."""
        result = self._follow()
        if result.outcome is not _PENDING:
            return False
        self._result = result.delivery_context.cancelled(msg)
        result.look()
        for callback, context in result.take_callbacks(self, None):
            result.delivery_context.loop.call_soon(callback, self, context=context)
        return True

    def get_loop(self) -> AbstractEventLoop:
        """Return the event loop of the producer."""
        return self._result.delivery_context.loop

    def add_done_callback(
        self, callback: Callable[[Delivery], object], *, context: Context | None = None
    ) -> None:
        """Call `callback(delivery)` once the record has ended, in the order of the records. An exception of one affects no other."""
        result = self._result
        if result.outcome is _SPLIT:
            result = self._follow()
        result.looked_at = True
        if context is None:
            context = result.delivery_context.shared(copy_context())
        if result.outcome is not _PENDING:
            result.add_callback(self, callback, context)
        elif result.callbacks is None:
            result.callbacks = [self, callback, context]
        else:
            result.callbacks += (self, callback, context)

    def remove_done_callback(self, callback: Callable[[Delivery], object]) -> int:
        """Remove a callback. Returns how many were removed."""
        return len(self._result.take_callbacks(self, callback))

    def _follow(self) -> ProduceRequestResult:
        """Return the result that has the record now. After a split it may be another one than at first."""
        self._result, self.index = self._result.place_of(self.index)
        return self._result

    @property
    def _cancel_message(self) -> object:
        """Return what `asyncio.gather(return_exceptions=True)` reads from a cancelled child. Without it gather hangs."""
        return self._result.cancel_message

    def _make_cancelled_error(self) -> CancelledError:
        """Return the error that `asyncio.gather` requests from a cancelled child. Without it gather hangs."""
        return self._result.cancelled_error()

    def __repr__(self) -> str:
        result = self._follow()
        where = f"{result.topic}-{result.partition}" if result.topic else "handle"
        return f"<Delivery {where} {result.outcome.value}>"


def make_delivery(result: ProduceRequestResult, index: int) -> Delivery:
    """Return the delivery of the record at `index` of a batch."""
    delivery = Delivery()
    delivery._result = result
    delivery.index = index
    return delivery


def are_in_order(deliveries: Iterable[Any]) -> bool:
    """Return whether deliveries of one batch are in the order of their records."""
    order = list(map(_index, deliveries))
    return order == sorted(order)


def wake(futures: Iterable[Future[None]]) -> None:
    """Schedule the task of each future that a task still waits for."""
    for future in futures:
        if not future.done():
            future.set_result(None)
