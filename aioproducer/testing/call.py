"""One request from its decoding to its answer: the faults that apply, the handler, and the waits.

Only a test's own coroutine (`FakeCluster.on`) runs as a task. Every other wait is a timer or callback that ends with the connection.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import broker_error
from aioproducer.testing.faults import WHOLE, Outgoing, Rule, Verdict
from aioproducer.testing.frames import encode_response
from aioproducer.testing.security.authenticator import Ending
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from aioproducer.testing.broker import FakeBroker
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.connection import Connection
    from aioproducer.testing.faults import Target, When
    from aioproducer.testing.frames import RequestHeader
    from aioproducer.testing.handlers.handler import Handler
    from aioproducer.testing.security.authenticator import Outcome
    from aioproducer.testing.security.cluster_security import Operation, ResourceType

__all__ = ["Call", "Context"]

_PASS: Final = object()
_DISCONNECT: Final = object()
_REFUSAL_SECONDS: Final = (
    0.3  # as seen of Kafka 4.3.1; its option is connection.failed.authentication.delay.ms
)
_ILLEGAL_SASL_STATE: Final = broker_error("ILLEGAL_SASL_STATE").code


class Context:
    """Holds the facts that a scripted handler (`FakeCluster.on`) gets beside the request, and its special return values.

    Attributes:
        PASS: let the fake answer as usual.
        DISCONNECT: reset the connection.
        api: the request's name.
        version: the request's version.
        broker: the number of the broker that received the request.
        connection: the connection's number.
    """

    PASS: Final = _PASS
    DISCONNECT: Final = _DISCONNECT

    def __init__(self, call: Call) -> None:
        self.api: str = call.api
        self.version: int = call.version
        self.broker: int = call.broker.node_id
        self.connection: int = call.connection.number

    def answer(self, **fields: object) -> Any:
        """Return an answer to this request; fields that are not given have their defaults."""
        return message(f"{self.api}.response", **fields)


class Call:
    """Holds one request until its answer is sent."""

    def __init__(
        self, connection: Connection, header: RequestHeader, handler: Handler, request: Any
    ) -> None:
        self.connection = connection
        self.broker: FakeBroker = connection.broker
        self.cluster: FakeCluster = connection.broker.cluster
        self.api: str = handler.name
        self.version: int = header.version
        self.request = request
        self.header = header
        self.verdict: Verdict
        self._handler = handler
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._cleanups: list[Callable[[], None]] = []
        self._is_dropped = False
        self._when_answered: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Apply the scripted faults, and answer."""
        targets = self._handler.targets(self.cluster, self.request)
        self.verdict = self.cluster.faults.judge(self.api, self.broker.node_id, targets)
        if self.verdict.disconnect == "before":
            self.connection.reset()
        else:
            self._hold("before", self._answer)

    def begin_illegally(self) -> None:
        """Answer ILLEGAL_SASL_STATE after Kafka's delay, and end the connection: the request came within an exchange of SASL."""
        told = f"Unexpected Kafka request of type {ApiKey(self.header.key).name} during SASL authentication."
        rule = Rule(self.api, "error", code=_ILLEGAL_SASL_STATE, message=told)
        self.verdict = Verdict(
            errors=dict.fromkeys(self._handler.targets(self.cluster, self.request), rule)
        )
        self.connection.end_after_answer()
        self._timer = self.broker.loop.call_later(_REFUSAL_SECONDS, self._handler.answer, self)

    def authenticate(self, outcome: Outcome, response: Any) -> None:
        """Log how an authentication ended, and answer SaslHandshake or SaslAuthenticate as the outcome says."""
        if outcome.is_end:
            self.connection.log_authentication(outcome.code)
        if outcome.ending is Ending.CLOSED:
            self.connection.close()
        elif outcome.ending is Ending.CLOSED_LATER:
            self._timer = self.broker.loop.call_later(_REFUSAL_SECONDS, self.connection.close)
        elif outcome.ending is Ending.REFUSED:
            self.connection.end_after_answer()
            self._timer = self.broker.loop.call_later(_REFUSAL_SECONDS, self.reply, response)
        else:
            self.reply(response)

    def may(self, operation: Operation, kind: ResourceType, name: str | None) -> bool:
        """Return whether the connection's principal may do this to a topic, a group, a transactional id or the cluster."""
        return self.cluster.security.allows(
            self.connection.authenticator.principal, operation, kind, name or ""
        )

    def check_may(self, operation: Operation, kind: ResourceType, name: str | None) -> None:
        """Check `may`.

        Raises:
            BrokerError: Kafka's error of such a resource, as TOPIC_AUTHORIZATION_FAILED.
        """
        if not self.may(operation, kind, name):
            raise broker_error(f"{kind.upper()}_AUTHORIZATION_FAILED")

    def reply(self, response: Any) -> None:
        """Send the answer; None for a request without one."""
        self.forget_waiting()
        if self.verdict.disconnect == "after":
            self.connection.reset()
            return
        if response is not None:
            throttle = self.verdict.others.get("throttle")
            if throttle is not None:
                response.throttle_time_ms = int(throttle.seconds * 1000)
            for rewrite in self.verdict.rewrites:
                rewrite(response)
        self._hold("after", lambda: self._send(response))

    def code(self, target: Target = WHOLE) -> int:
        """Return the scripted error code of a target; 0: none."""
        return self.verdict.code(target)

    def check_scripted(self, target: Target = WHOLE) -> None:
        """Raise the target's scripted error as a BrokerError, if there is one."""
        if code := self.verdict.code(target):
            raise broker_error(code)

    def when_answered(self, do: Callable[[], None]) -> None:
        """Call `do` when the answer is sent; never if the connection is lost before."""
        self._when_answered.append(do)

    def wait(self, seconds: float, then: Callable[[], None], cleanup: Callable[[], None]) -> None:
        """Call `then` after `seconds`. Call `cleanup` when the call is answered or its connection is lost."""
        self._cleanups.append(cleanup)
        self._timer = self.broker.loop.call_later(seconds, then)

    def forget_waiting(self) -> None:
        """Cancel the timer of `wait` and run its cleanups."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._cleanups:
            self._cleanups.pop()()

    def drop(self) -> None:
        """End the call, as its connection is lost."""
        self._is_dropped = True
        self.forget_waiting()
        if self._task is not None:
            self._task.cancel()

    # --- waiting

    def _hold(self, when: When, go_on: Callable[[], None]) -> None:
        delay = self.verdict.others.get("delay")
        if delay is not None and delay.when == when:
            self._timer = self.broker.loop.call_later(delay.seconds, self._hang, when, go_on)
        else:
            self._hang(when, go_on)

    def _hang(self, when: When, go_on: Callable[[], None]) -> None:
        self._timer = None
        rule = self.verdict.others.get("hang")
        if (
            rule is not None
            and rule.hang is not None
            and rule.when == when
            and not rule.hang.is_released
        ):
            rule.hang.hold(lambda: None if self._is_dropped else go_on())
        else:
            go_on()

    # --- answering

    def _answer(self) -> None:
        rule = self.verdict.others.get("handler")
        if rule is None or rule.handler is None:
            self._handler.answer(self)
            return
        try:
            returned = rule.handler(self.request, Context(self))
        except Exception as error:
            self._break(error)
            return
        if inspect.isawaitable(returned):
            self._task = self.broker.loop.create_task(self._await(returned))
        else:
            self._take(returned)

    async def _await(self, returned: Awaitable[Any]) -> None:
        try:
            answer = await returned
        except Exception as error:
            self._task = None
            self._break(error)
            return
        self._task = None
        self._take(answer)

    def _take(self, returned: Any) -> None:
        """Handle a scripted handler's return value."""
        if returned is _PASS:
            self._handler.answer(self)
        elif returned is _DISCONNECT:
            self.connection.reset()
        else:
            self.reply(returned)

    def _break(self, error: Exception) -> None:
        """Handle a scripted handler's error: reset the connection, and keep the error for the test."""
        self.cluster.faults.broken.append(error)
        self.connection.reset()
        self.broker.loop.call_exception_handler(
            {"message": f"a test's handler of {self.api} raised", "exception": error}
        )

    def _send(self, response: Any) -> None:
        for do in self._when_answered:
            do()
        if response is None:
            self.connection.finish()
            return
        header = self.header
        body = codec(f"{self.api}.response", self.version).encode(response)
        rule = self.verdict.others.get("spoil")
        if rule is None or rule.spoil is None:
            self.connection.finish(
                encode_response(header.key, self.version, header.correlation_id, body)
            )
        else:
            rule.spoil(
                Outgoing(self.connection, header.key, self.version, header.correlation_id, body)
            )
