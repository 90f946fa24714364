"""Where a row is played: a fake cluster, one client, the row's steps, and what came of it. Knows no client in particular."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from aioproducer.testing import FakeCluster

from .verbs import SCRIPTED, VERBS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from .row import Row

__all__ = ["Called", "Client", "Played", "Sent", "Stage", "Transaction", "play"]

TOPIC = "orders"
GRACE = 1.0  # seconds after `delivery_timeout_ms` in which a delivery must have ended
_ALWAYS = {"enable_idempotence": True}  # unless a row says otherwise


class Client(Protocol):
    """A producer of any kind. Made without arguments."""

    async def start(self, cluster: FakeCluster, options: dict[str, Any]) -> None:
        """Start, or raise."""

    async def send(self, topic: str, value: bytes, partition: int | None) -> Awaitable[tuple[int, int]]:
        """Queue a record; what it gives back ends with partition and offset, or raises. -1 is an offset that is not known."""

    async def begin(self) -> None:
        """Begin a transaction, or raise."""

    async def commit(self) -> None:
        """Commit it, or raise."""

    async def abort(self) -> None:
        """Abort it, or raise."""

    async def offsets(self, group: str, topic: str, offset: int) -> None:
        """Let it have an offset of partition 0, or raise."""

    async def stop(self) -> None:
        """Stop, within some seconds."""


@dataclass
class Sent:
    """What became of one record. `is_gone`: what stood in a log, and was taken from it by the row."""

    value: bytes
    at: float
    partition: int | None = None
    offset: int | None = None
    error: BaseException | None = None
    ended: float | None = None
    is_gone: bool = False

    @property
    def is_acked(self) -> bool:
        return self.offset is not None


@dataclass
class Called:
    """What became of a call. `fails`: that it should fail, and ours as what."""

    name: str
    fails: str | bool
    error: BaseException | None = None


@dataclass
class Transaction:
    """What was sent in one, and whether its commit has succeeded."""

    sent: list[Sent] = field(default_factory=list)
    is_committed: bool = False


@dataclass
class Played:
    """What came of one row."""

    row: Row
    cluster: FakeCluster
    sent: list[Sent] = field(default_factory=list)
    afterwards: list[Sent] = field(default_factory=list)
    calls: list[Called] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    start_error: BaseException | None = None
    stop_error: BaseException | None = None
    asked: Counter[str] = field(default_factory=Counter)
    done_at: float = 0.0
    lasted: float = 0.0
    waited_for: float = 0.0


class OffScriptError(Exception):
    """A call did not end as its row says; what follows would mean nothing."""


class Stage:
    """One row's play. Steps do what its verbs do; see also `verbs`."""

    def __init__(self, played: Played, client: Client, limit: float) -> None:
        self.played = played
        self.cluster = played.cluster
        self.clients = [client]
        self.limit = limit
        self.loop = asyncio.get_running_loop()
        self.hangs: list[Any] = []
        self.senders: list[asyncio.Task[None]] = []
        self.queueing: list[asyncio.Future[None]] = []
        self.open: dict[Client, Transaction] = {}
        self.into = played.sent
        self.count = 0

    async def do(self, steps: Iterable[dict[str, Any]]) -> None:
        for step in steps:
            verb, value = next(iter(step.items()))
            rest = {name: given for name, given in step.items() if name != verb}
            if rest.get("times") == 0:  # in the files: all
                rest["times"] = None
            if "record_errors" in rest:  # keys are text there
                rest["record_errors"] = {int(number): text for number, text in rest["record_errors"].items()}
            if verb in SCRIPTED:
                hang = getattr(self.cluster, verb)(value, **rest)
                self.hangs += [hang] if verb == "hang" else []
            else:
                result = (_OF_CLIENTS.get(verb) or VERBS[verb])(self, value, **rest)
                if result is not None:
                    await result

    # --- records

    def send(self, count: int, *, partition: int | None = 0, size: int = 0, topic: str = TOPIC, by: int = 0) -> None:
        """Let one task send so many records, one after the other; the steps go on."""
        client = self.clients[by - 1]
        values = [b"%d" % (self.count + number) for number in range(count)]
        self.count += count
        records = [Sent(value + b"." * max(0, size - len(value)), self.loop.time()) for value in values]
        self.into += records
        if client in self.open:
            self.open[client].sent += records
        self.queueing.append(self.loop.create_future())
        self.senders.append(self.loop.create_task(self._send(client, records, topic, partition, self.queueing[-1])))

    async def _send(self, client: Client, records: list[Sent], topic: str, partition: int | None, queued: asyncio.Future[None]) -> None:
        ending: list[asyncio.Task[None]] = []
        for record in records:
            try:
                delivery = await client.send(topic, record.value, partition)
            except Exception as error:  # noqa: BLE001  whatever a client raises is what came of the record
                record.error, record.ended = error, self.loop.time()
            else:
                ending.append(self.loop.create_task(self._end(record, delivery)))
        queued.set_result(None)
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

    def forget_logged(self, from_offset: int = 0) -> None:
        """What stands in the topic's logs now, from an offset on, is to be taken from there, and asked for no more."""
        standing = {record.value for record in self.cluster.records(TOPIC) if record.offset >= from_offset}
        for sent in self.played.sent:
            sent.is_gone = sent.is_gone or sent.value in standing

    # --- transactions, by the newest client or by a certain one

    async def successor(self, _one: object) -> None:
        """Start another client of the same make and options; the one before is left as it is."""
        client = type(self.clients[-1])()
        self.clients.append(client)
        await self._call("start", False, lambda: client.start(self.cluster, self.options))

    @property
    def options(self) -> dict[str, Any]:
        return {**_ALWAYS, **self.played.row.options}

    async def begin(self, _one: object, *, by: int = 0, fails: str | bool = False) -> None:
        client = self.clients[by - 1]
        if await self._call("begin", fails, client.begin):
            self.open[client] = Transaction()
            self.played.transactions.append(self.open[client])

    async def commit(self, _one: object, *, by: int = 0, fails: str | bool = False) -> None:
        client = self.clients[by - 1]
        if await self._call("commit", fails, client.commit):
            self.open.pop(client).is_committed = True

    async def abort(self, _one: object, *, by: int = 0, fails: str | bool = False) -> None:
        client = self.clients[by - 1]
        if await self._call("abort", fails, client.abort):
            self.open.pop(client)

    async def offsets(self, group: str, *, at: int, by: int = 0, fails: str | bool = False) -> None:
        await self._call("offsets", fails, lambda: self.clients[by - 1].offsets(group, TOPIC, at))

    async def _call(self, name: str, fails: str | bool, call: Callable[[], Awaitable[None]]) -> bool:
        """Whether it succeeded."""
        called = Called(name, fails)
        self.played.calls.append(called)
        try:
            async with asyncio.timeout(self.limit):
                for queued in self.queueing:
                    await asyncio.shield(queued)
                await call()
        except Exception as error:  # noqa: BLE001  see above
            called.error = error
        if (called.error is None) is bool(fails):
            raise OffScriptError
        return called.error is None

    async def end(self) -> None:
        """Stop the clients, and what is still being sent."""
        for client in self.clients:
            try:
                await client.stop()
            except Exception as error:  # noqa: BLE001  see above
                self.played.stop_error = error
        for sender in self.senders:
            sender.cancel()
        await asyncio.gather(*self.senders, return_exceptions=True)


