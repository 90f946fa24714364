"""Where a row is played: a fake cluster, one client, the row's steps, and what came of it. Knows no client in particular."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from .row import Row

__all__ = ["Client", "Played", "Sent", "play"]

TOPIC = "orders"
GRACE = 1.0  # seconds after `delivery_timeout_ms` in which a delivery must have ended


class Client(Protocol):
    """A producer of any kind."""

    async def start(self, cluster: FakeCluster, options: dict[str, Any]) -> None:
        """Start, or raise."""

    async def send(self, topic: str, value: bytes, partition: int | None) -> Awaitable[tuple[int, int]]:
        """Queue a record; what it gives back ends with partition and offset, or raises. -1 is an offset that is not known."""

    async def stop(self) -> None:
        """Stop, within some seconds."""


@dataclass
class Sent:
    """What became of one record."""

    value: bytes
    at: float
    partition: int | None = None
    offset: int | None = None
    error: BaseException | None = None
    ended: float | None = None

    @property
    def is_acked(self) -> bool:
        return self.offset is not None


@dataclass
class Played:
    """What came of one row."""

    row: Row
    cluster: FakeCluster
    sent: list[Sent] = field(default_factory=list)
    afterwards: list[Sent] = field(default_factory=list)
    start_error: BaseException | None = None
    stop_error: BaseException | None = None
    asked: Counter[str] = field(default_factory=Counter)
    done_at: float = 0.0
    waited_for: float = 0.0


class _Stage:
    def __init__(self, played: Played, client: Client) -> None:
        self.played = played
        self.cluster = played.cluster
        self.client = client
        self.loop = asyncio.get_running_loop()
        self.hangs: list[Any] = []
        self.senders: list[asyncio.Task[None]] = []
        self.into = played.sent
        self.count = 0

    async def do(self, steps: Iterable[dict[str, Any]]) -> None:
        for step in steps:
            verb, value = next(iter(step.items()))
            rest = {name: given for name, given in step.items() if name != verb}
            if rest.get("times") == 0:  # in the files: all
                rest["times"] = None
            if verb in _SCRIPTED:
                hang = getattr(self.cluster, verb)(value, **rest)
                self.hangs += [hang] if verb == "hang" else []
            else:
                result = _VERBS[verb](self, value, **rest)
                if result is not None:
                    await result

    # --- verbs of its own

    def send(self, count: int, *, partition: int | None = 0, size: int = 0, topic: str = TOPIC) -> None:
        """Let one task send so many records, one after the other; the steps go on."""
        values = [b"%d" % (self.count + number) for number in range(count)]
        self.count += count
        records = [Sent(value + b"." * max(0, size - len(value)), self.loop.time()) for value in values]
        self.into += records
        self.senders.append(self.loop.create_task(self._send(records, topic, partition)))

    async def _send(self, records: list[Sent], topic: str, partition: int | None) -> None:
        ending: list[asyncio.Task[None]] = []
        for record in records:
            try:
                delivery = await self.client.send(topic, record.value, partition)
            except Exception as error:  # noqa: BLE001  whatever a client raises is what came of the record
                record.error, record.ended = error, self.loop.time()
            else:
                ending.append(self.loop.create_task(self._end(record, delivery)))
        await asyncio.gather(*ending)

    async def _end(self, record: Sent, delivery: Awaitable[tuple[int, int]]) -> None:
        try:
            record.partition, record.offset = await delivery
        except Exception as error:  # noqa: BLE001  see above
            record.error = error
        record.ended = self.loop.time()

    async def settle(self, seconds: float) -> None:
        """Wait until all that was sent has ended, at most so long."""
        if self.senders:
            await asyncio.wait(self.senders, timeout=seconds)

    def release(self, _all: object) -> None:
        for hang in self.hangs:
            hang.release()

    def each_broker(self, name: str, value: float) -> None:
        for broker in self.cluster.brokers.values():
            setattr(broker, name, value)

    async def end(self) -> None:
        for sender in self.senders:
            sender.cancel()
        await asyncio.gather(*self.senders, return_exceptions=True)


def _broker(method: str) -> Callable[..., Any]:
    """A step whose value is a broker's number."""
    return lambda stage, number, **rest: getattr(stage.cluster.brokers[number], method)(**rest)


