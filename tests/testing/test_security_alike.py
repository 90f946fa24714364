"""The fake's SASL, sessions and ACLs against Kafka's: the same requests to both, and the same answers."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from fake_requests import batch, produce

from aioproducer.errors import ConnectionLost
from aioproducer.testing import FakeCluster, ListenerSecurity, ListenerTokens, unsecured_token
from aioproducer.testing.client import WireClient
from aioproducer.wire.api import ApiKey
from tests.support.kafka_security import KafkaSecurity, SecuredKafkaServer
from tests.testing.test_security import scram

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

USERS = {"alice": "canary-alice", "bob": "canary-bob"}
SESSION = 1.5


class Hand:
    """One connection to a broker; notes the answer of each request, or "closed", and whether a refusal was delayed."""

    def __init__(self, servers: str) -> None:
        self.client = WireClient(servers)
        self.noted: list[Any] = []

    async def note(self, asking: Awaitable[Any]) -> Any:
        loop = asyncio.get_running_loop()
        before = loop.time()
        try:
            answer = await asking
        except ConnectionLost:
            self.noted.append(("closed", loop.time() - before > 0.2))
            return None
        text = getattr(answer, "error_message", None)
        lifetime = getattr(answer, "session_lifetime_ms", 0)
        listed = sorted(getattr(answer, "mechanisms", []))
        self.noted.append(
            (
                answer.error_code,
                text,
                lifetime,
                listed,
                loop.time() - before > 0.2 if answer.error_code else False,
            )
        )
        return answer

    async def handshake(self, mechanism: str = "PLAIN") -> Any:
        return await self.note(
            self.client.ask(ApiKey.SASL_HANDSHAKE, version=1, mechanism=mechanism)
        )

    async def token(self, data: bytes) -> Any:
        return await self.note(
            self.client.ask(ApiKey.SASL_AUTHENTICATE, version=2, auth_bytes=data)
        )

    async def plain(self, user: str = "alice", password: str | None = None) -> None:
        await self.handshake()
        await self.token(f"\0{user}\0{USERS[user] if password is None else password}".encode())

    async def scram(
        self,
        user: str = "alice",
        password: str = "canary-alice",
        mechanism: str = "SCRAM-SHA-256",
        **how: Any,
    ) -> None:
        await self.handshake(mechanism)
        send = lambda data: self.client.ask(ApiKey.SASL_AUTHENTICATE, version=2, auth_bytes=data)  # noqa: E731
        await self.note(scram(send, mechanism, user, password, **how))

    async def bearer(
        self, token: str, *pairs: str, header: str = "n,,", error_taken: bytes = b"\x01"
    ) -> None:
        """Send a bearer token, and answer the error in JSON if there is one."""
        await self.handshake("OAUTHBEARER")
        answer = await self.token(
            "\x01".join((header, f"auth=Bearer {token}", *pairs, "", "")).encode()
        )
        if answer is not None and answer.auth_bytes:
            self.noted.append(json.loads(bytes(answer.auth_bytes)))
            await self.token(error_taken)

    async def produce(self, topic: str = "open") -> None:
        answer = await self.note(produce(self.client, batch(b"v"), topic))
        if answer is not None and not answer.error_code:
            assert answer.base_offset >= 0


def alice(**claims: Any) -> str:
    return unsecured_token("alice", **claims)


async def pipelined(hand: Hand) -> None:
    await asyncio.gather(hand.handshake(), hand.token(b"\0alice\0canary-alice"), hand.produce())


async def in_an_exchange(hand: Hand) -> None:
    await hand.handshake()
    await hand.produce()
    await hand.produce()


async def late(hand: Hand) -> None:
    await hand.plain()
    await asyncio.sleep(SESSION + 0.2)
    await hand.plain()
    await hand.produce()
    await asyncio.sleep(SESSION + 0.2)
    await hand.produce()


async def renewed_with(hand: Hand, what: Callable[[Hand], Awaitable[Any]]) -> None:
    await hand.plain()
    await what(hand)
    await hand.produce()


async def malformed_bearer(hand: Hand, data: bytes) -> None:
    await hand.handshake("OAUTHBEARER")
    await hand.token(data)


async def bearer_as_another(hand: Hand) -> None:
    await hand.bearer(alice())
    await hand.produce()
    await hand.bearer(unsecured_token("bob"))
    await hand.produce()


async def another_mechanism(hand: Hand) -> None:
    await hand.plain()
    await hand.handshake("SCRAM-SHA-256")
    await hand.token(b"n,,n=alice,r=x")


async def too_often(hand: Hand) -> None:
    await hand.plain()
    await hand.plain()
    await hand.handshake()
    await hand.produce()


async def denied(hand: Hand) -> None:
    await hand.plain("bob")
    await hand.produce("closed")
    await hand.produce("open")
    for name in ("closed", "open"):
        topics = (await hand.client.metadata([name])).topics
        hand.noted.append([(topic.name, topic.error_code) for topic in topics])
    await hand.note(
        hand.client.ask(ApiKey.INIT_PRODUCER_ID, transactional_id="tx", transaction_timeout_ms=1000)
    )


async def then_let_in(hand: Hand, first: Callable[[], Awaitable[Any]]) -> None:
    await hand.note(first())
    await hand.plain()


STORIES: Mapping[str, Callable[[Hand], Awaitable[None]]] = {
    "plain": lambda hand: hand.plain(),
    "wrong password": lambda hand: hand.plain(password="canary-x"),
    "empty password": lambda hand: hand.plain(password=""),
    "scram": lambda hand: hand.scram(),
    "scram, authorization id": lambda hand: hand.scram(header="n,a=alice,"),
    "scram, another's authorization id": lambda hand: hand.scram(header="n,a=bob,"),
    "scram, wrong password": lambda hand: hand.scram(password="canary-x"),
    "scram, unknown user": lambda hand: hand.scram("nobody"),
    "scram, not ASCII": lambda hand: hand.scram("älice"),
    "scram, binding flag y": lambda hand: hand.scram(header="y,,"),
    "scram, another nonce": lambda hand: hand.scram(nonce=b"x"),
    "scram-512": lambda hand: hand.scram(mechanism="SCRAM-SHA-512"),
    "unknown mechanism": lambda hand: hand.handshake("X-NONE"),
    "pipelined": pipelined,
    "Produce first": lambda hand: hand.produce(),
    "SaslAuthenticate first": lambda hand: hand.token(b"\0alice\0canary-alice"),
    "two ApiVersions": lambda hand: then_let_in(
        hand,
        lambda: hand.client.ask(
            ApiKey.API_VERSIONS, version=3, client_software_name="t", client_software_version="1"
        ),
    ),
    "within an exchange": in_an_exchange,
    "malformed PLAIN": lambda hand: then_let_in(hand, lambda: hand.plain(password="canary\0x")),
    "late": late,
    "too often": too_often,
    "renewed as another": lambda hand: renewed_with(hand, lambda hand: hand.plain("bob")),
    "renewed with a wrong password": lambda hand: renewed_with(
        hand, lambda hand: hand.plain(password="canary-x")
    ),
    "renewed by another mechanism": another_mechanism,
    "renewed by an unknown mechanism": lambda hand: renewed_with(
        hand, lambda hand: hand.handshake("X-NONE")
    ),
    "SaslAuthenticate after it": lambda hand: renewed_with(hand, lambda hand: hand.token(b"x")),
    "denied": denied,
    "bearer": lambda hand: hand.bearer(alice()),
    "bearer, extensions": lambda hand: hand.bearer(alice(), "logicalCluster=lkc-1", "a=b c"),
    "bearer, authorization id": lambda hand: hand.bearer(alice(), header="n,a=alice,"),
    "bearer, another's authorization id": lambda hand: hand.bearer(alice(), header="n,a=bob,"),
    "bearer, expired": lambda hand: hand.bearer(alice(iat=time.time() - 90, exp=time.time() - 60)),
    "bearer, issued in the future": lambda hand: hand.bearer(alice(iat=time.time() + 60)),
    "bearer, without a subject": lambda hand: hand.bearer(alice(sub=None)),
    "bearer, without an end": lambda hand: hand.bearer(alice(exp=None)),
    "bearer, opaque": lambda hand: hand.bearer("canary-opaque"),
    "bearer, signed": lambda hand: hand.bearer(alice() + "c2ln"),
    "bearer, error not taken": lambda hand: hand.bearer("canary-opaque", error_taken=b"x"),
    "bearer, malformed": lambda hand: malformed_bearer(hand, b"n,,\x01auth=Bearer canary-a\x01"),
    "bearer, without a token": lambda hand: malformed_bearer(hand, b"n,,\x01a=b\x01\x01"),
    "bearer, a character that no token has": lambda hand: malformed_bearer(
        hand, b"n,,\x01auth=Bearer canary-%\x01\x01"
    ),
    "renewed by bearer": lambda hand: renewed_with(hand, lambda hand: hand.bearer(alice())),
    "bearer, renewed as another": bearer_as_another,
}


async def told(servers: str) -> dict[str, list[Any]]:
    """What a broker answers in each story, on a connection of its own."""
    found = {}
    for name, story in STORIES.items():
        hand = Hand(servers)
        async with hand.client:
            try:
                await story(hand)
            except (ConnectionLost, AttributeError) as error:
                hand.noted.append(type(error).__name__)
        found[name] = hand.noted
    return found


async def test_the_fake_answers_as_kafka_does() -> None:
    """Each story: codes, texts, lists, lifetimes, closed connections, and which refusals take their time."""
    security = ListenerSecurity(
        "SASL_PLAINTEXT", users=USERS, session_ms=int(SESSION * 1000), tokens=ListenerTokens()
    )
    async with FakeCluster(security=security) as cluster:
        for topic in ("open", "closed"):
            cluster.create_topic(topic)
        for operation in ("Write", "Describe"):
            cluster.security.deny("bob", operation, topic="closed")
        cluster.security.deny("bob", "All", transactional_id="*")
        fake = await told(cluster.bootstrap_servers)
    real_security = KafkaSecurity(
        users=USERS, session_ms=int(SESSION * 1000), super_users=("alice",)
    )
    async with SecuredKafkaServer(real_security) as kafka:
        for topic in ("open", "closed"):
            await kafka.create_topic(topic)
        await kafka.admin.allow("bob", "Write", "Describe", topic="open")
        real = await told(kafka.address("SESSIONS_PLAINTEXT"))
    assert fake == real
