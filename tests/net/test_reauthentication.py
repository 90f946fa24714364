"""Tests of the renewal of sessions (KIP-368) by `aioproducer.net.broker_connection`, against a scripted broker in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from jumping import jumping, settle, until
from nodes import Tasks, ask, now, running
from sasl_peers import SaslBroker
from scripted import Asked, ScriptedDialer, ScriptedStream

from aioproducer.config.secret import Secret
from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.errors import ConnectionLost, CredentialsRefused, RequestTimedOut, TransportError
from aioproducer.net.observer import Observer
from aioproducer.net.sasl_login import SaslLogin
from aioproducer.net.settings import Security
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer.net.cluster import BrokerNode
    from aioproducer.net.connection import Answer

USERS = {"alice": "canary-alice", "bob": "canary-bob"}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
BROKERS = [Broker(number, f"host-{number}", 9092) for number in range(3)]
BODY = codec("Metadata.request", 9).encode(message("Metadata.request", topics=[]))


class Watching(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.good: list[tuple[str, float, float, bool]] = []
        self.bad: list[tuple[str, TransportError, bool]] = []
        self.failures: list[TransportError] = []

    def authenticated(self, broker: Broker, label: str, seconds: float, session_seconds: float, *, is_renewal: bool) -> None:
        self.good.append((label, seconds, session_seconds, is_renewal))

    def authentication_failed(self, broker: Broker, label: str, error: TransportError, *, is_renewal: bool) -> None:
        self.bad.append((label, error, is_renewal))

    def failed(self, broker: Broker, label: str, cause: TransportError, failures: int) -> None:
        self.failures.append(cause)


class Scene:
    """A node with an authenticated produce connection and sessions of 3 s, and its broker."""

    def __init__(self, node: BrokerNode, broker: SaslBroker, dialer: ScriptedDialer, observer: Watching, changed: list[BrokerNode]) -> None:
        self.node, self.broker, self.dialer, self.observer, self.changed = node, broker, dialer, observer, changed
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
    mechanism: str = "PLAIN", session_ms: int = 3000, user: Any = "alice", password: str = "canary-alice", **options: Any
) -> AsyncIterator[Scene]:
    broker = SaslBroker(dict(USERS))
    broker.session_ms = session_ms
    dialer = ScriptedDialer(answers=broker.answers)
    observer = Watching()
    changed: list[BrokerNode] = []
    security = Security(sasl=SaslLogin(mechanism, user, Secret(password), chance=lambda: 0.5))
    tasks = options.pop("tasks", Tasks())
    async with running(dialer, on_change=changed.append, tasks=tasks, security=security, observer=observer, **options) as node:
        node.produce.request_connection()
        await until(lambda: node.is_ready)
        yield Scene(node, broker, dialer, observer, changed)
    assert tasks.alive == []
    assert broker.violations == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
@jumping
async def test_a_session_is_renewed_in_place(mechanism: str) -> None:
    """At 90 % of each session here: 22 times a minute; one dial, no failure."""
    async with scene(mechanism) as played:
        await asyncio.sleep(60)
        assert played.broker.renewals() == 22
        assert len(played.dialer.dials) == 1
        assert played.observer.bad == []
        assert played.observer.good[0][2:] == (3.0, False)
        assert [renewal[2:] for renewal in played.observer.good[1:]] == [(3.0, True)] * 22
        gaps = [later.at - sooner.at for sooner, later in itertools.pairwise(played.broker.logins)]
        assert gaps == [pytest.approx(2.7)] * 22


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


PRODUCE = codec("Produce.request", 9).encode(message("Produce.request", acks=0, timeout_ms=1000, topics=[]))


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
async def test_another_principal_gets_a_new_connection_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 105: no failure is counted, requests that were held fail and may go again, and the new session is bob's."""
    monkeypatch.setenv("CANARY_PASSWORD", "canary-alice")
    monkeypatch.setenv("CANARY_USER", "alice")
    async with scene(user=Secret("${env:CANARY_USER}"), password="${env:CANARY_PASSWORD}") as played:
        monkeypatch.setenv("CANARY_USER", "bob")
        monkeypatch.setenv("CANARY_PASSWORD", "canary-bob")
        await asyncio.sleep(2.8)
        played.send()
        assert played.answers == []
        await asyncio.sleep(0.25)
        await until(lambda: played.node.is_ready)
        assert len(played.dialer.dials) == 2
        assert (played.node.failures, played.node.last_error) == (0, None)
        assert [(done.user, done.is_good) for done in played.broker.logins] == [("alice", True), ("bob", False), ("bob", True)]
        assert isinstance(played.answers[0], CredentialsRefused)
        assert played.observer.failures == []
        [(label, error, is_renewal)] = played.observer.bad
        assert (label, is_renewal) == ("produce", True)
        assert "Cannot change principals" in str(error)


