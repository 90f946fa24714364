"""Plays a row: a fake cluster, a client, the row's steps, and their results."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioproducer import Producer
from aioproducer.testing import FakeCluster

from .security import client_options, listener
from .verbs import SCRIPTED, VERBS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from .row import Row

__all__ = ["Called", "Client", "Played", "Sent", "Stage", "Transaction", "play"]

TOPIC = "orders"
_PATIENCE = 30.0  # seconds for the records of `after`
GRACE = 1.0  # seconds after `delivery_timeout_ms` in which a delivery must have ended
_ALWAYS = {"enable_idempotence": True}  # unless a row says otherwise


class Client:
    """Holds the producer of a row. Tests of the judge put a defective one in its place."""

    def __init__(self) -> None:
        self.producer: Producer[Any, Any] | None = None

    async def start(self, cluster: FakeCluster, options: dict[str, Any]) -> None:
        counted = (
            {"batch_max_size": 1} if "batch_size" in options else {}
        )  # its batches are counted
        self.producer = Producer(**{**cluster.client_options, **counted, **options})
        await self.producer.start()

    async def send(
        self, topic: str, value: bytes, partition: int | None
    ) -> Awaitable[tuple[int, int]]:
        assert self.producer is not None
        delivery = await self.producer.send(topic, value, partition=partition)

        async def ended() -> tuple[int, int]:
            metadata = await delivery
            return metadata.partition, metadata.offset

        return ended()

    async def begin(self) -> None:
        assert self.producer is not None
        await self.producer.begin_transaction()

    async def commit(self) -> None:
        assert self.producer is not None
        await self.producer.commit_transaction()

    async def abort(self) -> None:
        assert self.producer is not None
        await self.producer.abort_transaction()

    async def offsets(self, group: str, topic: str, offset: int) -> None:
        assert self.producer is not None
        await self.producer.send_offsets_to_transaction({(topic, 0): offset}, group)

    async def stop(self) -> None:
        assert self.producer is not None
        await self.producer.stop()


@dataclass
class Sent:
    """Holds the result of one record. `is_gone`: the record was in a log, and the row removed it from there."""

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
    """Holds the result of a call. `fails`: the call should fail with the error of this name."""

    name: str
    fails: str
    error: BaseException | None = None


@dataclass
class Transaction:
    """Holds the records of one transaction, and whether its commit has succeeded."""

    sent: list[Sent] = field(default_factory=list)
    is_committed: bool = False


@dataclass
class Played:
    """Holds the results of one row."""

    row: Row
    cluster: FakeCluster
    sent: list[Sent] = field(default_factory=list)
    afterwards: list[Sent] = field(default_factory=list)
    calls: list[Called] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    start_error: BaseException | None = None
    stop_error: BaseException | None = None
    asked: Counter[str] = field(default_factory=Counter)
    dials: int = 0
    started_in: float = 0.0
    protocol: str = "PLAINTEXT"
    done_at: float = 0.0
    lasted: float = 0.0
    waited_for: float = 0.0


class OffScriptError(Exception):
    """A call did not end as its row says. The steps after it would prove nothing."""


class Stage:
    """Plays one row. Each step calls the method that its verb names; `verbs` has more verbs."""

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
                rest["record_errors"] = {
                    int(number): text for number, text in rest["record_errors"].items()
                }
            if verb in SCRIPTED:
                hang = getattr(self.cluster, verb)(value, **rest)
                self.hangs += [hang] if verb == "hang" else []
            else:
                result = (_OF_CLIENTS.get(verb) or VERBS[verb])(self, value, **rest)
                if result is not None:
                    await result

    def count_since(self, request: int, dial: int) -> None:
        """Note how many requests and connections the brokers have seen since these numbers of them."""
        self.played.asked = Counter(one.api for one in self.cluster.requests()[request:])
        self.played.dials = len(self.cluster.security.dials) - dial

    # --- records

    def send(
        self,
        count: int,
        *,
        partition: int | None = 0,
        size: int = 0,
        topic: str = TOPIC,
        by: int = 0,
        pause: float = 0,
    ) -> None:
        """Let one task send `count` records, one after the other. The next steps do not wait for that task.

        With a `pause` of some seconds behind each record, `Sent.at` is the time of the record's own send.
        """
        client = self.clients[by - 1]
        values = [b"%d" % (self.count + number) for number in range(count)]
        self.count += count
        records = [
            Sent(value + b"." * max(0, size - len(value)), self.loop.time()) for value in values
        ]
        self.into += records
        if client in self.open:
            self.open[client].sent += records
        self.queueing.append(self.loop.create_future())
        self.senders.append(
            self.loop.create_task(
                self._send(client, records, topic, partition, pause, self.queueing[-1])
            )
        )

    async def _send(
        self,
        client: Client,
        records: list[Sent],
        topic: str,
        partition: int | None,
        pause: float,
        queued: asyncio.Future[None],
    ) -> None:
        ending: list[asyncio.Task[None]] = []
        for record in records:
            if pause:
                await asyncio.sleep(pause)
                record.at = self.loop.time()
            try:
                delivery = await client.send(topic, record.value, partition)
            except Exception as error:  # any exception of a client is the record's result
                record.error, record.ended = error, self.loop.time()
            else:
                ending.append(self.loop.create_task(self._end(record, delivery)))
        queued.set_result(None)
        await asyncio.gather(*ending)

    async def _end(self, record: Sent, delivery: Awaitable[tuple[int, int]]) -> None:
        try:
            record.partition, record.offset = await delivery
        except Exception as error:
            record.error = error
        record.ended = self.loop.time()

    async def settle(self, seconds: float) -> None:
        """Wait until all deliveries have ended, at most `seconds`."""
        if self.senders:
            await asyncio.wait(self.senders, timeout=seconds)

    def release(self, _all: object) -> None:
        for hang in self.hangs:
            hang.release()

    def forget_logged(self, from_offset: int = 0) -> None:
        """Mark the records that are in the topic's logs from an offset on as removed: the judge does not expect them there."""
        standing = {
            record.value for record in self.cluster.records(TOPIC) if record.offset >= from_offset
        }
        for sent in self.played.sent:
            sent.is_gone = sent.is_gone or sent.value in standing

    # --- transactions, by the newest client or by a certain one

    async def successor(self, _one: object) -> None:
        """Start another client of the same make and options. The client before it keeps running."""
        client = type(self.clients[-1])()
        self.clients.append(client)
        await self._call("start", "", lambda: client.start(self.cluster, self.options))

    @property
    def options(self) -> dict[str, Any]:
        row = self.played.row
        return {
            **_ALWAYS,
            **(client_options(row.security, row.options) if row.security else row.options),
        }

    async def begin(self, _one: object, *, by: int = 0, fails: str = "") -> None:
        client = self.clients[by - 1]
        if await self._call("begin", fails, client.begin):
            self.open[client] = Transaction()
            self.played.transactions.append(self.open[client])

    async def commit(self, _one: object, *, by: int = 0, fails: str = "") -> None:
        client = self.clients[by - 1]
        if await self._call("commit", fails, client.commit):
            self.open.pop(client).is_committed = True

    async def abort(self, _one: object, *, by: int = 0, fails: str = "") -> None:
        client = self.clients[by - 1]
        if await self._call("abort", fails, client.abort):
            self.open.pop(client)

    async def offsets(self, group: str, *, at: int, by: int = 0, fails: str = "") -> None:
        await self._call("offsets", fails, lambda: self.clients[by - 1].offsets(group, TOPIC, at))

    async def _call(self, name: str, fails: str, call: Callable[[], Awaitable[None]]) -> bool:
        """Make the call and note its result. Returns whether it succeeded."""
        called = Called(name, fails)
        self.played.calls.append(called)
        try:
            async with asyncio.timeout(self.limit):
                for queued in self.queueing:
                    await asyncio.shield(queued)
                await call()
        except Exception as error:
            called.error = error
        if (called.error is None) is bool(fails):
            raise OffScriptError
        return called.error is None

    async def end(self) -> None:
        """Stop the clients, and the tasks that still send."""
        for client in self.clients:
            try:
                await client.stop()
            except Exception as error:
                self.played.stop_error = error
        for sender in self.senders:
            sender.cancel()
        await asyncio.gather(*self.senders, return_exceptions=True)


