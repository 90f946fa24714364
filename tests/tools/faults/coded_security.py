"""Holds rows about the user that logs in: producers of one config, in one loop, in another, and in a forked child."""

from __future__ import annotations

import asyncio
import os

import pytest

from aioproducer import Producer, ProducerConfig
from aioproducer.testing import FakeCluster, ListenerSecurity

from .coded import row
from .coded_client import program

_SECURITY = ListenerSecurity("SASL_SSL", users={"alice": "canary-alice"}, session_ms=2000)
_LOGIN = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "alice", "sasl_password": "canary-alice"}
_NAME = "fork, a second loop, two producers of one config"
_EXPECTED = "each authenticates by itself"


def _have_logged_in(cluster: FakeCluster) -> None:
    """Assert that each connection has logged in, and that no login was refused."""
    done = cluster.security.authentications
    assert {one.connection for one in done} == {dial.connection for dial in cluster.security.dials}
    assert not any(one.error for one in done)


@row(118, _NAME, _EXPECTED, "one config, two producers, and a third one after they have stopped")
async def one_config() -> None:
    async with FakeCluster(memory=True, security=_SECURITY) as cluster:
        cluster.create_topic("orders")
        options = cluster.client_options
        dialer = options.pop("dialer")
        config = ProducerConfig(**options, **_LOGIN)
        async with Producer(config, dialer=dialer) as first, Producer(config, dialer=dialer) as second:
            for producer in (first, second, first, second):
                await producer.send_and_wait("orders", b"v")
                await asyncio.sleep(1)
        logins = len(cluster.security.authentications)
        async with Producer(config, dialer=dialer) as third:
            await third.send_and_wait("orders", b"v")
        assert len(cluster.security.authentications) > logins
        _have_logged_in(cluster)
        assert len(cluster.values("orders")) == 5


@row(118, _NAME, _EXPECTED, "another loop, in another thread")
def another_loop() -> None:
    async def send(config: ProducerConfig) -> int:
        async with Producer(config) as producer:
            return (await producer.send_and_wait("orders", b"v")).offset

    async def main() -> None:
        async with FakeCluster(security=_SECURITY) as cluster:
            cluster.create_topic("orders")
            config = ProducerConfig(**cluster.client_options, **_LOGIN)
            async with Producer(config) as producer:
                assert (await producer.send_and_wait("orders", b"v")).offset == 0
                logins = len(cluster.security.authentications)
                assert await asyncio.to_thread(asyncio.run, send(config)) == 1
                assert len(cluster.security.authentications) > logins
                assert (await producer.send_and_wait("orders", b"v")).offset == 2
            _have_logged_in(cluster)

    asyncio.run(main())


@row(118, _NAME, f"{_EXPECTED}; the child may not use the parent's", "a forked child")
def a_forked_child() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("this platform does not fork")
    with program("logging_in") as process:
        out, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert out.splitlines() == [
        "child, with the parent's: ProducerClosed",
        "child, with its own: 1",
        "parent: 2",
        "as many logins: True",
        "connections without a login: set()",
    ], out + told
    assert "canary" not in out + told
