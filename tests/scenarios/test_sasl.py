"""Producers on a fake cluster with SASL listeners: dials while logins are refused, sessions and their renewals, beside the rows 92 to 107 of tests/tools/faults."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from whole import encode_at_once, jumping, running

from aioproducer import DeliveryError, Persisted, Producer, ProducerConfig
from aioproducer.testing import FakeCluster, ListenerSecurity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer import Delivery

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
USERS = {"alice": "canary-alice", "bob": "canary-bob"}


def login(
    mechanism: str = "PLAIN", password: str = "canary-alice", user: str = "alice"
) -> dict[str, Any]:
    return {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}


@contextlib.asynccontextmanager
async def secured(
    brokers: int = 1, session_ms: int = 0, protocol: Any = "SASL_PLAINTEXT", **more: Any
) -> AsyncIterator[FakeCluster]:
    security = ListenerSecurity(protocol, users=USERS, session_ms=session_ms, **more)
    async with FakeCluster(brokers, memory=True, security=security) as cluster:
        cluster.create_topic("orders", partitions=brokers)
        yield cluster


def refusals(cluster: FakeCluster) -> int:
    return sum(done.error != 0 for done in cluster.security.authentications)


def renewals(cluster: FakeCluster) -> int:
    return sum(done.is_renewal and not done.error for done in cluster.security.authentications)


async def stream(producer: Producer[Any, Any], seconds: float, partition: int = 0) -> int:
    """Send a record each 20 ms. Returns their number; each is acknowledged."""
    loop = asyncio.get_running_loop()
    until, sent = loop.time() + seconds, []
    while loop.time() < until:
        sent.append(await producer.send("orders", b"%d" % len(sent), partition=partition))
        await asyncio.sleep(0.02)
    await producer.flush()
    for delivery in sent:
        await delivery
    return len(sent)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@jumping
async def test_records_arrive(mechanism: str, protocol: str) -> None:
    async with (
        secured(protocol=protocol) as cluster,
        running(cluster, **login(mechanism)) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"x")
        assert cluster.values("orders") == [b"x"]
        assert {done.mechanism for done in cluster.security.authentications} == {mechanism}


@jumping
async def test_wrong_for_five_seconds() -> None:
    """Row 92b: `start(wait=False)` gets through by itself, with 6 dials at most before, and records that waited arrive."""
    async with secured(3) as cluster:
        cluster.security.revoke("alice")
        producer: Producer[Any, Any] = Producer(**cluster.client_options, **login())
        await producer.start(wait=False)
        sending = asyncio.ensure_future(producer.send_and_wait("orders", b"x"))
        await asyncio.sleep(5)
        assert len(cluster.security.dials) <= 6
        cluster.security.grant("alice", "canary-alice")
        await sending
        assert cluster.values("orders") == [b"x"]
        await producer.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
@jumping
async def test_sessions_are_renewed_while_records_flow(mechanism: str, acks: Any) -> None:
    """Row 101: five in flight; nothing is lost, the order is kept, no connection is made anew, one renewal a session."""
    async with secured(session_ms=3000) as cluster:
        options = {"enable_idempotence": acks == "all", "acks": acks, "linger_ms": 0}
        async with running(cluster, **login(mechanism), **options) as (_, producer):
            await producer.send_and_wait("orders", b"first", partition=0)
            dials = len(cluster.security.dials)
            count = await stream(producer, 12)
            assert cluster.values("orders", 0) == [
                b"first",
                *(b"%d" % number for number in range(count)),
            ]
            assert len(cluster.security.dials) == dials
            assert refusals(cluster) == 0
            assert 7 <= renewals(cluster) <= 9
            taken = producer.metrics()
            assert taken.number("successful-reauthentication-total") == renewals(cluster)
            assert taken.number("successful-authentication-total") == dials
            assert (
                taken.number("failed-authentication-total")
                == taken.number("failed-reauthentication-total")
                == 0
            )
            assert (
                taken.number("reauthentication-latency-max")
                >= taken.number("reauthentication-latency-avg")
                >= 0
            )
            assert cluster.security.expired_sessions == []


async def hold_back(cluster: FakeCluster, producer: Producer[Any, Any]) -> list[Delivery]:
    """Send records in the session's last seconds, so that their request is ready while the renewal runs, which takes 1 s."""
    cluster.create_topic("many", partitions=50)
    await producer.send_and_wait("orders", b"first")
    await producer.partitions_for("many")
    # A batch is compressed in each iteration of the loop: the renewal begins before the last one.
    encode_at_once(producer, 150)
    cluster.delay("SaslAuthenticate", 1.0)
    deliveries = [
        await producer.send("many", b"v" * 100, partition=partition) for partition in range(50)
    ]
    before = len(cluster.requests("Produce"))
    asyncio.get_running_loop().advance(2.75)  # type: ignore[attr-defined]
    await asyncio.sleep(0.9)
    assert cluster.requests()[-1].api == "SaslAuthenticate"
    assert len(cluster.requests("Produce")) == before
    return deliveries


HELD = {
    "delivery_timeout_ms": 8000,
    "request_timeout_ms": 8000,
    "compression_type": "gzip",
    "chance": lambda: 0.5,
}


