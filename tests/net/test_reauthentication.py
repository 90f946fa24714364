"""Tests of the renewal of sessions (KIP-368) by `aioproducer.net.broker_connection`, against a scripted broker in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from jumping import jumping, settle, until
from nodes import Tasks, ask, running
from sasl_peers import SaslBroker
from scripted import Asked, ScriptedDialer, ScriptedStream

from aioproducer.config.secret import Secret
from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.errors import ConnectionLost, TransportError
from aioproducer.net.observer import Observer
from aioproducer.net.sasl_login import SaslLogin, password_mechanism
from aioproducer.net.settings import Security
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer.net.cluster import BrokerNode
    from aioproducer.net.connection import Answer

USERS = {"alice": "canary-alice", "bob": "canary-bob"}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
BODY = codec("Metadata.request", 9).encode(message("Metadata.request", topics=[]))


class Watching(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.good: list[tuple[str, float, float, bool]] = []
        self.bad: list[tuple[str, TransportError, bool]] = []
        self.failures: list[TransportError] = []

    def authenticated(
        self,
        broker: Broker,
        label: str,
        seconds: float,
        session_seconds: float,
        *,
        is_renewal: bool,
    ) -> None:
        self.good.append((label, seconds, session_seconds, is_renewal))

    def authentication_failed(
        self, broker: Broker, label: str, error: TransportError, *, is_renewal: bool
    ) -> None:
        self.bad.append((label, error, is_renewal))

    def failed(self, broker: Broker, label: str, cause: TransportError, failures: int) -> None:
        self.failures.append(cause)


class Scene:
    """A node with an authenticated produce connection and sessions of 3 s, and its broker."""

    def __init__(
        self,
        node: BrokerNode,
        broker: SaslBroker,
        dialer: ScriptedDialer,
        observer: Watching,
        changed: list[BrokerNode],
    ) -> None:
        self.node, self.broker, self.dialer, self.observer, self.changed = (
            node,
            broker,
            dialer,
            observer,
            changed,
        )
        self.answers: list[Any] = []

    @property
    def stream(self) -> ScriptedStream:
        return self.dialer.streams[-1]

    def send(self, timeout: float = 30.0) -> None:
        connection = self.node.produce.connection
        assert connection is not None
        connection.send(ApiKey.METADATA, 9, BODY, self.answers.append, timeout)


@contextlib.asynccontextmanager
async def scene(
    mechanism: str = "PLAIN",
    session_ms: int = 3000,
    user: Any = "alice",
    password: str = "canary-alice",
    **options: Any,
) -> AsyncIterator[Scene]:
    broker = SaslBroker(dict(USERS))
    broker.session_ms = session_ms
    dialer = ScriptedDialer(answers=broker.answers)
    observer = Watching()
    changed: list[BrokerNode] = []
    login = password_mechanism(mechanism, user, Secret(password))
    security = Security(sasl=SaslLogin(lambda _host: login))
    tasks = options.pop("tasks", Tasks())
    async with running(
        dialer,
        on_change=changed.append,
        tasks=tasks,
        security=security,
        observer=observer,
        **options,
    ) as node:
        node.produce.request_connection()
        await until(lambda: node.is_ready)
        yield Scene(node, broker, dialer, observer, changed)
    assert tasks.alive == []
    assert broker.violations == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
@jumping
async def test_what_is_in_flight_is_answered_and_what_comes_is_held(mechanism: str) -> None:
    """Row 101: in order, and nothing is sent between SaslHandshake and the last answer."""
    async with scene(mechanism) as played:
        pending: list[tuple[ScriptedStream, Asked]] = []
        played.broker.others = lambda stream, asked: pending.append((stream, asked))
        for _ in range(5):
            played.send()
        await settle()
        played.broker.silent = {ApiKey.SASL_HANDSHAKE}
        await asyncio.sleep(2.7)
        await settle()
        handshake = played.stream.asked[-1]
        assert handshake.key is ApiKey.SASL_HANDSHAKE
        assert not played.node.is_ready
        assert played.node.produce.is_usable
        connection = played.node.produce.connection
        assert connection is not None
        for _ in range(3):
            played.send()
        written: list[Any] = []
        connection.send_unanswered(ApiKey.PRODUCE, 9, PRODUCE, written.append)
        waiting = asyncio.ensure_future(played.node.produce.connected(5.0))
        await settle()
        assert played.stream.asked[-1] is handshake
        assert connection.in_flight == 5 + 1 + 4
        for stream, asked in pending:
            stream.answer(asked)
        assert len(played.answers) == 5
        pending.clear()
        assert not waiting.done()
        changes = len(played.changed)
        played.broker.silent = set()
        played.broker.answers(played.stream, handshake)
        await until(lambda: played.node.is_ready)
        await settle()
        assert played.broker.renewals() == 1
        assert [asked.key for _, asked in pending] == [ApiKey.METADATA] * 3 + [ApiKey.PRODUCE]
        assert written == [None]
        assert waiting.done()
        assert waiting.result() is connection
        assert len(played.changed) == changes + 1
        assert connection.held is None


PRODUCE = codec("Produce.request", 9).encode(
    message("Produce.request", acks=0, timeout_ms=1000, topics=[])
)


@jumping
async def test_a_call_waits_for_the_renewal() -> None:
    """Metadata is asked over the control connection when its session is renewed."""
    async with scene() as played:
        await ask(played.node)
        played.broker.silent = {ApiKey.SASL_AUTHENTICATE}
        await asyncio.sleep(2.7)
        await settle()
        call = ask(played.node)
        await settle()
        assert not call.done()
        held = played.dialer.streams[1]
        played.broker.silent = set()
        played.broker.answers(held, held.asked[-1])
        answer: Answer = await call
        assert answer.key is ApiKey.METADATA


@jumping
async def test_a_renewal_is_no_use_of_a_connection() -> None:
    """An idle connection is closed by its idle time, also if its session is renewed meanwhile."""
    async with scene(max_idle=10.0) as played:
        await asyncio.sleep(9.8)
        assert played.node.produce.is_usable
        await asyncio.sleep(0.4)
        assert not played.node.produce.is_usable
        assert played.broker.renewals() == 3
        await asyncio.sleep(30)
        assert len(played.dialer.dials) == 1


@jumping
async def test_an_idle_connection_is_closed_after_a_renewal_that_takes_long() -> None:
    """Its idle time ends in the renewal: it is closed within a second after it, not before."""
    async with scene(max_idle=2.75) as played:
        played.broker.silent = {ApiKey.SASL_HANDSHAKE}
        await asyncio.sleep(4)
        assert played.node.produce.is_usable
        played.broker.silent = set()
        played.broker.answers(played.stream, played.stream.asked[-1])
        await asyncio.sleep(1.1)
        assert not played.node.produce.is_usable
        assert played.broker.renewals() == 1


@jumping
async def test_a_throttled_broker_has_more_time() -> None:
    """It does not read meanwhile: the exchange's time begins when it reads again, or goes on then."""
    for muted_at in (2.6, 2.75):
        async with scene(request_timeout=5.0) as played:
            played.broker.silent = {ApiKey.SASL_HANDSHAKE}
            await asyncio.sleep(muted_at)
            played.node.throttle(20_000)
            await asyncio.sleep(23)
            assert played.node.produce.is_usable
            played.broker.silent = set()
            played.broker.answers(played.stream, played.stream.asked[-1])
            await settle()
            assert played.node.is_ready
            assert played.broker.renewals() == 1


