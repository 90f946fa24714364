"""The user's interceptors, called around each record on the fast path and on the slow path.

An error of an interceptor never reaches the record, the caller of `send` or the next interceptor: it is counted, and logged once for each
kind. A delivery of this module's own reports how a record ended. So the interceptors are called once for each record, independent of the
user's delivery. A failure that the user has not looked at stays unhandled.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.record_validation import header_pairs
from aioproducer.engine.chosen_build import Delivery, make_delivery
from aioproducer.errors import UsageError
from aioproducer.interfaces import METHODS, USER_FAILURES
from aioproducer.model import ProducerRecord, exact_int

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproducer.engine.memory.pending_send import PendingSend
    from aioproducer.engine.observability.diagnostics import SlowCallbacks
    from aioproducer.metrics.registry import Metrics
    from aioproducer.model import Headers

_log = logging.getLogger(__name__)
_NO_PARTITION: Final = -1


class ProducerInterceptors:
    """Calls the interceptors of one producer.

    Args:
        given: interceptors, or classes to make them of.
        watch: times the interceptors.

    Raises:
        UsageError: a class cannot be called without arguments.
    """

    def __init__(
        self,
        given: Iterable[Any],
        loop: asyncio.AbstractEventLoop,
        watch: SlowCallbacks,
        metrics: Metrics,
    ) -> None:
        self._loop = loop
        self._metrics = metrics
        # Records with an end still to report, beside those that wait.
        self._open = 0
        self._is_closing = False
        self._told: set[tuple[str, type[BaseException]]] = set()
        self._watch = watch
        self._methods: dict[str, list[tuple[str, Callable[..., Any]]]] = {
            method: [] for method in METHODS
        }
        # The methods `close` of interceptors that were made of classes.
        self._own: list[tuple[str, Callable[..., Any]]] = []
        for each in given:
            one = _made(each)
            for method in METHODS:
                if callable(function := getattr(one, method, None)):
                    self._methods[method].append((f"{type(one).__name__}.{method}", function))
            if one is not each and callable(getattr(one, "close", None)):
                self._own.append(self._methods["close"][-1])
        self._on_send = self._methods["on_send"]

    def around(
        self, accept: Callable[..., Delivery | PendingSend]
    ) -> Callable[..., Delivery | PendingSend]:
        """Return `accept`, which is `RecordAccumulator.submit`, with interceptors around it."""

        def intercepted(
            topic: Any, value: Any, key: Any, partition: Any, time: Any, headers: Any, *others: Any
        ) -> Delivery | PendingSend:
            record = self._sent(ProducerRecord(topic, value, key, partition, time, headers))
            try:
                taken = accept(*record, *others)
            except Exception as error:
                self._on_refused(record, error)
                raise
            if isinstance(taken, Delivery):
                self._follow(record.headers, taken)
            elif taken.delivery is not None:
                self._follow(record.headers, taken.delivery)
            else:
                assert taken.done is not None
                self._open += 1
                taken.done.add_done_callback(partial(self._on_pending_done, record, taken))
            return taken

        return intercepted

    def _sent(self, record: ProducerRecord) -> ProducerRecord:
        """Call `on_send` of each interceptor with the record that the one before returned. Returns the last one's record."""
        if record.headers or type(record.headers) is not tuple:
            record = _with_headers(record)
        for name, method in self._on_send:
            changed = self._call(name, method, record)
            if changed is None:
                continue
            try:
                if not isinstance(changed, ProducerRecord):
                    raise UsageError(
                        f"it gave a {type(changed).__name__}: it gives a ProducerRecord, or None"
                    )
                record = _with_headers(changed)
            # Headers may be an object of any class.
            except USER_FAILURES as error:
                self._tell(name, error)
        return record

    def _on_refused(self, record: ProducerRecord, error: BaseException | None) -> None:
        """Report a record that is not queued."""
        partition = exact_int(record.partition)
        partition = _NO_PARTITION if partition is None else partition
        self._each("on_error", error, record.topic, partition, record.headers)

    def _follow(self, headers: Headers, delivery: Delivery) -> None:
        """Report the end of a queued record, whatever the user does with its delivery."""
        self._open += 1
        result = delivery._result
        was_looked_at = result.looked_at
        own = make_delivery(result, delivery.index)
        own.add_done_callback(partial(self._on_done, headers))
        result.looked_at = was_looked_at

    def _on_pending_done(
        self, record: ProducerRecord, pending: PendingSend, done: asyncio.Future[Any]
    ) -> None:
        """Handle a send that waited, and that is queued, given up or cancelled now."""
        delivery = pending.delivery if done.cancelled() else done.result()
        if delivery is not None:
            self._follow(record.headers, delivery)
        else:
            self._on_refused(record, pending.error or asyncio.CancelledError())
        self._open -= 1
        self._close_if_done()

    def _on_done(self, headers: Headers, delivery: Delivery) -> None:
        error = delivery._follow().error
        if error is None:
            self._each("on_acknowledgement", delivery.result(), headers)
        else:
            self._each("on_error", error.again(), error.topic, error.partition, headers)
        self._open -= 1
        self._close_if_done()

    def close(self) -> None:
        """Close the interceptors, since the producer has stopped: none is called after the end of the last record is reported."""
        self._is_closing = True
        self._close_if_done()

    def close_own(self) -> None:
        """Close the interceptors that were made of classes, since the start has failed: another start makes others, and uses the given ones."""
        own, self._own = self._own, []
        self._methods["close"] = [method for method in self._methods["close"] if method not in own]
        for name, function in own:
            self._call(name, function)

    def _close_if_done(self) -> None:
        if self._is_closing and not self._open:
            self._each("close")
            self._is_closing = False

    def _each(self, method: str, *told: Any) -> None:
        for name, function in self._methods[method]:
            self._call(name, function, *told)

    def _call(self, name: str, function: Callable[..., Any], *told: Any) -> Any:
        """Return what an interceptor returns; None: it raised."""
        watch = self._watch
        began = watch.clock()
        try:
            answer = function(*told)
        except USER_FAILURES as error:
            watch.note(f"interceptor {name}", watch.clock() - began)
            self._tell(name, error)
            return None
        seconds = watch.clock() - began
        if seconds > watch.slow_after:
            watch.note(f"interceptor {name}", seconds)
        if answer is not None and asyncio.iscoroutine(answer):
            answer.close()
            self._tell(name, UsageError("it gave a coroutine: interceptors are plain functions"))
            return None
        return answer

    def _tell(self, name: str, error: BaseException) -> None:
        self._metrics.count("interceptor-errors-total", name)
        kind = (name, type(error))
        if kind not in self._told:
            self._told.add(kind)
            _log.warning(
                "Interceptor %s raised %s%s. That is told once; the records go on.",
                name,
                type(error).__name__,
                _place(error),
            )


def _with_headers(record: ProducerRecord) -> ProducerRecord:
    """Return the record with pairs of a string and bytes or None as its headers, so that every interceptor may iterate them."""
    headers = (
        ()
        if record.headers is None
        else header_pairs(record.headers)
        if record.headers
        else record.headers
    )
    return record if headers is record.headers else record._replace(headers=headers)


def _place(error: BaseException) -> str:
    """Return where an error was raised, or the text of an error of this module.

    The text of a user's exception is never returned: it may name keys and values.
    """
    if isinstance(error, UsageError):
        return f": {error}"
    frames = traceback.extract_tb(error.__traceback__)
    return f" in {frames[-1].name}, {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _made(given: Any) -> Any:
    if not isinstance(given, type):
        return given
    try:
        return given()
    except TypeError as error:
        raise UsageError(
            f"the interceptor class {given.__name__} cannot be made without arguments: give an object of it"
        ) from error
