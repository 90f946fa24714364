"""Scripted faults and their rules: which fault applies to which request.

1. Rules have a scope (api, broker, topic, partition) and a count of requests. They apply in the order in which they were made.
2. At most one disconnect or corrupt answer, one delay, one hang, one throttling and one handler apply to a request.
   Every matching rewrite applies.
3. An error applies to the partitions in its scope. Several rules may answer for different partitions of one request. A request
   with no partition in their scope is not affected.
4. A disconnect does not overtake an error rule that was made before it, nor the reverse.

A `Verdict` describes the faults of one request; `call` carries them out. `Trouble` has the methods by which tests script them.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from aioproducer.errors import broker_error
from aioproducer.testing.frames import encode_response
from aioproducer.testing.security.tls import TlsSpoil

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioproducer.interfaces import Buffer
    from aioproducer.testing.call import Context
    from aioproducer.testing.connection import Connection

__all__ = [
    "WHOLE",
    "Faults",
    "Hang",
    "Kind",
    "Outgoing",
    "Rule",
    "Target",
    "Trouble",
    "Verdict",
    "When",
]

When: TypeAlias = Literal["before", "after"]
Kind: TypeAlias = Literal[
    "error", "disconnect", "spoil", "delay", "hang", "throttle", "rewrite", "handler", "tls"
]

# Kafka answers these errors after it has appended
_AFTER_APPEND: Final = frozenset({"NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT"})
# Faults instead of an answer: an error rule that was made before prevents them, and they prevent all later error rules.
_OTHER_ID: Final = 0x5A5A
_INSTEAD: Final = frozenset({"disconnect", "spoil"})


class Target(NamedTuple):
    """Names the topic and partition of one part of a request. A request without topics has the one target (None, None)."""

    topic: str | None = None
    partition: int | None = None


WHOLE: Final = Target()


class Hang:
    """Holds requests until `release`. Made by `FakeCluster.hang`."""

    def __init__(self) -> None:
        self.is_released: bool = False
        self._held: deque[Callable[[], None]] = deque()
        self._reached = asyncio.Event()

    async def reached(self) -> None:
        """Wait until a request hangs. Cancellation changes no state."""
        await self._reached.wait()

    def release(self) -> None:
        """Continue the held requests in order, and hold no more."""
        self.is_released = True
        while self._held:
            self._held.popleft()()

    def hold(self, go_on: Callable[[], None]) -> None:
        """Hold a request until the release."""
        self._held.append(go_on)
        self._reached.set()


class Outgoing(NamedTuple):
    """Holds an answer that is ready to be sent, and its connection."""

    connection: Connection
    key: int
    version: int
    correlation_id: int
    body: Sequence[Buffer]

    def frame(self) -> bytes:
        """Return the whole answer."""
        return b"".join(encode_response(self.key, self.version, self.correlation_id, self.body))

    def of_no_request(self) -> bytes:
        """Return the whole answer with the correlation id of a request that was never made."""
        return self._replace(correlation_id=self.correlation_id ^ _OTHER_ID).frame()


@dataclass(slots=True, eq=False)
class Rule:
    """One scripted fault. `times` is the number of requests that it still applies to; None: all.

    Fields of an error: `appends` if Kafka answers it after it has appended; `message`, its text; `leader`, the leader that it names
    (KIP-951); `record_errors`, the wrong records by their number in the batch (KIP-467).
    """

    api: str
    kind: Kind
    times: int | None = 1
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    code: int = 0
    appends: bool = False
    message: str | None = None
    leader: int | None = None
    record_errors: Mapping[int, str | None] = field(default_factory=dict)
    when: When = "before"
    spoil: Callable[[Outgoing], None] | None = None
    seconds: float = 0.0
    hang: Hang | None = None
    rewrite: Callable[[Any], object] | None = None
    handler: Callable[[Any, Any], Any] | None = None
    tls: TlsSpoil | None = None
    fired: int = 0

    def covers(self, target: Target) -> bool:
        """Return whether a part of a request is in scope."""
        return (self.topic is None or self.topic == target.topic) and (
            self.partition is None or self.partition == target.partition
        )

    def use(self) -> None:
        """Count one request."""
        self.fired += 1
        if self.times is not None:
            self.times -= 1

    @property
    def is_scoped(self) -> bool:
        """Return whether the rule applies only to requests with a part in its scope."""
        return self.topic is not None or self.partition is not None

    @property
    def is_spent(self) -> bool:
        """Return whether the rule applies to no further request."""
        return self.times == 0 or (self.hang is not None and self.hang.is_released)

    def __str__(self) -> str:
        scope = {
            "broker": self.broker,
            "topic": self.topic,
            "partition": self.partition,
            "times left": self.times,
        }
        return f"{self.kind} on {self.api} ({', '.join(f'{name} {value}' for name, value in scope.items() if value is not None)})"


@dataclass(slots=True)
class Verdict:
    """Holds the faults that apply to one request.

    Attributes:
        errors: the rule that gives the error of a target.
        rewrites: change the answer.
        others: the rule of each other kind.
    """

    errors: dict[Target, Rule] = field(default_factory=dict)
    rewrites: list[Callable[[Any], object]] = field(default_factory=list)
    others: dict[Kind, Rule] = field(default_factory=dict)

    def apply(self, rule: Rule, covered: Iterable[Target]) -> bool:
        """Apply a rule to the request, unless an earlier rule prevents it. Returns whether it applies."""
        is_instead = not _INSTEAD.isdisjoint(self.others)
        if rule.kind == "error":
            fresh = (
                [] if is_instead else [target for target in covered if target not in self.errors]
            )
            self.errors.update(dict.fromkeys(fresh, rule))
            return bool(fresh)
        if rule.rewrite is not None:
            self.rewrites.append(rule.rewrite)
            return True
        if rule.kind in self.others or (rule.kind in _INSTEAD and (is_instead or self.errors)):
            return False
        self.others[rule.kind] = rule
        return True

    @property
    def disconnect(self) -> When | None:
        """Return when the connection is reset; None: it is not."""
        rule = self.others.get("disconnect")
        return None if rule is None else rule.when

    def code(self, target: Target) -> int:
        """Return the scripted error code of a target; 0: none."""
        rule = self.errors.get(target)
        return rule.code if rule else 0


class Faults:
    """Holds the rules of one cluster, in the order in which they were made."""

    def __init__(self) -> None:
        self.broken: list[Exception] = []
        """Errors that a test's own handlers raised."""
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> Rule:
        """Add one rule after the existing ones."""
        if rule.times is not None and rule.times < 1:
            raise ValueError(
                f"times is how many requests a fault falls on, at least 1, not {rule.times}"
            )
        self._rules.append(rule)
        return rule

    def add_error(self, rule: Rule, error: str | int) -> Rule:
        """Add an error rule by Kafka's name or number of the error; an unknown number is answered unchanged."""
        try:
            known = broker_error(error)
        except KeyError as unknown:
            raise ValueError(f"{error!r} is none of Kafka's error names") from unknown
        rule.code = known.code
        rule.appends = known.name in _AFTER_APPEND
        return self.add(rule)

    @property
    def newest(self) -> Rule:
        """Return the rule that was made last."""
        return self._rules[-1]

    def unfired(self) -> list[Rule]:
        """Return the counted rules that have requests left, and the uncounted rules that applied to no request."""
        return [rule for rule in self._rules if (rule.times or 0) > 0 or rule.fired == 0]

    def clear(self) -> None:
        """Remove every rule and release every hang."""
        rules, self._rules = self._rules, []
        for rule in rules:
            if rule.hang is not None:
                rule.hang.release()

    def judge(self, api: str, broker: int, targets: Iterable[Target]) -> Verdict:
        """Return the faults of a request, and count the rules that apply."""
        verdict = Verdict()
        rules = [
            rule
            for rule in self._rules
            if rule.api == api and rule.broker in {None, broker} and not rule.is_spent
        ]
        parts = list(targets) if rules else []
        for rule in rules:
            covered = [target for target in parts if rule.covers(target)]
            if (covered or not rule.is_scoped) and verdict.apply(rule, covered):
                rule.use()
        return verdict