@jumping
async def test_credentials_that_cannot_be_read_leave_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing was sent yet: it is tried again each second, until the broker ends the session."""
    monkeypatch.setenv("CANARY_PASSWORD", "canary-alice")
    async with scene(password="${env:CANARY_PASSWORD}") as played:
        monkeypatch.delenv("CANARY_PASSWORD")
        await asyncio.sleep(4.8)
        assert played.node.is_ready
        assert [type(error) for _, error, _ in played.observer.bad] == [ConnectionLost] * 3
        monkeypatch.setenv("CANARY_PASSWORD", "canary-alice")
        await asyncio.sleep(1)
        assert played.broker.renewals() == 1
        assert len(played.dialer.dials) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
@jumping
async def test_closing_at_every_step_of_a_renewal(mechanism: str) -> None:
    """Cancellation at every await: held requests fail, no task and no stream is left."""
    for steps in range(30):
        async with scene(mechanism) as played:
            await asyncio.sleep(2.69999)
            played.send()
            await asyncio.sleep(0.00001)
            for _ in range(steps):
                await asyncio.sleep(0)
            connection = played.node.produce.connection
            assert connection is not None
            if connection.held is not None:
                played.send()
            sent = 2 if connection.held is not None else 1
            played.node.close()
            await settle()
            assert len(played.answers) == sent
            assert all(stream.is_closing() for stream in played.dialer.streams)
