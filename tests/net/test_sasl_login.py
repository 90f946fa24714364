"""Tests of `aioproducer.net.sasl_login` and of the authentication of new connections, against a scripted broker."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from jumping import jumping, settle
from nodes import Tasks, ask, now, running
from sasl_peers import SaslBroker
from scripted import Asked, ScriptedDialer, ScriptedStream

from aioproducer.config.secret import Secret
from aioproducer.errors import ConnectionLost, CredentialsRefused
from aioproducer.net.cluster import Standing
from aioproducer.net.sasl_login import SaslLogin, password_mechanism
from aioproducer.net.settings import Security
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Callable


USERS = {"alice": "canary-alice"}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def login(
    mechanism: str = "PLAIN",
    password: str = "canary-alice",
    user: str | Secret = "alice",
    **options: Any,
) -> SaslLogin:
    made = password_mechanism(mechanism, user, Secret(password), **options)
    return SaslLogin(lambda _host: made)


def secured(broker: SaslBroker, sasl: SaslLogin, **options: Any) -> Any:
    return running(ScriptedDialer(answers=broker.answers), security=Security(sasl=sasl), **options)


@jumping
async def test_who_waits_after_a_refusal_is_told_of_it() -> None:
    """And the node ranks as one that pauses, so that others are asked."""
    broker = SaslBroker({})
    async with secured(broker, login()) as node:
        for _ in range(3):
            with pytest.raises((CredentialsRefused, ConnectionLost)):
                await ask(node, 4.0)
        assert node.standing is Standing.PAUSING
        with pytest.raises(
            ConnectionLost,
            match=r"no connection within 0\.5 s yet; the latest attempt: .*Invalid username",
        ):
            await node.control.connected(0.5)


@pytest.mark.parametrize("silent", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
@jumping
async def test_a_broker_that_is_silent_in_the_exchange(silent: ApiKey) -> None:
    """Row 109: the set-up's time is the limit."""
    broker = SaslBroker(USERS)
    broker.silent = {silent}
    async with secured(broker, login()) as node:
        began = now()
        with pytest.raises(ConnectionLost, match="no usable connection within 10 s"):
            await ask(node)
        assert now() - began == pytest.approx(10, abs=0.01)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@jumping
async def test_a_connection_that_is_cut_at_each_answer(mechanism: str) -> None:
    """Row 108: retried; no task and no stream is left."""
    for cut in range(5):
        broker = SaslBroker(USERS)
        seen: list[Asked] = []

        def answers(
            stream: ScriptedStream,
            asked: Asked,
            broker: SaslBroker = broker,
            seen: list[Asked] = seen,
            cut: int = cut,
        ) -> None:
            seen.append(asked)
            if len(seen) == cut + 1:
                stream.lose()
            else:
                broker.answers(stream, asked)

        dialer = ScriptedDialer(answers=answers)
        tasks = Tasks()
        async with running(dialer, security=Security(sasl=login(mechanism)), tasks=tasks) as node:
            try:
                await ask(node)
            except ConnectionLost:
                await ask(node)
        assert tasks.alive == []
        assert all(stream.is_closing() for stream in dialer.streams)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@jumping
async def test_cancellation_at_every_await(mechanism: str) -> None:
    """The stream is closed wherever the attempt is cancelled, and nothing is left."""
    for steps in range(40):
        broker = SaslBroker(USERS)
        dialer = ScriptedDialer(answers=broker.answers)
        tasks = Tasks()
        async with running(dialer, security=Security(sasl=login(mechanism)), tasks=tasks) as node:
            node.produce.request_connection()
            for _ in range(steps):
                await asyncio.sleep(0)
            node.close()
            await settle()
            assert all(stream.is_closing() for stream in dialer.streams)
        assert tasks.alive == []


