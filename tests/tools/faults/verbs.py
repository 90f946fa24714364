"""Holds the verbs of rows that change the cluster, in one table, by name. `stage` has the verbs of clients."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import TYPE_CHECKING, Any

from aioproducer.errors import BrokerError
from aioproducer.testing.transactions import Holder

from .security import listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from .stage import Stage

__all__ = ["SCRIPTED", "VERBS"]

_RAISES_EPOCH = 5  # the version of EndTxn from which on an end raises the epoch
_LAST_EPOCH = 32_766  # the last epoch but one
_WHOLE = 1 << 20  # bytes


def _broker(method: str) -> Callable[..., Any]:
    """Return a step that calls `method` of the broker with the number that is the step's value."""
    return lambda stage, number, **rest: getattr(stage.cluster.brokers[number], method)(**rest)


def _each_broker(name: str, nothing: float | None) -> Callable[..., None]:
    """Return a step that sets the attribute `name` of every broker to the step's value; 0 sets it to `nothing`."""

    def step(stage: Stage, value: float) -> None:
        for broker in stage.cluster.brokers.values():
            setattr(broker, name, value or nothing)

    return step


def _of_cluster(name: str) -> Callable[..., None]:
    """Return a step that sets the cluster's attribute `name` to the step's value."""
    return lambda stage, value: setattr(stage.cluster, name, value)


def _spoil(make: Callable[[bytes, bytes], bytes]) -> Callable[..., None]:
    """Return a step that names a request. The step's `bytes`, in hexadecimal, make the body of that request's answer."""

    def step(stage: Stage, api: str, times: int | None = 1, **given: str) -> None:
        stage.cluster.garbage(
            api, lambda sound: make(bytes.fromhex(given["bytes"]), sound), times=times
        )

    return step


def _rewrite(change: Callable[[Any], object], api: str = "Metadata") -> Callable[..., None]:
    """Return a step that changes as many answers as its value says; 0: all answers."""
    return lambda stage, times: stage.cluster.rewrite(api, change, times=times or None)


def _no_brokers(answer: Any) -> None:
    answer.brokers = []


def _port_zero(answer: Any) -> None:
    for broker in answer.brokers:
        broker.port = 0


def _negative_ids(answer: Any) -> None:
    for broker in answer.brokers:
        broker.node_id = -broker.node_id - 1


def _twice(answer: Any) -> None:
    answer.brokers = [*answer.brokers, *answer.brokers]


def _strange_partition(answer: Any) -> None:
    """Add a partition that the client did not send to."""
    for topic in answer.topics:
        strange = copy.copy(topic.partitions[0])
        strange.index += 70
        topic.partitions = [strange, *topic.partitions]


def _old_leader(answer: Any) -> None:
    """Name the leader of an earlier epoch, as a broker does that does not know of the current epoch."""
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.leader_id = 1
            partition.leader_epoch = 0


def _retention(answer: Any) -> None:
    """Let the answer say that the broker has deleted all records that were written before."""
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.log_start_offset = 1_000_000


def _late_epoch(answer: Any) -> None:
    """Set the producer's epoch to the last one but one of its producer id."""
    answer.producer_epoch = _LAST_EPOCH


def _straggler(stage: Stage, seconds: float) -> None:
    """Cut the connection of the next EndTxn before the broker handles the request. The broker handles it after `seconds`."""
    loop, cluster = asyncio.get_running_loop(), stage.cluster

    def arrive(request: Any, version: int) -> None:
        holder = Holder(request.producer_id, request.producer_epoch)
        with contextlib.suppress(BrokerError):  # no connection is left for the answer
            cluster.transactions.end(
                request.transactional_id,
                holder,
                is_commit=request.committed,
                raises_epoch=version >= _RAISES_EPOCH,
            )

    @cluster.on("EndTxn", keep=False)
    def hold(request: Any, context: Any) -> Any:
        loop.call_later(seconds, arrive, request, context.version)
        return context.DISCONNECT


def _well(stage: Stage, api: str, times: int = 1) -> None:
    """Let `times` requests succeed before the faults that are scripted next: their answers come in pieces larger than the answers."""
    stage.cluster.segment(api, _WHOLE, times=times)


def _lose(stage: Stage, topic: str, offset: int) -> None:
    """Simulate an unclean election: partition 0 ends at `offset`, and no replica has the records from there on."""
    stage.forget_logged(from_offset=offset)
    stage.cluster.log(topic, 0).truncate(offset)