_OF_CLIENTS: dict[str, Callable[..., Any]] = {
    verb: getattr(Stage, verb) for verb in ("send", "settle", "release", "successor", "begin", "commit", "abort", "offsets")
}


async def play(row: Row, client: Client, *, memory: bool, patience: float | None = None) -> Played:
    """Play a row with a client that was not started yet.

    Args:
        row: what happens.
        client: to whom.
        memory: whether there are sockets.
        patience: seconds from the last step to the end of the last delivery, and of each call; None: as long as the row's options let
            them take.
    """
    limit = (row.options.get("delivery_timeout_ms", 120_000) + row.options.get("max_block_ms", 60_000)) / 1000 + GRACE
    async with FakeCluster(row.brokers, memory=memory, **row.cluster) as cluster:
        cluster.create_topic(TOPIC, row.partitions, row.config)
        played = Played(row, cluster, waited_for=limit if patience is None else patience)
        stage = Stage(played, client, played.waited_for)
        await stage.do(row.before)
        try:
            await client.start(cluster, stage.options)
        except Exception as error:  # noqa: BLE001  whatever it raises is what came of the start
            played.start_error = error
            return played
        try:
            await _act(stage, 30 if patience is None else patience)
        except OffScriptError:
            pass  # the call that it was about tells
        finally:
            await stage.end()
    return played


async def _act(stage: Stage, patience: float) -> None:
    played, cluster = stage.played, stage.cluster
    began, began_at = len(cluster.requests()), stage.loop.time()
    await stage.do(played.row.do)
    played.done_at = stage.loop.time()
    played.lasted = played.done_at - began_at
    await stage.settle(played.waited_for)
    played.asked = Counter(request.api for request in cluster.requests()[began:])
    stage.into = played.afterwards
    await stage.do(played.row.after)
    await stage.settle(patience)