@jumping
async def test_a_reference_that_cannot_be_read_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a network fault: no other attempt waits for it, and the text names the reference. A password that is there later is used."""
    broker = SaslBroker(USERS)
    security = Security(sasl=login(password="${env:CANARY_PASSWORD}"))
    dialer = ScriptedDialer(answers=broker.answers)
    async with running(dialer, security=security) as node:
        monkeypatch.delenv("CANARY_PASSWORD", raising=False)
        with pytest.raises(
            ConnectionLost, match=r"credentials cannot be read: \$\{env:CANARY_PASSWORD\}"
        ):
            await ask(node)
        assert security.backoff.delay("host:9092", now()) == 0
        monkeypatch.setenv("CANARY_PASSWORD", "canary-alice")
        await ask(node)
        assert [stream.asked[1].key for stream in dialer.streams[1:]] == [ApiKey.SASL_HANDSHAKE]


# Threads: in a loop with real time


class Blocked:
    """A secret that is read slowly."""

    reference = "${file:/slow}"

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.reads = 0
        self.threads: list[threading.Thread] = []

    def reveal(self) -> str:
        self.reads += 1
        self.threads.append(threading.current_thread())
        self.go_on.wait(30)
        return "canary-alice"


async def _authenticated(
    sasl: SaslLogin, broker: SaslBroker, count: int, timeout: float, meanwhile: Callable[[], Any]
) -> list[Any]:
    """Authenticate connections at once over scripted streams. Returns the results or errors."""
    from aioproducer.net.connection import Connection
    from aioproducer.wire.api import CLIENT_VERSIONS

    connections = []
    for _ in range(count):
        connection = Connection("host:9092", "me", lambda _: None, lambda: None, max_in_flight=5)
        ScriptedStream(connection, broker.answers)
        connection.learn_versions(CLIENT_VERSIONS)
        connections.append(connection)
    logins = [
        asyncio.ensure_future(sasl.authenticate(connection, timeout)) for connection in connections
    ]
    meanwhile()
    return await asyncio.gather(*logins, return_exceptions=True)


def test_two_hundred_connections_read_a_reference() -> None:
    """Row 112: in at most four threads; the loop goes on meanwhile."""
    secret, broker = Blocked(), SaslBroker(USERS)
    mechanism = password_mechanism("PLAIN", "alice", secret)  # type: ignore[arg-type]
    sasl = SaslLogin(lambda _host: mechanism)

    async def main() -> list[Any]:
        return await _authenticated(
            sasl,
            broker,
            200,
            30.0,
            lambda: asyncio.get_running_loop().call_later(0.05, secret.go_on.set),
        )

    assert asyncio.run(main()) == [0.0] * 200
    assert len(set(secret.threads)) <= 4


def test_a_step_that_hangs_is_given_up() -> None:
    """And holds up neither the loop nor its end; the next attempt begins anew."""
    secret, broker = Blocked(), SaslBroker(USERS)
    mechanism = password_mechanism("PLAIN", "alice", secret)  # type: ignore[arg-type]
    sasl = SaslLogin(lambda _host: mechanism)

    async def main() -> list[Any]:
        errors = await _authenticated(sasl, broker, 2, 0.05, lambda: None)
        again = await _authenticated(sasl, broker, 1, 30.0, secret.go_on.set)
        return errors + again

    first, second, last = asyncio.run(main())
    for error in (first, second):
        assert isinstance(error, ConnectionLost)
        assert "it took longer than 0." in str(error)
        assert "read ${file:/slow}" in str(error)
    assert last == 0.0
    assert secret.reads >= 3
    for thread in secret.threads:
        thread.join(30)


def test_keys_are_derived_in_a_thread_and_once() -> None:
    """Five connections of one user, one salt: one derivation of 1,000,000 would else hold the loop for a second."""
    broker = SaslBroker(USERS)
    sasl = login("SCRAM-SHA-256")
    assert asyncio.run(_authenticated(sasl, broker, 5, 30.0, lambda: None)) == [0.0] * 5
    assert len(sasl._for_host("broker")._cache._known) == 1  # type: ignore[attr-defined]
    assert message("SaslAuthenticate.request", auth_bytes=b"canary").auth_bytes == b"canary"
