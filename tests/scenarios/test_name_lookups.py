"""Connections while the loop's default executor is busy, or a name server hangs: asyncio and uvloop."""

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
    from collections.abc import Callable, Coroutine

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


class Busy(ThreadPoolExecutor):
    """An executor that never runs the calls that it gets."""

    def __init__(self) -> None:
        super().__init__(1)
        self.handed: list[str] = []

    def submit(self, function: Any, /, *arguments: Any, **_named: Any) -> Future[Any]:
        self.handed.append(f"{function} {arguments}")
        return Future()


def run(new_loop: Callable[[], asyncio.AbstractEventLoop], main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `main` with a busy default executor, and check that the executor got no call."""
    busy = Busy()

    async def with_busy_executor() -> None:
        asyncio.get_running_loop().set_default_executor(busy)
        await main()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(with_busy_executor())
    assert busy.handed == []


@LOOPS
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_connections_while_the_default_executor_is_busy(new_loop: Any, host: str) -> None:
    """The producer connects, and connects again after each lost connection."""

    async def main() -> None:
        async with FakeCluster() as cluster:
            cluster.create_topic("orders")
            servers = cluster.bootstrap_servers.replace("127.0.0.1", host)
            async with Producer(bootstrap_servers=servers, delivery_timeout_ms=30_000, request_timeout_ms=20_000) as producer:
                for offset in range(3):
                    assert (await producer.send_and_wait("orders", b"v")).offset == offset
                    cluster.disconnect_all()

    run(new_loop, main)


@LOOPS
def test_canonical_names_while_the_default_executor_is_busy(new_loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-235: `getnameinfo` is a look-up, too."""
    monkeypatch.setattr("socket.getnameinfo", lambda _address, _flags: ("localhost", "0"))

    async def main() -> None:
        async with FakeCluster() as cluster:
            cluster.create_topic("orders")
            options = {"client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
                assert (await producer.send_and_wait("orders", b"v")).offset == 0

    run(new_loop, main)


@LOOPS
def test_names_that_hang(new_loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer tries the other bootstrap addresses meanwhile. When there is no other, the time-out error names its cause."""
    known, over = socket.getaddrinfo, threading.Event()
    # one look-up serves all callers of a name: each loop has a name of its own
    hung = f"hung-{new_loop.__module__.partition('.')[0]}.example"

    def getaddrinfo(host: Any, *rest: Any, **options: Any) -> Any:
        if host != hung:
            return known(host, *rest, **options)
        over.wait(60)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)

    async def main() -> None:
        async with FakeCluster() as cluster:
            cluster.create_topic("orders")
            port = cluster.bootstrap_servers.rpartition(":")[2]
            servers = [f"{hung}:9092", f"localhost:{port}"]
            async with Producer(bootstrap_servers=servers) as producer:
                assert (await producer.send_and_wait("orders", b"v")).offset == 0
            alone: Producer[bytes, bytes] = Producer(
                bootstrap_servers=f"{hung}:9092", max_block_ms=300, socket_connection_setup_timeout_ms=100
            )
            cause = r":9092: the name was not resolved within 0\.\d+ s: its look-up by the system has taken \d+\.\d s so far"
            with pytest.raises(BootstrapFailed, match=re.escape(hung) + cause):
                await alone.start()
            # by default an attempt has 10 s, more than this start
            sooner: Producer[bytes, bytes] = Producer(bootstrap_servers=f"{hung}:9092", max_block_ms=200)
            cause = r":9092: the name is not resolved: its look-up by the system has taken \d+\.\d s so far"
            with pytest.raises(BootstrapFailed, match=re.escape(hung) + cause):
                await sooner.start()

    try:
        run(new_loop, main)
    finally:
        over.set()
