"""Tests of `aioproducer.testing.security`: the states of SASL on a fake broker, its users and sessions, by raw requests."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from fake_requests import batch, produce
from jumping import jumping

from aioproducer.errors import ConnectionLost
from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient
from aioproducer.testing.security.listener import ListenerSecurity
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

USERS = {"alice": "canary-alice", "bob": "canary-bob", "a,b=c": "canary=,comma"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
GENERIC = "Authentication failed during {} due to invalid credentials with SASL mechanism {}"


class Story:
    """A cluster of one broker over SASL_PLAINTEXT, and one client."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.client = WireClient(cluster.bootstrap_servers, dialer=cluster.network)

    async def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return await self.client.ask(ApiKey.SASL_HANDSHAKE, version=version, mechanism=mechanism)

    async def token(self, data: bytes, version: int = 2) -> Any:
        return await self.client.ask(ApiKey.SASL_AUTHENTICATE, version=version, auth_bytes=data)

    async def plain(self, user: str = "alice", password: str | None = None) -> Any:
        """The answer to the token."""
        assert (await self.handshake()).error_code == 0
        return await self.token(
            f"\0{user}\0{USERS[user] if password is None else password}".encode()
        )

    async def scram(
        self,
        mechanism: str,
        user: str = "alice",
        password: str | None = None,
        extensions: str = "",
        **how: Any,
    ) -> Any:
        """The last answer."""
        assert (await self.handshake(mechanism)).error_code == 0
        return await scram(
            self.token,
            mechanism,
            user,
            USERS[user] if password is None else password,
            extensions,
            **how,
        )

    async def produce(self, **fields: Any) -> Any:
        return await produce(self.client, batch(b"v"), **fields)

    def now(self) -> float:
        return asyncio.get_running_loop().time()


async def scram(
    send: Callable[[bytes], Awaitable[Any]],
    mechanism: str,
    user: str,
    password: str,
    extensions: str = "",
    *,
    header: str = "n,,",
    binding: str | None = None,
    nonce: bytes | None = None,
) -> Any:
    """A client of RFC 5802, written for these tests."""
    name = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r=client-nonce{extensions}".encode()
    answer = await send(header.encode() + bare)
    if answer.error_code:
        return answer
    first = bytes(answer.auth_bytes)
    fields = dict(part.split(b"=", 1) for part in first.split(b","))
    salted = hashlib.pbkdf2_hmac(
        name, password.encode(), base64.b64decode(fields[b"s"]), int(fields[b"i"])
    )
    unproved = (
        b"c=" + base64.b64encode((binding or header).encode()) + b",r=" + (nonce or fields[b"r"])
    )
    said = b",".join((bare, first, unproved))
    key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, key).digest(), said, name)
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    answer = await send(unproved + b",p=" + base64.b64encode(proof))
    if not answer.error_code:
        assert bytes(answer.auth_bytes) == b"v=" + base64.b64encode(
            hmac.digest(hmac.digest(salted, b"Server Key", name), said, name)
        )
    return answer


@asynccontextmanager
async def story(**options: Any) -> AsyncIterator[Story]:
    """Let a client ask a broker of one cluster."""
    security = ListenerSecurity("SASL_PLAINTEXT", **{"users": USERS, **options})
    async with FakeCluster(memory=True, security=security) as cluster:
        cluster.create_topic("orders")
        one = Story(cluster)
        async with one.client:
            yield one


async def lost(asking: Awaitable[Any]) -> None:
    with pytest.raises(ConnectionLost):
        await asking


# --- logins


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@jumping
async def test_a_user_is_let_in(mechanism: str, user: str) -> None:
    """By each mechanism, with any characters in name and password; the log has the principal, and no password."""
    async with story() as one:
        answer = await (one.plain(user) if mechanism == "PLAIN" else one.scram(mechanism, user))
        assert (answer.error_code, answer.session_lifetime_ms, answer.error_message) == (0, 0, "")
        assert (await one.produce()).error_code == 0
        (told,) = one.cluster.security.authentications
        assert (told.principal, told.mechanism, told.is_renewal, told.error, told.broker) == (
            user,
            mechanism,
            False,
            0,
            1,
        )
        assert len(one.cluster.security.dials) == 1
        assert one.cluster.violations == []
        assert "canary" not in repr([request.message for request in one.cluster.requests()])
        assert not any(
            bytes(request.message.auth_bytes)
            for request in one.cluster.requests("SaslAuthenticate")
        )


@jumping
async def test_delegation_tokens() -> None:
    """By SCRAM with tokenauth alone; they have a life, which is the session's, and an owner."""
    async with story() as one:
        one.cluster.security.grant_token(
            "token-1", "canary-hmac", owner="alice", lifetime_ms=10_000
        )
        await asyncio.sleep(4)
        answer = await one.scram("SCRAM-SHA-256", "token-1", "canary-hmac", ",tokenauth=true")
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 6000)
        assert one.cluster.security.authentications[-1].principal == "alice"
        one.client.close()
        assert (await one.scram("SCRAM-SHA-256", "token-1", "canary-hmac")).error_code == 58
        one.client.close()
        await asyncio.sleep(6)
        assert (
            await one.scram("SCRAM-SHA-256", "token-1", "canary-hmac", ",tokenauth=true")
        ).error_code == 58