@pytest.mark.parametrize("acks", [0, "all"])
@pytest.mark.parametrize("is_refused", [False, True])
@jumping
async def test_what_a_renewal_holds_back_was_not_sent(is_refused: bool, acks: Any) -> None:
    """A request whose batches are compressed when the renewal begins waits, and is no attempt: refused, its records were never sent."""
    options = {**HELD, "acks": acks, "enable_idempotence": acks == "all"}
    async with (
        secured(session_ms=3000) as cluster,
        running(cluster, **login(), **options) as (_, producer),
    ):
        holding = asyncio.ensure_future(hold_back(cluster, producer))
        await asyncio.sleep(0.1)
        if is_refused:
            cluster.security.revoke("alice")
        told = await asyncio.gather(*await holding, return_exceptions=True)
        for one in told if is_refused else ():
            assert isinstance(one, DeliveryError)
            assert (one.attempts, one.persisted) == (0, Persisted.NO)
            assert "never sent" in str(one)
        await producer.flush()
        assert len(cluster.values("many")) == (0 if is_refused else 50)
        assert producer.metrics().number("record-retry-total") == 0


@jumping
async def test_a_stop_while_a_renewal_holds_a_request_back() -> None:
    """Its records fail as certainly not written, and their memory is free."""
    async with (
        secured(session_ms=3000) as cluster,
        running(cluster, **login(), **HELD, close_timeout_ms=0) as (_, producer),
    ):
        deliveries = await hold_back(cluster, producer)
    for one in await asyncio.gather(*deliveries, return_exceptions=True):
        assert isinstance(one, DeliveryError)
        assert (one.attempts, one.persisted) == (0, Persisted.NO)
    assert cluster.values("many") == []


@jumping
async def test_dials_after_a_revocation() -> None:
    """Row 103, issue 30: three nodes, sessions of 3 s: from the revocation at most six dials in 12 s."""
    options = {"linger_ms": 0, "delivery_timeout_ms": 60_000}
    async with (
        secured(3, session_ms=3000) as cluster,
        running(cluster, **login(), **options) as (_, producer),
    ):
        for partition in range(3):
            await producer.send_and_wait("orders", b"before", partition=partition)
        await asyncio.sleep(4)
        before = len(cluster.security.dials)
        cluster.security.revoke("alice")
        sends = [
            await producer.send("orders", b"waits", partition=partition) for partition in range(3)
        ]
        await asyncio.sleep(3.5)
        sends += [
            await producer.send("orders", b"waits", partition=partition) for partition in range(3)
        ]
        await asyncio.sleep(8.5)
        assert 1 <= len(cluster.security.dials) - before <= 6
        cluster.security.grant("alice", "canary-alice")
        await asyncio.gather(*sends)
        assert len(cluster.values("orders")) == 9


@pytest.mark.parametrize("lifetime", [2**63 - 1, -1, 0])
@jumping
async def test_strange_lifetimes(lifetime: int) -> None:
    """Row 106."""

    def change(answer: Any) -> None:
        answer.session_lifetime_ms = lifetime

    async with secured(session_ms=3_000_000) as cluster:
        cluster.rewrite("SaslAuthenticate", change, times=None)
        async with running(cluster, **login(), connections_max_idle_ms=-1) as (_, producer):
            await producer.send_and_wait("orders", b"x")
            await asyncio.sleep(2000)
            await producer.send_and_wait("orders", b"y")
            assert renewals(cluster) == 0


@jumping
async def test_one_broker_that_does_not_know_the_user_yet() -> None:
    """Row 103, issue 30: the others' partitions flow; a good broker that restarts is dialled within a second."""
    async with secured(3) as cluster:
        cluster.security.revoke("alice", broker=3)
        leaders = {cluster.leader("orders", partition): partition for partition in range(3)}
        async with running(cluster, **login(), linger_ms=0, delivery_timeout_ms=120_000) as (
            _,
            producer,
        ):
            held = await producer.send("orders", b"held", partition=leaders[3])
            for _ in range(20):
                await producer.send_and_wait("orders", b"x", partition=leaders[1])
                await producer.send_and_wait("orders", b"x", partition=leaders[2])
                await asyncio.sleep(1)
            await cluster.brokers[1].stop()
            await asyncio.sleep(0.2)
            await cluster.brokers[1].start()
            loop = asyncio.get_running_loop()
            began = loop.time()
            await producer.send_and_wait("orders", b"again", partition=leaders[1])
            assert loop.time() - began < 1.5
            assert not held.done()
            cluster.security.grant("alice", "canary-alice", broker=3)
            await held


@jumping
async def test_a_clock_that_jumps() -> None:
    """Row 113: the machine slept for many sessions; the records go on."""
    async with (
        secured(session_ms=3000) as cluster,
        running(cluster, **login("SCRAM-SHA-256")) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"x")
        loop: Any = asyncio.get_running_loop()
        loop.advance(3600)
        await producer.send_and_wait("orders", b"y")
        assert cluster.values("orders") == [b"x", b"y"]


@jumping
async def test_each_producer_of_one_config_logs_in_by_itself() -> None:
    """Row 118: one config, two producers, and a third one after they have stopped. Each has its own connections, sessions and backoff."""
    async with secured(session_ms=3000) as cluster:
        options = cluster.client_options
        dialer = options.pop("dialer")
        config = ProducerConfig(**options, **login("SCRAM-SHA-256"))
        async with (
            Producer(config, dialer=dialer) as first,
            Producer(config, dialer=dialer) as second,
        ):
            assert await stream(first, 4) + await stream(second, 4) == len(cluster.values("orders"))
        logins = len(cluster.security.authentications)
        async with Producer(config, dialer=dialer) as third:
            await third.send_and_wait("orders", b"x")
        assert len(cluster.security.authentications) > logins
        assert refusals(cluster) == 0
        assert renewals(cluster) >= 4
        assert len({done.connection for done in cluster.security.authentications}) >= 6
