# cython: language_level=3, boundscheck=True, wraparound=False, nonecheck=True, auto_pickle=False
# cython: binding=False, embedsignature=True, embedsignature.format=clinic
"""Holds `Delivery`, the outcome of one record, compiled. The twin is `delivery.py`.

1. The cyclic collector does not see a delivery. A delivery is in a cycle only while a callback of its own batch waits, and each batch
   ends.
2. A task that awaits a delivery blocks on a `DeliveryWaiter`, which costs less than a future. The loop wakes the task.
3. The collector does not see the metadata of an acknowledged record, which holds a string, numbers and a member of an enum.
"""

cimport cython
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int64_t

from aioproducer.engine.delivery._produce_request_result cimport ProduceRequestResult, DeliveryContext

from asyncio import CancelledError, InvalidStateError

from aioproducer.engine.delivery import delivery as twin
from aioproducer.engine.delivery.outcome import Outcome
from aioproducer.model import RecordMetadata

cdef extern from *:
    """
    /* Since 3.14 a tuple remembers its hash. One that PyType_GenericAlloc made says 0 there, which means a hash of 0. */
    #if PY_VERSION_HEX >= 0x030E0000
    #define metadata_forgets_hash(metadata) (((PyTupleObject *)(metadata))->ob_hash = -1)
    #else
    #define metadata_forgets_hash(metadata) ((void)(metadata))
    #endif
    """
    void metadata_forgets_hash(object metadata)

cdef extern from "Python.h":
    object PyContext_CopyCurrent()
    object PyType_GenericAlloc(type kind, Py_ssize_t items)
    void PyObject_GC_UnTrack(void *held)

cdef object _PENDING = Outcome.PENDING
cdef object _DONE = Outcome.DONE
cdef object _CANCELLED = Outcome.CANCELLED
cdef object _SPLIT = Outcome.SPLIT
cdef type _RecordMetadata = RecordMetadata
# Beyond this base offset a sum with an index may exceed an int64_t.
cdef int64_t _LAST_BASE = 2**60


cdef inline int put_field(object metadata, Py_ssize_t at, object value) except -1:
    # PyTuple_SET_ITEM takes over a reference.
    Py_INCREF(value)
    PyTuple_SET_ITEM(metadata, at, value)
    return 0


cdef inline object item_of(object column, Py_ssize_t index):
    return (<tuple>column)[index] if type(column) is tuple else column[index]


cdef object metadata_of(ProduceRequestResult result, Py_ssize_t index):
    """Return the metadata of the record at `index`, as `ProduceRequestResult.metadata` does. The outcome must be DONE."""
    cdef object metadata, timestamp
    cdef object key_size = item_of(result._key_sizes, index)
    cdef object value_size = item_of(result._value_sizes, index)
    cdef object offset = result.base_offset
    cdef int64_t base
    if type(offset) is int and offset < _LAST_BASE:
        base = offset
        offset = base + index
    else:
        offset = offset + index
    timestamp = result.base_timestamp
    if result._deltas is not None:
        timestamp = timestamp + result._deltas[index]
    metadata = PyType_GenericAlloc(_RecordMetadata, 7)
    metadata_forgets_hash(metadata)
    put_field(metadata, 0, result.topic)
    put_field(metadata, 1, result.partition)
    put_field(metadata, 2, offset)
    put_field(metadata, 3, timestamp)
    put_field(metadata, 4, result.timestamp_type)
    put_field(metadata, 5, key_size)
    put_field(metadata, 6, value_size)
    PyObject_GC_UnTrack(<void *>metadata)
    return metadata


@cython.no_gc
@cython.freelist(512)
@cython.final
cdef class Delivery:
    __doc__ = twin.Delivery.__doc__

    _asyncio_future_blocking = False

    def __await__(self):
        cdef ProduceRequestResult result = self._result
        cdef Py_ssize_t index = self.index
        cdef DeliveryWaiter waiter
        if result.outcome is _DONE:
            return metadata_of(result, index)
        if result.outcome is _SPLIT:
            result, index = result.place_of(index)
        while result.outcome is _PENDING:
            waiter = DeliveryWaiter.__new__(DeliveryWaiter)
            waiter.delivery_context = result.delivery_context
            waiter._asyncio_future_blocking = True
            if result.futures is None:
                result.futures = [waiter]
            else:
                result.futures.append(waiter)
            yield waiter
            waiter.result()
            result, index = result.place_of(index)
        return metadata_of(result, index) if result.outcome is _DONE else result.get(index)

    def result(self):
        """Return the metadata of the record.

        Raises:
            DeliveryError: the record was not acknowledged; each call raises its own copy.
            asyncio.InvalidStateError: the record has not ended yet.
            asyncio.CancelledError: this handle was cancelled.
        """
        cdef ProduceRequestResult result = self._result
        return metadata_of(result, self.index) if result.outcome is _DONE else result.get(self.index)

    def exception(self):
        """Return the record's `DeliveryError`, or None once it is acknowledged. Raises as `result` does while neither is known."""
        return None if self._result.outcome is _DONE else self._follow().failure()

    def done(self):
        """Return whether the record has ended."""
        cdef object outcome = self._result.outcome
        return outcome is not _PENDING and (outcome is not _SPLIT or self._follow().outcome is not _PENDING)

    def cancelled(self):
        """Return whether this handle was cancelled."""
        return self._result.outcome is _CANCELLED

    def cancel(self, msg=None):
        """End this handle, but never the record. Returns False if it had ended."""
        cdef ProduceRequestResult result = self._follow()
        if result.outcome is not _PENDING:
            return False
        self._result = result.delivery_context.cancelled(msg)
        result.look()
        for callback, context in result.take_callbacks(self, None):
            result.delivery_context.loop.call_soon(callback, self, context=context)
        return True

    def get_loop(self):
        """Return the event loop of the producer."""
        return self._result.delivery_context.loop

    def add_done_callback(self, callback, *, context=None):
        """Call `callback(delivery)` once the record has ended, in the order of the records. An exception of one affects no other."""
        cdef ProduceRequestResult result = self._result
        cdef list callbacks
        if result.outcome is _SPLIT:
            result = self._follow()
        result.looked_at = True
        if context is None:
            context = result.delivery_context.shared(PyContext_CopyCurrent())
        if result.outcome is not _PENDING:
            result.add_callback(self, callback, context)
        elif result.callbacks is None:
            result.callbacks = [self, callback, context]
        else:
            callbacks = result.callbacks
            callbacks.append(self)
            callbacks.append(callback)
            callbacks.append(context)

    def remove_done_callback(self, callback):
        """Remove a callback. Returns how many were removed."""
        return len(self._result.take_callbacks(self, callback))

    cpdef ProduceRequestResult _follow(self):
        """Return the result that has the record now. After a split it may be another one than at first."""
        self._result, self.index = self._result.place_of(self.index)
        return self._result

    @property
    def _cancel_message(self):
        """Return what `asyncio.gather(return_exceptions=True)` reads from a cancelled child. Without it gather hangs."""
        return self._result.cancel_message

    def _make_cancelled_error(self):
        """Return the error that `asyncio.gather` requests from a cancelled child. Without it gather hangs."""
        return self._result.cancelled_error()

    def __repr__(self):
        cdef ProduceRequestResult result = self._follow()
        where = f"{result.topic}-{result.partition}" if result.topic else "handle"
        return f"<Delivery {where} {result.outcome.value}>"