# --- the states of a connection


@jumping
async def test_nothing_else_before_the_handshake() -> None:
    """Kafka closes without an answer."""
    async with story() as one:
        await lost(one.client.metadata())
        one.client.close()
        await lost(
            one.client.ask(
                ApiKey.API_VERSIONS,
                version=3,
                client_software_name="t",
                client_software_version="1",
            )
        )
        one.client.close()
        await lost(one.token(b"\0alice\0canary-alice"))
        assert [violation.what for violation in one.cluster.violations] == [
            f"{name} before the connection is authenticated by SASL"
            for name in ("Metadata", "ApiVersions", "SaslAuthenticate")
        ]


@pytest.mark.parametrize("is_first", [True, False])
@jumping
async def test_nothing_else_within_an_exchange(*, is_first: bool) -> None:
    """Error 34 in the form of the request's own answer, and the end of the connection; nothing is appended."""
    async with story() as one:
        if not is_first:
            await one.plain()
        await one.handshake()
        answer = await one.produce()
        assert (answer.error_code, answer.error_message) == (
            34,
            "Unexpected Kafka request of type PRODUCE during SASL authentication.",
        )
        await lost(one.client.metadata())
        assert one.cluster.values("orders") == []
        assert [violation.what for violation in one.cluster.violations] == [
            "Produce within an exchange of SASL"
        ]