@jumping
async def test_revoked_credentials_and_granted_again() -> None:
    """Row 103: three nodes, six connections, sessions of 3 s: at most six dials in 12 s; then all go on within one pause."""
    broker = SaslBroker(dict(USERS))
    broker.session_ms = 3000
    dialer = ScriptedDialer(answers=broker.answers)
    chances = iter(range(10**9))
    security = Security(sasl=SaslLogin("SCRAM-SHA-256", "alice", Secret("canary-alice"), chance=lambda: 0.5))
    async with contextlib.AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(
                running(
                    dialer,
                    BROKERS[number],
                    on_change=wanted,
                    security=security,
                    chance=lambda: next(chances) * 0.37 % 1,
                )
            )
            for number in range(3)
        ]
        for node in nodes:
            wanted(node)
        await asyncio.sleep(10)
        assert len(dialer.dials) == 6
        broker.users = {}
        await asyncio.sleep(12)
        dials = len(dialer.dials) - 6
        assert 1 <= dials <= 6
        assert all(isinstance(node.last_error, CredentialsRefused) for node in nodes)
        broker.users = dict(USERS)
        await asyncio.sleep(10)
        assert all(node.produce.is_usable and node.control.is_usable for node in nodes)
        assert len(dialer.dials) - dials <= 6 + 7


def wanted(node: BrokerNode) -> None:
    for connection in (node.produce, node.control):
        connection.request_connection()


@jumping
async def test_a_renewal_without_an_answer_ends_the_connection() -> None:
    """Row 101: after request_timeout; held requests fail with that."""
    async with scene(request_timeout=5.0) as played:
        played.broker.silent = {ApiKey.SASL_AUTHENTICATE}
        await asyncio.sleep(2.75)
        played.send()
        began = now()
        await asyncio.sleep(4.9)
        assert played.answers == []
        await asyncio.sleep(0.2)
        [error] = played.answers
        assert isinstance(error, RequestTimedOut)
        assert "SaslAuthenticate" in str(error)
        assert now() - began < 5.2
        played.broker.silent = set()
        played.node.produce.request_connection()
        await asyncio.sleep(0.1)
        assert played.node.is_ready


@jumping
async def test_a_connection_that_is_lost_in_a_renewal() -> None:
    """Row 101: the broker restarts in it; the next request makes a new one."""
    async with scene("SCRAM-SHA-512") as played:
        played.broker.silent = {ApiKey.SASL_AUTHENTICATE}
        await asyncio.sleep(2.75)
        played.send()
        played.stream.lose()
        await settle()
        assert [type(error) for error in played.answers] == [ConnectionLost]
        played.broker.silent = set()
        played.node.produce.request_connection()
        await asyncio.sleep(0.1)
        assert played.node.is_ready
        assert played.node.failures == 0


@pytest.mark.parametrize("session_ms", [200, 999, 1199])
@jumping
async def test_a_session_too_short_to_renew(session_ms: int) -> None:
    """Row 106: no renewal within a second of the last, and no storm of them: the connection is made anew when it is cut."""
    async with scene(session_ms=session_ms) as played:
        await asyncio.sleep(30)
        assert len(played.broker.logins) == 1
        played.send()
        await settle()
        assert not played.node.produce.is_usable
        played.node.produce.request_connection()
        await asyncio.sleep(0.1)
        assert played.node.is_ready
        assert len(played.broker.logins) == 2


@pytest.mark.parametrize(("session_ms", "renewals"), [(1200, 27), (2**63 - 1, 0), (-5, 0), (0, 0)])
@jumping
async def test_strange_lifetimes(session_ms: int, renewals: int) -> None:
    """Row 106: 1.2 s can be renewed, a year hardly ends, a negative one is none."""
    async with scene(session_ms=1200 if session_ms == 1200 else 0) as played:
        if session_ms not in (1200, 0):
            played.node.produce.distrust(ConnectionLost("again"))
            await settle()
            played.broker.session_ms = session_ms
            played.node.produce.request_connection()
            await asyncio.sleep(0.1)
        assert played.node.is_ready
        await asyncio.sleep(30.2)
        assert played.broker.renewals() == renewals


@jumping
async def test_a_lifetime_that_is_gone_at_the_next_renewal() -> None:
    """Row 106: the session ends no more."""
    async with scene() as played:
        played.broker.session_ms = 0
        await asyncio.sleep(60)
        assert played.broker.renewals() == 1
        assert played.node.is_ready


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
async def test_credentials_that_cannot_be_read_leave_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
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


@jumping
async def test_a_broker_that_ends_the_session_early() -> None:
    """Row 107: the request is lost with the connection, which the next one makes anew."""
    async with scene() as played:
        played.broker.others = lambda stream, _asked: stream.end()
        played.send()
        await settle()
        assert [type(error) for error in played.answers] == [ConnectionLost]
        played.broker.others = lambda stream, asked: stream.answer(asked)
        played.node.produce.request_connection()
        await asyncio.sleep(0.1)
        assert played.node.is_ready


@jumping
async def test_a_clock_that_jumps() -> None:
    """Row 113: the machine slept for ten sessions: one renewal, late, which brokers take."""
    async with scene() as played:
        loop: Any = asyncio.get_running_loop()
        loop.advance(30)
        await settle()
        assert played.broker.renewals() == 1
        assert len(played.dialer.dials) == 1
