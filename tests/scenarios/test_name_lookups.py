"""Connections while the loop's default executor is busy, or a name server hangs."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from aioproducer import BootstrapFailed, Producer
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Sequence


class Busy(ThreadPoolExecutor):
    """An executor that never runs the calls that it gets."""

    def __init__(self) -> None:
        super().__init__(1)
        self.handed: list[str] = []

    def submit(self, function: Any, /, *arguments: Any, **_named: Any) -> Future[Any]:
        self.handed.append(f"{function} {arguments}")
        return Future()


@pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_numeric_addresses_while_the_default_executor_is_busy(new_loop: Any) -> None:
    """The producer connects, and connects again after each lost connection."""
    busy = Busy()

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(busy)
        async with FakeCluster() as cluster:
            cluster.create_topic("orders")
            async with Producer(
                bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=20_000
            ) as producer:
                for offset in range(3):
                    assert (await producer.send_and_wait("orders", b"v")).offset == offset
                    cluster.disconnect_all()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert busy.handed == []


class Table:
    """A resolver of the user's."""

    async def resolve(self, host: str) -> Sequence[str]:
        return {"kafka.example": ["127.0.0.1"]}.get(host, [host])

    async def canonical_name(self, address: str) -> str:
        return address


def test_names_while_the_default_executor_is_busy() -> None:
    """The start says within its time that the name was not resolved; with a resolver of the user's it is."""
    busy = Busy()

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(busy)
        async with FakeCluster() as cluster:
            cluster.create_topic("orders")
            servers = cluster.bootstrap_servers.replace("127.0.0.1", "kafka.example")
            options: dict[str, Any] = {
                "max_block_ms": 300,
                "socket_connection_setup_timeout_ms": 100,
            }
            waiting: Producer[bytes, bytes] = Producer(bootstrap_servers=servers, **options)
            with pytest.raises(
                BootstrapFailed,
                match=r"kafka\.example:\d+: the name was not resolved within 0\.\d+ s",
            ):
                await waiting.start()
            async with Producer(bootstrap_servers=servers, resolver=Table()) as producer:
                assert (await producer.send_and_wait("orders", b"v")).offset == 0

    asyncio.run(main())
    assert busy.handed


@pytest.mark.asyncio
async def test_canonical_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-235."""
    monkeypatch.setattr("socket.getnameinfo", lambda _address, _flags: ("localhost", "0"))
    async with FakeCluster() as cluster:
        cluster.create_topic("orders")
        options = {"client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
            assert (await producer.send_and_wait("orders", b"v")).offset == 0


@pytest.mark.asyncio
async def test_names_that_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer tries the other bootstrap addresses meanwhile. When there is no other, the time-out error names the host."""
    known, over = socket.getaddrinfo, threading.Event()

    def getaddrinfo(host: Any, *rest: Any, **options: Any) -> Any:
        if host != "hung.example":
            return known(host, *rest, **options)
        over.wait(60)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    try:
        async with FakeCluster() as cluster:
            cluster.create_topic("orders")
            port = cluster.bootstrap_servers.rpartition(":")[2]
            async with Producer(
                bootstrap_servers=["hung.example:9092", f"localhost:{port}"]
            ) as producer:
                assert (await producer.send_and_wait("orders", b"v")).offset == 0
            alone: Producer[bytes, bytes] = Producer(
                bootstrap_servers="hung.example:9092",
                max_block_ms=300,
                socket_connection_setup_timeout_ms=100,
            )
            with pytest.raises(
                BootstrapFailed,
                match=re.escape("hung.example:9092: the name was not resolved within 0."),
            ):
                await alone.start()
            # by default an attempt has 10 s, more than this start
            sooner: Producer[bytes, bytes] = Producer(
                bootstrap_servers="hung.example:9092", max_block_ms=200
            )
            with pytest.raises(
                BootstrapFailed, match=re.escape("hung.example:9092: the name is not resolved")
            ):
                await sooner.start()
    finally:
        over.set()