@jumping
async def test_requests_may_follow_each_other_without_a_pause() -> None:
    """SaslHandshake, SaslAuthenticate and Produce at once, on a new connection and on one that renews."""
    async with story() as one:
        await one.client.ask(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN")
        await one.token(b"\0alice\0canary-alice")
        before = [one.produce() for _ in range(5)]
        answers = await asyncio.gather(
            *before, one.handshake(), one.token(b"\0alice\0canary-alice"), one.produce()
        )
        assert [answer.error_code for answer in answers] == [0] * 8
        assert one.cluster.end_offsets("orders") == {0: 6}


@jumping
async def test_frames_are_bounded_until_the_client_is_let_in() -> None:
    """512 KiB, as Kafka's sasl.server.max.receive.size; what follows may be larger."""
    async with story() as one:
        await one.handshake("SCRAM-SHA-256")
        assert (await one.token(bytes(524_000))).error_code == 58
        one.client.close()
        await one.handshake("SCRAM-SHA-256")
        await lost(one.token(bytes(524_288)))
        one.client.close()
        await one.plain()
        assert (await produce(one.client, batch(bytes(600_000)))).error_code == 0


@jumping
async def test_a_listener_without_sasl_stays_open() -> None:
    """It answers 34 to both requests, as Kafka does."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        one = Story(cluster)
        async with one.client:
            assert ((await one.handshake()).error_code, (await one.token(b"")).error_code) == (
                34,
                34,
            )
            assert (await one.produce()).error_code == 0
            assert cluster.violations == []


@jumping
async def test_raw_tokens_after_a_handshake_of_version_0() -> None:
    """Clients before Kafka 1.0 send tokens with their size alone."""

    class Raw(asyncio.Protocol):
        def __init__(self) -> None:
            self.data, self.is_lost = b"", False

        def data_received(self, data: bytes) -> None:
            self.data += data

        def connection_lost(self, _error: Exception | None) -> None:
            self.is_lost = True

    async with FakeCluster(
        memory=True, security=ListenerSecurity("SASL_PLAINTEXT", users=USERS)
    ) as cluster:
        assert cluster.network is not None
        handshake = struct.pack(">hhih", 17, 0, 7, -1) + struct.pack(">h", 5) + b"PLAIN"
        metadata = struct.pack(">hhihi", 3, 1, 8, -1, -1)
        for token, lets_in in ((b"\0alice\0canary-alice", True), (b"\0alice\0canary-x", False)):
            raw = Raw()
            stream = await cluster.network.dial(*cluster.brokers[1].address, lambda raw=raw: raw)
            stream.write(
                b"".join(
                    struct.pack(">i", len(frame)) + frame for frame in (handshake, token, metadata)
                )
            )
            await asyncio.sleep(1)
            assert raw.data[4:10] == struct.pack(">ih", 7, 0)
            rest = raw.data[4 + struct.unpack(">i", raw.data[:4])[0] :]
            assert (rest[:4] == bytes(4) and rest[8:12] == struct.pack(">i", 8)) is lets_in
            assert raw.is_lost is not lets_in
            stream.abort()


# --- sessions


@jumping
async def test_sessions_end_when_a_request_is_read_too_late() -> None:
    """Not before: an idle connection stays, and a late renewal is taken."""
    async with story(session_ms=3000) as one:
        assert (await one.plain()).session_lifetime_ms == 3000
        await asyncio.sleep(2.9)
        assert (await one.produce()).error_code == 0
        await asyncio.sleep(60)
        assert (await one.plain()).session_lifetime_ms == 3000
        assert (await one.produce()).error_code == 0
        await asyncio.sleep(3.1)
        assert one.cluster.security.expired_sessions == []
        await lost(one.produce())
        assert [ended.broker for ended in one.cluster.security.expired_sessions] == [1]
        assert one.cluster.violations == []
        assert [told.is_renewal for told in one.cluster.security.authentications] == [False, True]


@jumping
async def test_refused_renewals() -> None:
    """Another principal, another mechanism, an unknown one, a wrong password: Kafka's texts, or none."""
    async with story(session_ms=3000) as one:
        await one.plain()
        answer = await one.plain("bob")
        assert (answer.error_code, answer.error_message) == (
            58,
            "Cannot change principals during re-authentication from User.alice: User.bob",
        )
        await lost(one.produce())
        one.client.close()

        await one.plain()
        assert (await one.handshake("SCRAM-SHA-256")).error_code == 0
        before = one.now()
        await lost(one.token(b"n,,n=alice,r=x"))
        assert one.now() - before == pytest.approx(0.3)
        one.client.close()

        await one.plain()
        before = one.now()
        await lost(one.handshake("X-NONE"))
        assert one.now() == before
        one.client.close()

        await one.scram("SCRAM-SHA-512")
        assert (
            await one.scram("SCRAM-SHA-512", password="canary-x")
        ).error_message == GENERIC.format("re-authentication", "SCRAM-SHA-512")
        assert [told.error for told in one.cluster.security.authentications if told.is_renewal] == [
            58,
            58,
            33,
            58,
        ]


# --- users come and go


@jumping
async def test_users_are_revoked_and_granted() -> None:
    """Open connections stay. A new password has another salt, so what a client keeps of the old one is of no use."""
    async with story() as one:
        salts = []

        async def token(data: bytes) -> Any:
            answer = await one.token(data)
            if bytes(answer.auth_bytes).startswith(b"r="):
                salts.append(bytes(answer.auth_bytes).split(b",")[1])
            return answer

        await one.handshake("SCRAM-SHA-256")
        assert (await scram(token, "SCRAM-SHA-256", "alice", "canary-alice")).error_code == 0
        one.cluster.security.revoke("alice")
        assert (await one.produce()).error_code == 0
        one.client.close()
        assert (await one.plain()).error_code == 58
        one.client.close()
        one.cluster.security.grant("alice", "canary-second")
        assert (await one.plain()).error_code == 58
        one.client.close()
        await one.handshake("SCRAM-SHA-256")
        assert (await scram(token, "SCRAM-SHA-256", "alice", "canary-second")).error_code == 0
        assert len(set(salts)) == 2
        with pytest.raises(ValueError, match="no user"):
            one.cluster.security.revoke("nobody")


@jumping
async def test_one_node_differs() -> None:
    """A broker that does not know the user yet; a broker that is added later knows what all know."""
    async with FakeCluster(
        2, memory=True, security=ListenerSecurity("SASL_PLAINTEXT", users=USERS)
    ) as cluster:
        cluster.security.revoke("alice", broker=2)
        cluster.security.grant("carol", "canary-carol")
        cluster.security.change(mechanisms=("PLAIN",), broker=1)
        await cluster.add_broker()
        found = {}
        for number, broker in cluster.brokers.items():
            async with WireClient(
                "{}:{}".format(*broker.address), dialer=cluster.network
            ) as client:
                handshake = await client.ask(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN")
                answer = await client.ask(
                    ApiKey.SASL_AUTHENTICATE, auth_bytes=b"\0alice\0canary-alice"
                )
                found[number] = (len(handshake.mechanisms), answer.error_code)
        assert found == {1: (1, 0), 2: (3, 58), 3: (3, 0)}
        with pytest.raises(ValueError, match="no broker 9"):
            cluster.security.revoke("alice", broker=9)


@jumping
async def test_refusals_arrive_at_a_slow_broker() -> None:
    """The close comes behind the answer, however long that travels."""
    async with story() as one:
        one.cluster.brokers[1].latency = 0.5
        one.cluster.brokers[1].bandwidth = 10_000
        answer = await one.plain(password="canary-wrong")
        assert answer.error_code == 58
        await lost(one.produce())


# --- what is refused


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol": "TLS"},
        {"mechanisms": ("DIGEST-MD5",)},
        {"session_ms": -1},
        {"scram_iterations": 4095},
        {"protocol": "PLAINTEXT", "tls": object()},
    ],
)
def test_a_listener_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        ListenerSecurity(**{"protocol": "SASL_PLAINTEXT", **wrong})


def test_passwords_are_not_in_its_repr() -> None:
    assert "canary" not in repr(ListenerSecurity("SASL_PLAINTEXT", users=USERS))


# --- spoilt messages of SCRAM
