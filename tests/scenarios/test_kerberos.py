"""Producers that authenticate by Kerberos on a fake cluster, with a scripted package in place of `gssapi`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, running

from aioproducer import BootstrapFailed, ConfigError, Producer
from aioproducer.errors import CredentialsRefused
from aioproducer.testing import FakeCluster, ListenerSecurity
from tests.support.kerberos import ScriptedGssapi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GSSAPI = {"sasl_mechanism": "GSSAPI"}
NO_KDC = (156, "Cannot contact any KDC for realm 'EXAMPLE.TEST'")


@contextlib.asynccontextmanager
async def kerberized(
    principal: str | None = "alice@EXAMPLE.TEST",
    protocol: Any = "SASL_PLAINTEXT",
    session_ms: int = 0,
) -> AsyncIterator[tuple[FakeCluster, ScriptedGssapi]]:
    package = ScriptedGssapi(principal)
    security = ListenerSecurity(
        protocol, users={"alice": "", "bob": ""}, mechanisms=("GSSAPI",), session_ms=session_ms
    )
    with package.installed():
        async with FakeCluster(1, memory=True, security=security) as cluster:
            cluster.create_topic("orders")
            yield cluster, package


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@jumping
async def test_records_arrive(protocol: str) -> None:
    """Each connection has a context of its own, for the service on the host that the cluster advertises."""
    async with (
        kerberized(protocol=protocol) as (cluster, package),
        running(cluster, **GSSAPI) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"x")
        assert cluster.values("orders") == [b"x"]
        assert {
            (done.mechanism, done.principal, done.error)
            for done in cluster.security.authentications
        } == {("GSSAPI", "alice", 0)}
        assert {row.principal for row in producer.health().security} == {"alice@EXAMPLE.TEST"}
        assert len(package.opened) == len(cluster.security.authentications)
        assert {one.service for one in package.opened} == {f"kafka@{cluster.brokers[1].host}"}


@jumping
async def test_a_keytab() -> None:
    async with kerberized(None) as (cluster, package):
        package.keytabs["/etc/bob.keytab"] = "bob@EXAMPLE.TEST"
        options = {
            "sasl_kerberos_keytab": "/etc/bob.keytab",
            "sasl_kerberos_principal": "bob@EXAMPLE.TEST",
        }
        async with running(cluster, **GSSAPI, **options) as (_, producer):
            await producer.send_and_wait("orders", b"x")
            assert {done.principal for done in cluster.security.authentications} == {"bob"}
            assert {row.principal for row in producer.health().security} == {"bob@EXAMPLE.TEST"}


@jumping
async def test_the_broker_refuses_the_principal() -> None:
    """`start` fails early, and the text has mechanism and principal."""
    async with kerberized("mallory@EXAMPLE.TEST") as (cluster, _):
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(
            BootstrapFailed,
            match=r"user 'mallory@EXAMPLE.TEST' by GSSAPI: SASL_AUTHENTICATION_FAILED",
        ) as caught:
            await Producer(**cluster.client_options, **GSSAPI).start()
        assert isinstance(caught.value.__cause__, CredentialsRefused)
        assert loop.time() - began <= 1.5


@jumping
async def test_the_kdc_does_not_know_the_service() -> None:
    """Row 116: final, as a refusal; no request is sent for it."""
    async with kerberized() as (cluster, package):
        package.fail(7, "Server nope/host@EXAMPLE.TEST not found in Kerberos database", times=10)
        with pytest.raises(
            BootstrapFailed,
            match=r"no Kerberos ticket for nope@.*Server nope/host.*check sasl_kerberos_service_name",
        ) as caught:
            await Producer(
                **cluster.client_options, **GSSAPI, sasl_kerberos_service_name="nope"
            ).start()
        assert isinstance(caught.value.__cause__, CredentialsRefused)
        assert len(cluster.security.dials) <= 3
        assert cluster.security.authentications == []


@jumping
async def test_no_kdc_for_a_while() -> None:
    """Row 116: retried as a fault of the network, with the pauses of `reconnect_backoff_ms` alone."""
    async with kerberized() as (cluster, package):
        package.fail(*NO_KDC, times=8)
        loop = asyncio.get_running_loop()
        options = {
            "reconnect_backoff_ms": 100,
            "reconnect_backoff_max_ms": 100,
            "retry_backoff_ms": 100,
            "retry_backoff_max_ms": 100,
        }
        producer: Producer[Any, Any] = Producer(**cluster.client_options, **GSSAPI, **options)
        began = loop.time()
        await producer.start(wait=False)
        await producer.send_and_wait("orders", b"x")
        assert loop.time() - began < 2
        assert cluster.values("orders") == [b"x"]
        await producer.stop()


@jumping
async def test_no_kdc_says_so() -> None:
    """`start` goes on until `max_block_ms`, as without brokers."""
    async with kerberized() as (cluster, package):
        package.fail(*NO_KDC, times=1000)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(
            BootstrapFailed,
            match=r"no Kerberos ticket for kafka@.* Cannot contact any KDC .*check that the KDC runs",
        ):
            await Producer(**cluster.client_options, **GSSAPI, max_block_ms=5000).start()
        assert loop.time() - began == pytest.approx(5, abs=0.1)


@jumping
async def test_a_ticket_that_is_there_later(caplog: pytest.LogCaptureFixture) -> None:
    """Row 116: as if kinit was run while the producer runs."""
    caplog.set_level("INFO", "aioproducer.events")
    async with kerberized(None) as (cluster, package):
        producer: Producer[Any, Any] = Producer(**cluster.client_options, **GSSAPI)
        await producer.start(wait=False)
        sending = asyncio.ensure_future(producer.send_and_wait("orders", b"x"))
        await asyncio.sleep(5)
        assert not sending.done()
        assert "no Kerberos ticket for kafka@" in caplog.text
        assert "run kinit" in caplog.text
        package.principal = "alice@EXAMPLE.TEST"
        await sending
        assert cluster.values("orders") == [b"x"]
        await producer.stop()


@jumping
async def test_sessions_are_renewed() -> None:
    """Row 101: by a new context each time, on the connection that stands."""
    async with (
        kerberized(session_ms=3000) as (cluster, package),
        running(cluster, **GSSAPI) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"first")
        dials = len(cluster.security.dials)
        for number in range(100):
            await producer.send_and_wait("orders", b"%d" % number)
            await asyncio.sleep(0.1)
        assert cluster.values("orders") == [b"first", *(b"%d" % number for number in range(100))]
        assert len(cluster.security.dials) == dials
        assert sum(done.is_renewal for done in cluster.security.authentications) >= 6
        assert len(package.opened) == len(cluster.security.authentications)
        assert cluster.security.expired_sessions == []


@jumping
async def test_a_renewal_while_the_kdc_is_away() -> None:
    """The ticket is asked for before the broker is: the connection goes on, and the renewal is tried again before the session ends."""
    async with (
        kerberized(session_ms=20_000) as (cluster, package),
        running(cluster, **GSSAPI) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"first")
        await asyncio.sleep(15)
        dials = len(cluster.security.dials)
        package.fail(*NO_KDC, times=2)
        for number in range(100):
            await producer.send_and_wait("orders", b"%d" % number)
            await asyncio.sleep(0.1)
        assert producer.metrics().number("failed-reauthentication-total") == 2
        assert len(cluster.security.dials) == dials
        assert all(done.error == 0 for done in cluster.security.authentications)
        assert cluster.security.expired_sessions == []


@jumping
async def test_the_principal_changes() -> None:
    """Row 105: another user's ticket at a renewal: one new connection at once, which has the new user."""
    async with (
        kerberized(session_ms=3000) as (cluster, package),
        running(cluster, **GSSAPI) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"first")
        package.principal = "bob@EXAMPLE.TEST"
        for number in range(60):
            await producer.send_and_wait("orders", b"%d" % number)
            await asyncio.sleep(0.1)
        assert len(cluster.values("orders")) == 61
        assert cluster.security.authentications[-1].principal == "bob"
        assert sum(done.error != 0 for done in cluster.security.authentications) <= 2


@jumping
async def test_the_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`start` says what to install; the constructor does no I/O."""
    monkeypatch.setitem(__import__("sys").modules, "gssapi", None)
    producer: Producer[Any, Any] = Producer(
        bootstrap_servers="b:1", security_protocol="SASL_PLAINTEXT", **GSSAPI
    )
    with pytest.raises(ConfigError, match=r"pip install 'aioproducer\[kerberos\]'"):
        await producer.start()
