"""Methods that script a fake cluster's faults: errors, delays, lost connections, corrupt answers, handlers.

Each method scripts one fault for one kind of request, optionally narrowed to a broker, topic or partition and to a number of
requests. Faults apply in the order in which they were scripted (`faults` has the rules).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, TypeVar

from aioproducer.testing import corrupt_responses
from aioproducer.testing.call import Context
from aioproducer.testing.corrupt_responses import Spoil
from aioproducer.testing.faults import Faults, Hang, Kind, Rule, When
from aioproducer.testing.security.scram_spoils import scram_changes
from aioproducer.testing.security.tls_stream import TlsSpoil

__all__ = ["Trouble"]

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
        rule = self._rule(api, "error" if disconnect is None else "disconnect", times, broker, topic, partition)
        rule.message, rule.leader, rule.record_errors = message, leader, record_errors or {}
        if error is not None:
            self.faults.add_error(rule, error)
        else:
            rule.when = disconnect or "before"
            self.faults.add(rule)

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
        rule = self._rule(api, "delay", times, broker, topic, partition)
        rule.seconds, rule.when = seconds, when
        self.faults.add(rule)

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
        rule = self._rule(api, "hang", times, broker, topic, partition)
        rule.hang, rule.when = Hang(), when
        self.faults.add(rule)
        return rule.hang

    def throttle(self, api: str, seconds: float, *, times: int | None = 1, broker: int | None = None, topic: str | None = None) -> None:
        """Set `throttle_time_ms` in answers; as with Kafka since 2.0, the client waits, not the broker."""
        rule = self._rule(api, "throttle", times, broker, topic)
        rule.seconds = seconds
        self.faults.add(rule)

    def on(
        self, api: str, *, keep: bool = True, broker: int | None = None, topic: str | None = None, partition: int | None = None
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
            rule = self._rule(api, "handler", None if keep else 1, broker, topic, partition)
            rule.handler = handler
            self.faults.add(rule)
            return handler

        return register

    def rewrite(
        self, api: str, change: Callable[[Any], object], *, times: int | None = 1, broker: int | None = None, topic: str | None = None
    ) -> None:
        """Call `change` to edit the decoded answer in place before it is sent."""
        rule = self._rule(api, "rewrite", times, broker, topic)
        rule.rewrite = change
        self.faults.add(rule)

    def omit(self, api: str, *, topic: str, partition: int | None = None, times: int | None = 1, broker: int | None = None) -> None:
        """Leave a partition, or a whole topic, out of answers; the request is executed. For Produce, up to version 12."""
        self.rewrite(api, lambda answer: _leave_out(answer, topic, partition), times=times, broker=broker, topic=topic)

    # --- corrupt answers

    def truncate(self, api: str, *, keep: int | None = None, times: int | None = 1, broker: int | None = None) -> None:
        """Send the first `keep` bytes of answers, half of them by default, and close the connection.

        The first 4 bytes are the size, the next 4 the correlation id.
        """
        self._spoil(api, corrupt_responses.truncated(keep), times, broker)

    def garbage(
        self, api: str, body: bytes | Callable[[bytes], bytes] | None = None, *, times: int | None = 1, broker: int | None = None
    ) -> None:
        """Keep an answer's correlation id and replace its body: by `body`, by `body(valid body)`, or by as many bytes of 0xff."""
        self._spoil(api, corrupt_responses.garbage(body), times, broker)

    def raw(self, api: str, data: bytes, *, times: int | None = 1, broker: int | None = None) -> None:
        """Send these bytes in place of answers, size and all: `b"HTTP/1.1 400 Bad Request"`."""
        self._spoil(api, corrupt_responses.raw(data), times, broker)

    def wrong_correlation_id(self, api: str, *, times: int | None = 1, broker: int | None = None) -> None:
        """Give answers the correlation id of a request that was never made."""
        self._spoil(api, corrupt_responses.wrong_id, times, broker)

    def unsolicited(self, api: str, *, times: int | None = 1, broker: int | None = None) -> None:
        """Send one more answer, without a request, after each answer."""
        self._spoil(api, corrupt_responses.unsolicited, times, broker)

    def drop_reply(self, api: str, *, times: int | None = 1, broker: int | None = None) -> None:
        """Execute requests without ever answering them; later requests of the connection are answered."""
        self._spoil(api, corrupt_responses.lost, times, broker)

    def reorder(self, api: str, *, times: int | None = 1, broker: int | None = None) -> None:
        """Send an answer after the next answer of its connection."""
        self._spoil(api, corrupt_responses.late, times, broker)

    def segment(self, api: str, size: int = 1, *, times: int | None = None, broker: int | None = None) -> None:
        """Send answers in pieces of `size` bytes, one piece per event-loop iteration."""
        self._spoil(api, corrupt_responses.segmented(size), times, broker)

    def gather(self, api: str, count: int, *, broker: int | None = None) -> None:
        """Hold the next `count` answers of one connection, and send them in one piece."""
        self._spoil(api, corrupt_responses.gathered(count), count, broker)

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
        self.faults.add(Rule("TLS", "tls", times, broker, tls=TlsSpoil(hang, cut, alert, ignore_close)))

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
        changes = scram_changes(count, nonce, first, final)
        rule = self._rule("SaslAuthenticate", "rewrite", times, broker)
        rule.rewrite = changes
        self.faults.add(rule)

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

    def _spoil(self, api: str, spoil: Spoil, times: int | None, broker: int | None) -> None:
        rule = self._rule(api, "spoil", times, broker)
        rule.spoil = spoil
        self.faults.add(rule)

    def _rule(
        self, api: str, kind: Kind, times: int | None, broker: int | None, topic: str | None = None, partition: int | None = None
    ) -> Rule:
        if api not in self._apis:
            raise ValueError(f"{api!r} is no request that can be scripted: Produce, Metadata, ... by Kafka's name")
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
    index: int = partition.partition_index if hasattr(partition, "partition_index") else partition.index
    return index