_OF_CLIENTS: dict[str, Callable[..., Any]] = {
    verb: getattr(Stage, verb)
    for verb in ("send", "settle", "release", "successor", "begin", "commit", "abort", "offsets")
}


async def play(row: Row, client: Client) -> Played:
    """Play a row with a client that was not started yet."""
    limit = (
        row.options.get("delivery_timeout_ms", 120_000) + row.options.get("max_block_ms", 60_000)
    ) / 1000 + GRACE
    async with FakeCluster(
        row.brokers, memory=True, security=listener(**row.security), **row.cluster
    ) as cluster:
        cluster.create_topic(TOPIC, row.partitions, row.config)
        played = Played(row, cluster, waited_for=limit)
        stage = Stage(played, client, limit)
        await stage.do(row.before)
        options = stage.options
        played.protocol = options.get("security_protocol", played.protocol)
        began, dials, began_at = (
            len(cluster.requests()),
            len(cluster.security.dials),
            stage.loop.time(),
        )
        try:
            await client.start(cluster, options)
        except Exception as error:  # any exception is the result of the start
            played.start_error = error
            played.started_in = stage.loop.time() - began_at
            stage.count_since(began, dials)
            return played
        played.started_in = stage.loop.time() - began_at
        with contextlib.suppress(OffScriptError):  # that call's own result says so
            try:
                await _act(stage)
            finally:
                await stage.end()
    return played


async def _act(stage: Stage) -> None:
    played, cluster = stage.played, stage.cluster
    began, dials, began_at = len(cluster.requests()), len(cluster.security.dials), stage.loop.time()
    await stage.do(played.row.do)
    played.done_at = stage.loop.time()
    played.lasted = played.done_at - began_at
    await stage.settle(played.waited_for)
    stage.count_since(began, dials)
    stage.into = played.afterwards
    await stage.do(played.row.after)
    await stage.settle(_PATIENCE)