H = TypeVar("H", bound="Callable[[Any, Context], Any]")


class Trouble:
    """The fault scripting methods of a `FakeCluster`.

    Args:
        apis: the requests that can be scripted, by Kafka's name.
        brokers: the current brokers; read at each call.
    """

    def __init__(self, apis: Container[str], brokers: Container[int]) -> None:
        self.faults: Faults = Faults()
        self._apis = apis
        self._known_brokers = brokers

    def fail(
        self,
        api: str,
        error: str | int | None = None,
        *,
        disconnect: When | None = None,
        times: int | None = 1,
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        message: str | None = None,
        leader: int | None = None,
        record_errors: Mapping[int, str | None] | None = None,
    ) -> None:
        """Fail the next requests. Rules apply in the order in which they are made.

        Args:
            api: the request, by Kafka's name.
            error: Kafka's name or number of an error. The partitions in scope answer it and append nothing, except for
                REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND, which Kafka answers after it has appended.
            disconnect: instead of an error, reset the connection "before" the request is executed, or "after".
            times: number of requests that fail; None: all.
            broker: only on this broker.
            topic: only requests about this topic; an error affects only this topic's part of a request.
            partition: only requests about this partition; an error affects only this partition's part of a request.
            message: the error's text, for answers that have a field for one.
            leader: the broker that a Produce answer names as the leader (KIP-951, from version 10 on).
            record_errors: a Produce answer's wrong records: number in the batch and error text (KIP-467, version 8 on).
        """
        if (error is None) == (disconnect is None):
            raise ValueError("fail takes an error or disconnect='before' or 'after'")
        if disconnect not in {None, "before", "after"}:
            raise ValueError(f"disconnect is 'before' or 'after', not {disconnect!r}")
        if error is None:
            self._script(api, "disconnect", times, broker, topic, partition, when=disconnect)
            return
        rule = self._rule(api, "error", times, broker, topic, partition)
        rule.message, rule.leader, rule.record_errors = message, leader, record_errors or {}
        self.faults.add_error(rule, error)

    def delay(
        self,
        api: str,
        seconds: float,
        *,
        times: int | None = None,
        when: When = "before",
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Delay requests "before" they are executed, or delay only their answers ("after"). `times`: None is all."""
        self._script(api, "delay", times, broker, topic, partition, seconds=seconds, when=when)

    def hang(
        self,
        api: str,
        *,
        times: int | None = None,
        when: When = "before",
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Hang:
        """Hold requests until `release` of the returned hang, "before" they are executed or "after".

        A lost connection drops its request.
        """
        hang = Hang()
        self._script(api, "hang", times, broker, topic, partition, hang=hang, when=when)
        return hang

    def throttle(
        self,
        api: str,
        seconds: float,
        *,
        times: int | None = 1,
        broker: int | None = None,
        topic: str | None = None,
    ) -> None:
        """Set `throttle_time_ms` in answers; as with Kafka since 2.0, the client waits, not the broker."""
        self._script(api, "throttle", times, broker, topic, seconds=seconds)

    def on(
        self,
        api: str,
        *,
        keep: bool = True,
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Callable[[H], H]:
        """Return a decorator that registers a function, plain or a coroutine, of the request and its `Context` as its handler.

        The handler returns an answer (`context.answer(...)`), `context.PASS` for the usual answer, or `context.DISCONNECT`. An error in the
        handler resets the connection, and `assert_all_fired` raises it again. A request that the cluster's release does not speak can be
        scripted too; brokers advertise it from then on.

        Args:
            api: the request, by Kafka's name.
            keep: whether the handler answers all requests, or only the next one.
            broker: only on this broker.
            topic: only requests about this topic.
            partition: only requests about this partition.
        """

        def register(handler: H) -> H:
            self._script(
                api, "handler", None if keep else 1, broker, topic, partition, handler=handler
            )
            return handler

        return register

    def rewrite(
        self,
        api: str,
        change: Callable[[Any], object],
        *,
        times: int | None = 1,
        broker: int | None = None,
        topic: str | None = None,
    ) -> None:
        """Call `change` to edit the decoded answer in place before it is sent."""
        self._script(api, "rewrite", times, broker, topic, rewrite=change)

    def omit(
        self,
        api: str,
        *,
        topic: str,
        partition: int | None = None,
        times: int | None = 1,
        broker: int | None = None,
    ) -> None:
        """Leave a partition, or a whole topic, out of answers; the request is executed. For Produce, up to version 12."""
        self.rewrite(
            api,
            lambda answer: _leave_out(answer, topic, partition),
            times=times,
            broker=broker,
            topic=topic,
        )

    # --- corrupt answers

    def truncate(
        self, api: str, *, keep: int | None = None, times: int | None = 1, broker: int | None = None
    ) -> None:
        """Send the first `keep` bytes of answers, half of them by default, and close the connection.

        The first 4 bytes are the size, the next 4 the correlation id.
        """

        def send(answer: Outgoing) -> None:
            whole = answer.frame()
            answer.connection.write([whole[: len(whole) // 2 if keep is None else keep]])
            answer.connection.close()

        self._script(api, "spoil", times, broker, spoil=send)

    def garbage(
        self,
        api: str,
        body: bytes | Callable[[bytes], bytes] | None = None,
        *,
        times: int | None = 1,
        broker: int | None = None,
    ) -> None:
        """Keep an answer's correlation id and replace its body: by `body`, by `body(valid body)`, or by as many bytes of 0xff."""

        def send(answer: Outgoing) -> None:
            sound = b"".join(answer.body)
            other = (
                body(sound) if callable(body) else b"\xff" * len(sound) if body is None else body
            )
            answer.connection.finish([answer._replace(body=[other]).frame()])

        self._script(api, "spoil", times, broker, spoil=send)

    def raw(
        self, api: str, data: bytes, *, times: int | None = 1, broker: int | None = None
    ) -> None:
        """Send these bytes in place of answers, size and all: `b"HTTP/1.1 400 Bad Request"`."""
        self._script(
            api, "spoil", times, broker, spoil=lambda answer: answer.connection.finish([data])
        )

    def wrong_correlation_id(
        self, api: str, *, times: int | None = 1, broker: int | None = None
    ) -> None:
        """Give answers the correlation id of a request that was never made."""
        self._script(
            api,
            "spoil",
            times,
            broker,
            spoil=lambda answer: answer.connection.finish([answer.of_no_request()]),
        )

    def unsolicited(self, api: str, *, times: int | None = 1, broker: int | None = None) -> None:
        """Send one more answer, without a request, after each answer."""
        self._script(
            api,
            "spoil",
            times,
            broker,
            spoil=lambda answer: answer.connection.finish([answer.frame(), answer.of_no_request()]),
        )

    def drop_reply(self, api: str, *, times: int | None = 1, broker: int | None = None) -> None:
        """Execute requests without ever answering them; later requests of the connection are answered."""
        self._script(api, "spoil", times, broker, spoil=lambda answer: answer.connection.finish())

    def reorder(self, api: str, *, times: int | None = 1, broker: int | None = None) -> None:
        """Send an answer after the next answer of its connection."""
        self._script(
            api,
            "spoil",
            times,
            broker,
            spoil=lambda answer: answer.connection.postpone(answer.frame()),
        )

    def segment(
        self, api: str, size: int = 1, *, times: int | None = None, broker: int | None = None
    ) -> None:
        """Send answers in pieces of `size` bytes, one piece per event-loop iteration."""

        def send(answer: Outgoing) -> None:
            whole = answer.frame()
            answer.connection.trickle(whole[at : at + size] for at in range(0, len(whole), size))

        self._script(api, "spoil", times, broker, spoil=send)

    def gather(self, api: str, count: int, *, broker: int | None = None) -> None:
        """Hold the next `count` answers of one connection, and send them in one piece."""
        self._script(
            api,
            "spoil",
            count,
            broker,
            spoil=lambda answer: answer.connection.gather(answer.frame(), count),
        )

    # --- TLS and SASL

    def spoil_tls(
        self,
        *,
        hang: bool = False,
        cut: int | None = None,
        alert: int | None = None,
        ignore_close: bool = False,
        times: int | None = 1,
        broker: int | None = None,
    ) -> None:
        """Spoil the TLS of the next connections. Certificates and versions are changed by `security.change(tls=...)`.

        Args:
            hang: answer nothing in the handshake.
            cut: close after so many bytes of the broker's, within the handshake or later.
            alert: answer the client's first message with this fatal alert, by its number: 40 is handshake_failure, 70 protocol_version.
            ignore_close: answer neither close_notify nor the end of the client's bytes; the connection stays open.
            times: number of connections; None: all.
            broker: only of this broker.
        """
        if broker is not None and broker not in self._known_brokers:
            raise ValueError(f"there is no broker {broker}")
        if not (hang or ignore_close) and cut is None and alert is None:
            raise ValueError("spoil_tls takes hang, cut, alert or ignore_close")
        self.faults.add(
            Rule("TLS", "tls", times, broker, tls=TlsSpoil(hang, cut, alert, ignore_close))
        )

    def spoil_scram(
        self,
        *,
        count: int | None = None,
        nonce: bytes | None = None,
        first: bytes | Callable[[bytes], bytes] | None = None,
        final: bytes | Callable[[bytes], bytes] | None = None,
        times: int | None = None,
        broker: int | None = None,
    ) -> None:
        """Change the server's messages of SCRAM.

            cluster.spoil_scram(count=2**31)
            cluster.spoil_scram(first=lambda sound: b"m=x," + sound)     # a mandatory extension
            cluster.spoil_scram(final=b"v=" + base64.b64encode(bytes(32)))  # the signature of a server without the password

        Args:
            count: in place of the iteration count.
            nonce: in place of client's and server's nonce.
            first: in place of the first message, or a function that makes it of the sound one.
            final: in place of the final message, or a function that makes it of the sound one.
            times: number of SaslAuthenticate requests that the change looks at, of each mechanism; None: all.
            broker: only on this broker.
        """

        def change(answer: Any) -> None:
            sound = bytes(answer.auth_bytes)
            if sound.startswith(b"r="):
                if count is not None:
                    sound = re.sub(rb",i=\d+", b",i=%d" % count, sound)
                if nonce is not None:
                    sound = re.sub(rb"^r=[^,]+", lambda _: b"r=" + nonce, sound)
                spoil = first
            elif sound.startswith(b"v="):
                spoil = final
            else:
                return
            answer.auth_bytes = (
                sound if spoil is None else spoil(sound) if callable(spoil) else spoil
            )

        self._script("SaslAuthenticate", "rewrite", times, broker, rewrite=change)

    # ---

    def assert_all_fired(self) -> None:
        """Check that every scripted fault has happened.

        Raises:
            AssertionError: a counted fault applied to fewer requests than its count, an uncounted fault to none, or a handler raised.
        """
        for error in self.faults.broken:
            raise AssertionError(f"a handler of this test raised {type(error).__name__}") from error
        unfired = self.faults.unfired()
        if unfired:
            raise AssertionError(f"faults that did not happen: {'; '.join(map(str, unfired))}")

    def _script(
        self,
        api: str,
        kind: Kind,
        times: int | None,
        broker: int | None,
        topic: str | None = None,
        partition: int | None = None,
        **fields: Any,
    ) -> None:
        self.faults.add(replace(self._rule(api, kind, times, broker, topic, partition), **fields))

    def _rule(
        self,
        api: str,
        kind: Kind,
        times: int | None,
        broker: int | None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Rule:
        if api not in self._apis:
            raise ValueError(
                f"{api!r} is no request that can be scripted: Produce, Metadata, ... by Kafka's name"
            )
        if broker is not None and broker not in self._known_brokers:
            raise ValueError(f"there is no broker {broker}")
        return Rule(api, kind, times, broker, topic, partition)


def _leave_out(answer: Any, topic: str, partition: int | None) -> None:
    if partition is None:
        answer.topics = [one for one in answer.topics if one.name != topic]
        return
    for one in answer.topics:
        if one.name == topic:
            one.partitions = [part for part in one.partitions if _index(part) != partition]


def _index(partition: Any) -> int:
    index: int = (
        partition.partition_index if hasattr(partition, "partition_index") else partition.index
    )
    return index
