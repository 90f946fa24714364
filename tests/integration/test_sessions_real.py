"""Sessions of three seconds on a real broker (KIP-368): renewed in place while records flow, and refused when the user is deleted.

`AIOPRODUCER_SESSION_SECONDS` says for how long records flow, 7 s without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from secured import SESSION_MS, Way, read_by_confluent

from aioproducer import Producer
from aioproducer.net.dialer import TcpDialer
from aioproducer.net.sasl_login import SaslLogin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from aioproducer.interfaces import Receiver, Stream
    from tests.support.kafka_security import DelegationToken, SecuredServerThread

pytestmark = pytest.mark.integration

SECONDS = float(os.environ.get("AIOPRODUCER_SESSION_SECONDS", "7"))
SESSION = SESSION_MS / 1000
WAYS = (
    Way("SESSIONS_SSL", "PLAIN"),
    Way("SESSIONS_SSL", "SCRAM-SHA-256"),
    Way("SESSIONS_PLAINTEXT", "SCRAM-SHA-512"),
    Way("SESSIONS_SSL", "SCRAM-SHA-512", is_token=True),
    Way("SESSIONS_PLAINTEXT", "OAUTHBEARER"),
)
_SLACK = 0.05 * SESSION  # a renewal begins at 95 % at the latest
_UNACKNOWLEDGED = 40  # of ten records a batch: more than five batches in flight
_REVOKED_SECONDS = 12.0
_MOST_DIALS = 6


class CountingDialer(TcpDialer):
    """Dials over TCP, and notes when."""

    def __init__(self) -> None:
        super().__init__()
        self.dialled: list[float] = []

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        self.dialled.append(time.monotonic())
        return await super().dial(host, port, receiver)

    def since(self, moment: float) -> int:
        return sum(when > moment for when in self.dialled)


class Streamed(NamedTuple):
    """What a stream of one producer came to."""

    count: int
    dialled: int
    dialled_later: int


@contextlib.asynccontextmanager
async def lateness() -> AsyncGenerator[list[float]]:
    """Yield a list that holds by how many seconds the loop was late, at most."""
    worst = [0.0]

    async def watch() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            worst[0] = max(worst[0], time.monotonic() - before - 0.01)

    watching = asyncio.create_task(watch())
    try:
        yield worst
    finally:
        watching.cancel()


async def stream(options: dict[str, Any], topic: str, seconds: float) -> Streamed:
    """Send numbered records with five requests in flight; each is acknowledged, in order, at the offset of its number."""
    dialer = CountingDialer()
    count = 0

    async def acknowledged(number: int, delivery: Any) -> None:
        assert (await delivery).offset == number
        room.release()

    room = asyncio.Semaphore(_UNACKNOWLEDGED)
    async with Producer(
        **options,
        dialer=dialer,
        batch_size=1024,
        linger_ms=0,
        max_in_flight_requests_per_connection=5,
    ) as producer:
        await producer.send_and_wait(topic, b"0")
        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < begun + seconds:
                await room.acquire()
                count += 1
                group.create_task(acknowledged(count, await producer.send(topic, b"%d" % count)))
    return Streamed(count + 1, len(dialer.dialled), dialer.since(begun))


def fresh_topic(server: SecuredServerThread) -> str:
    topic = f"sessions-{uuid.uuid4().hex[:8]}"
    server.create_topic(topic)
    return topic


@pytest.fixture
def authentications(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list that gets the seconds of each authentication and renewal of all producers."""
    took: list[float] = []
    authenticate = SaslLogin.authenticate

    async def counted(self: SaslLogin, connection: Any, timeout: float) -> float:
        begun = time.monotonic()
        session = await authenticate(self, connection, timeout)
        took.append(time.monotonic() - begun)
        return session

    monkeypatch.setattr(SaslLogin, "authenticate", counted)
    return took


def test_sessions_are_renewed_in_place(
    secure_server: SecuredServerThread,
    delegation_token: DelegationToken,
    authentications: list[float],
    record_property: Callable[[str, object], None],
) -> None:
    """Every mechanism at once: no error, none lost, order kept, about one renewal a session, and no connection made anew.

    A loop that was late by more than the slack of a renewal may have lost a session: then a connection may be made anew.
    """
    topics = {way: fresh_topic(secure_server) for way in WAYS}

    async def all_ways() -> tuple[list[Streamed], float]:
        async with lateness() as worst:
            streams = [
                stream(way.ours(secure_server, delegation_token), topic, SECONDS)
                for way, topic in topics.items()
            ]
            return await asyncio.gather(*streams), worst[0]

    streamed, late = asyncio.run(all_ways())
    connections = sum(one.dialled for one in streamed)
    renewals = len(authentications) - connections
    told = f"{streamed}, {renewals} renewals of {connections} connections, the loop was late by {late:.3f} s at most"
    print(told)
    for (way, topic), one in zip(topics.items(), streamed, strict=True):
        assert secure_server.end_offsets(topic) == [one.count], f"{way}: {told}"
        values = read_by_confluent(secure_server, Way("PLAINTEXT"), topic, one.count)
        assert values == [b"%d" % number for number in range(one.count)], way
    if late < _SLACK:
        assert sum(one.dialled_later for one in streamed) == 0, told
        # at 85 to 95 % of each session; the connection of the bootstrap is closed soon
        kept = connections - len(streamed)
        assert (
            kept * (SECONDS / SESSION - 1) <= renewals <= kept * (SECONDS / (0.85 * SESSION) + 1)
        ), told


def test_a_deleted_user_dials_seldom_and_goes_on_when_granted(
    secure_server: SecuredServerThread,
) -> None:
    """The session of a user that was deleted in mid-life ends: at most six dials in 12 s. Added again, the record that waited goes out."""
    topic = fresh_topic(secure_server)
    dialer = CountingDialer()
    way = Way("SESSIONS_SSL", "SCRAM-SHA-256", user="carol")

    async def revoked_and_granted() -> None:
        async with Producer(
            **way.ours(secure_server),
            dialer=dialer,
            delivery_timeout_ms=120_000,
            request_timeout_ms=30_000,
        ) as producer:
            await producer.send_and_wait(topic, b"before")
            await asyncio.to_thread(
                secure_server.administrate,
                lambda admin: admin.delete_user("carol", "SCRAM-SHA-256"),
            )
            deleted = time.monotonic()
            await asyncio.sleep(SESSION)
            waiting = await producer.send(topic, b"while refused")
            await asyncio.sleep(_REVOKED_SECONDS)
            assert not waiting.done()
            assert 1 <= dialer.since(deleted) <= _MOST_DIALS
            assert not producer.health()
            await asyncio.to_thread(
                secure_server.administrate,
                lambda admin: admin.set_user("carol", "canary-carol", "SCRAM-SHA-256"),
            )
            async with asyncio.timeout(30):
                await waiting
            await producer.send_and_wait(topic, b"after")

    asyncio.run(revoked_and_granted())
    assert secure_server.end_offsets(topic) == [3]