def _spoil(make: Callable[[bytes, bytes], bytes]) -> Callable[..., None]:
    """A step whose value is a request, and whose `bytes`, in hexadecimal, make the body of its answer."""

    def step(stage: _Stage, api: str, times: int | None = 1, **given: str) -> None:
        stage.cluster.garbage(api, lambda sound: make(bytes.fromhex(given["bytes"]), sound), times=times)

    return step


def _rewrite(change: Callable[[Any], object], api: str = "Metadata") -> Callable[..., None]:
    """A step whose value is how many answers are changed; 0: all."""
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
    """Beside the partitions that were sent, one that was not."""
    for topic in answer.topics:
        strange = copy.copy(topic.partitions[0])
        strange.index += 70
        topic.partitions = [strange, *topic.partitions]


def _old_leader(answer: Any) -> None:
    """Who led before the epoch that there is now, as a broker tells that has not heard of it."""
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.leader_id = 1
            partition.leader_epoch = 0


_SCRIPTED = frozenset(
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
        "speak",
    ]
)
_VERBS: dict[str, Callable[..., Any]] = {
    "send": _Stage.send,
    "settle": _Stage.settle,
    "release": _Stage.release,
    "sleep": lambda _stage, seconds: asyncio.sleep(seconds),
    "seen": lambda stage, api, count=1: stage.cluster.seen(api, count),
    "clear": lambda stage, _all: stage.cluster.faults.clear(),
    "latency": lambda stage, seconds: stage.each_broker("latency", seconds),
    "bandwidth": lambda stage, rate: stage.each_broker("bandwidth", rate or None),
    "leaderless": lambda stage, topic, partition=0: stage.cluster.move_leader(topic, partition, None),
    "add_broker": lambda stage, number: stage.cluster.add_broker(number),
    "renumber": lambda stage, number, to: stage.cluster.brokers[number].renumber(to),
    "advertise": lambda stage, number, at: stage.cluster.brokers[number].advertise(*stage.cluster.brokers[at].address),
    "garble": _spoil(lambda given, _sound: given),
    "append_garbage": _spoil(lambda given, sound: sound + given),
    "say": lambda stage, api, times=1, **given: stage.cluster.raw(api, bytes.fromhex(given["bytes"]), times=times),
    "no_brokers": _rewrite(_no_brokers),
    "port_zero": _rewrite(_port_zero),
    "negative_ids": _rewrite(_negative_ids),
    "brokers_twice": _rewrite(_twice),
    "old_leader": _rewrite(_old_leader),
    "strange_partition": _rewrite(_strange_partition, "Produce"),
    **{verb: _broker(verb) for verb in ("start", "stop", "pause", "resume", "vanish", "retire", "relocate", "disconnect_all", "close_all")},
    "reset_all": lambda stage, _all: stage.cluster.disconnect_all(),
}


async def play(row: Row, client: Client, *, memory: bool, patience: float | None = None) -> Played:
    """Play a row with a client that was not started yet.

    Args:
        row: what happens.
        client: to whom.
        memory: whether there are sockets.
        patience: seconds from the last step to the end of the last delivery; None: as long as the row's options let them take.
    """
    limit = (row.options.get("delivery_timeout_ms", 120_000) + row.options.get("max_block_ms", 60_000)) / 1000 + GRACE
    async with FakeCluster(row.brokers, memory=memory, **row.cluster) as cluster:
        cluster.create_topic(TOPIC, row.partitions, row.config)
        played = Played(row, cluster)
        stage = _Stage(played, client)
        await stage.do(row.before)
        try:
            await client.start(cluster, row.options)
        except Exception as error:  # noqa: BLE001  whatever it raises is what came of the start
            played.start_error = error
            return played
        try:
            began = len(cluster.requests())
            await stage.do(row.do)
            played.done_at = stage.loop.time()
            played.waited_for = limit if patience is None else patience
            await stage.settle(played.waited_for)
            played.asked = Counter(request.api for request in cluster.requests()[began:])
            stage.into = played.afterwards
            await stage.do(row.after)
            await stage.settle(30 if patience is None else patience)
        finally:
            try:
                await client.stop()
            except Exception as error:  # noqa: BLE001  see above
                played.stop_error = error
            await stage.end()
    return played