def _remake(stage: Stage, topic: str) -> None:
    """Delete the topic and create it again, with another id."""
    stage.forget_logged()
    stage.cluster.delete_topic(topic)
    stage.cluster.create_topic(topic, stage.played.row.partitions, stage.played.row.config)


def _lifetime(stage: Stage, milliseconds: int) -> None:
    """Let brokers tell another length of sessions than the one that they keep to."""

    def change(answer: Any) -> None:
        answer.session_lifetime_ms = milliseconds

    stage.cluster.rewrite("SaslAuthenticate", change, times=None)


def _security(method: str) -> Callable[..., None]:
    """Return a step that calls `method` of the cluster's security with the user that is the step's value."""
    return lambda stage, user, **rest: getattr(stage.cluster.security, method)(user, **rest)


def _listener(stage: Stage, protocol: str, broker: int | None = None, **fields: Any) -> None:
    """Change the protocol, or the certificate, of the brokers' listeners for the connections that follow."""
    changed = listener(protocol, **fields)
    stage.cluster.security.change(broker=broker, protocol=changed.protocol, tls=changed.tls)


SCRIPTED = frozenset(
    [
        "fail",
        "delay",
        "hang",
        "throttle",
        "truncate",
        "garbage",
        "raw",
        "wrong_correlation_id",
        "unsolicited",
        "drop_reply",
        "reorder",
        "segment",
        "gather",
        "omit",
        "create_topic",
        "delete_topic",
        "add_partitions",
        "move_leader",
        "move_coordinator",
        "forget_producers",
        "speak",
    ]
)
VERBS: dict[str, Callable[..., Any]] = {
    "sleep": lambda _stage, seconds: asyncio.sleep(seconds),
    "seen": lambda stage, api, count=1: stage.cluster.seen(api, count),
    "clear": lambda stage, _all: stage.cluster.faults.clear(),
    "latency": _each_broker("latency", 0.0),
    "bandwidth": _each_broker("bandwidth", None),
    "leaderless": lambda stage, topic, partition=0: stage.cluster.move_leader(
        topic, partition, None
    ),
    "add_broker": lambda stage, number: stage.cluster.add_broker(number),
    "renumber": lambda stage, number, to: stage.cluster.brokers[number].renumber(to),
    "advertise": lambda stage, number, at: stage.cluster.brokers[number].advertise(
        *stage.cluster.brokers[at].address
    ),
    "garble": _spoil(lambda given, _sound: given),
    "append_garbage": _spoil(lambda given, sound: sound + given),
    "say": lambda stage, api, times=1, **given: stage.cluster.raw(
        api, bytes.fromhex(given["bytes"]), times=times
    ),
    "no_brokers": _rewrite(_no_brokers),
    "port_zero": _rewrite(_port_zero),
    "negative_ids": _rewrite(_negative_ids),
    "brokers_twice": _rewrite(_twice),
    "old_leader": _rewrite(_old_leader),
    "strange_partition": _rewrite(_strange_partition, "Produce"),
    "retention": _rewrite(_retention, "Produce"),
    "late_epoch": _rewrite(_late_epoch, "InitProducerId"),
    "straggler": _straggler,
    "well": _well,
    "lose": _lose,
    "remake": _remake,
    **{verb: _security(verb) for verb in ("revoke", "grant", "deny", "allow")},
    "listener": _listener,
    "lifetime": _lifetime,
    "scram_count": lambda stage, count: stage.cluster.spoil_scram(count=count),
    "scram_nonce": lambda stage, nonce: stage.cluster.spoil_scram(nonce=nonce.encode()),
    "scram_first": lambda stage, text: stage.cluster.spoil_scram(first=text.encode()),
    "scram_final": lambda stage, text: stage.cluster.spoil_scram(final=text.encode()),
    "cut_tls": lambda stage, behind, times=1: stage.cluster.spoil_tls(cut=behind, times=times),
    "hang_tls": lambda stage, times: stage.cluster.spoil_tls(hang=True, times=times),
    "alert_tls": lambda stage, number, times=1: stage.cluster.spoil_tls(alert=number, times=times),
    "marker_delay": _of_cluster("marker_delay"),
    "transaction_version": _of_cluster("transaction_version"),
    **{
        verb: _broker(verb)
        for verb in (
            "start",
            "stop",
            "pause",
            "resume",
            "vanish",
            "retire",
            "relocate",
            "disconnect_all",
            "close_all",
        )
    },
    "reset_all": lambda stage, _all: stage.cluster.disconnect_all(),
}