cdef enum State:
    WAITING
    WOKEN
    CANCELLED


@cython.freelist(256)
@cython.final
cdef class DeliveryWaiter:
    """Holds the wait of one task for a delivery, in asyncio's future protocol. Cancelling the task cancels this waiter alone."""

    cdef DeliveryContext delivery_context
    cdef object callback, context, cancel_message
    cdef State state
    cdef public bint _asyncio_future_blocking

    def set_result(self, nothing):
        """Schedule the waiting task in the loop."""
        self.end(WOKEN, self.delivery_context.loop.call_soon)

    cdef int end(self, State state, object call_soon) except -1:
        if self.state != WAITING:
            return 0
        self.state = state
        callback, self.callback = self.callback, None
        context, self.context = self.context, None
        if callback is not None:
            call_soon(callback, self, context=context)
        return 0

    def result(self):
        """Return None once the task is woken. Raises if the wait was cancelled or has not ended."""
        if self.state == CANCELLED:
            raise CancelledError() if self.cancel_message is None else CancelledError(self.cancel_message)
        if self.state == WAITING:
            raise InvalidStateError("Result is not set.")

    def done(self):
        """Return whether the wait has ended."""
        return self.state != WAITING

    def cancelled(self):
        """Return whether the wait was cancelled."""
        return self.state == CANCELLED

    def cancel(self, msg=None):
        """End the wait: the loop runs the task, with CancelledError. Returns False if the wait had ended."""
        if self.state != WAITING:
            return False
        # anyio knows the cancellations of its scopes by their message alone.
        self.cancel_message = msg
        self.end(CANCELLED, self.delivery_context.loop.call_soon)
        return True

    @property
    def _loop(self):
        return self.delivery_context.loop

    def add_done_callback(self, callback, *, context=None):
        """Call `callback(waiter)` once the wait has ended. A task adds one callback."""
        if self.state != WAITING:
            self.delivery_context.loop.call_soon(callback, self, context=context)
            return
        self.callback = callback
        self.context = PyContext_CopyCurrent() if context is None else context

    def remove_done_callback(self, callback):
        """Remove the callback. Returns 1 if it was that one, else 0."""
        if self.callback is None or self.callback != callback:
            return 0
        self.callback = self.context = None
        return 1


cdef Delivery delivery_of(ProduceRequestResult result, Py_ssize_t index):
    cdef Delivery delivery = Delivery.__new__(Delivery)
    delivery._result = result
    delivery.index = index
    return delivery


def make_delivery(ProduceRequestResult result not None, Py_ssize_t index):
    """Return the delivery of the record at `index` of a batch."""
    return delivery_of(result, index)


def are_in_order(list deliveries not None):
    """Return whether deliveries of one batch are in the order of their records."""
    cdef Py_ssize_t index, last = 0
    for delivery in deliveries:
        index = (<Delivery>delivery).index if type(delivery) is Delivery else delivery.index
        if index < last:
            return False
        last = index
    return True


def wake(futures):
    """Schedule the task of each future that a task still waits for."""
    cdef DeliveryContext delivery_context = None
    cdef object call_soon = None
    for future in futures:
        if type(future) is DeliveryWaiter:
            if (<DeliveryWaiter>future).delivery_context is not delivery_context:
                delivery_context = (<DeliveryWaiter>future).delivery_context
                call_soon = delivery_context.loop.call_soon
            (<DeliveryWaiter>future).end(WOKEN, call_soon)
        elif not future.done():
            future.set_result(None)


def uncollected(ProduceRequestResult result not None):
    """Remove an acknowledged batch's result from the cyclic collector: once its waiters are notified, it is in no cycle."""
    PyObject_GC_UnTrack(<void *>result)
