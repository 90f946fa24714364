"""Parts of the user's that make connections and raise: dialers, resolvers, and the streams of dialers. Each error is one connection's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from builds import on_both, producer_on
from whole import Names, jumping, now

from aioproducer import Producer
from aioproducer.errors import BootstrapFailed
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Sequence


class Failing:
    """A dialer, and a resolver, that raises an error at its second and third call."""

    def __init__(self, cluster: FakeCluster, part: str, error: BaseException) -> None:
        self.part = part
        self._network = cluster.network
        self._errors = [error, error]
        self._calls = 0

    def _call(self, part: str) -> None:
        if part == self.part:
            self._calls += 1
            if self._calls > 1 and self._errors:
                raise self._errors.pop()

    async def dial(self, host: str, port: int, receiver: Any) -> Any:
        self._call("dialer")
        return await self._network.dial(host, port, receiver)

    async def resolve(self, host: str) -> Sequence[str]:
        self._call("resolver")
        return [host]

    async def canonical_name(self, address: str) -> str:
        return address


@on_both
@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), OSError(), LookupError("no tunnel")], ids=repr
)
@pytest.mark.parametrize("part", ["dialer", "resolver"])
@jumping
async def test_an_error_of_a_users_dialer_or_resolver_is_one_attempts(
    build: Any, part: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """A tunnel that was cancelled raises CancelledError in a dialer that awaits it. The next attempt connects, and the log names the error."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        failing = Failing(cluster, part, error)
        async with producer_on(build)(
            bootstrap_servers=cluster.bootstrap_servers, dialer=failing, resolver=failing
        ) as producer:
            assert (await producer.send_and_wait("orders", b"v")).offset == 0
    assert f": {str(error) or type(error).__name__} (the address" in caplog.text


@jumping
async def test_an_address_whose_dial_fails_in_any_way_is_followed_by_the_next_one() -> None:
    """The errors of proxies are often no OSError."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        dialled: list[str] = []

        class Proxy:
            async def dial(self, host: str, port: int, receiver: Any) -> Any:
                dialled.append(host)
                if host == "gone":
                    raise LookupError("the proxy knows no such host")
                return await cluster.network.dial(host, port, receiver)

        names = Names(boot=["gone", cluster.brokers[1].host])
        address = f"boot:{cluster.brokers[1].port}"
        async with Producer(bootstrap_servers=address, dialer=Proxy(), resolver=names) as producer:
            assert dialled[:2] == names.names["boot"]
            await producer.send_and_wait("orders", b"v")


class FailingStream:
    """A stream of a user's dialer whose methods raise the errors that are given for them, each once."""

    def __init__(self, stream: Any, errors: dict[str, list[BaseException]]) -> None:
        self._stream = stream
        self._errors = errors

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            if self._errors.get(name):
                raise self._errors[name].pop()
            return getattr(self._stream, name)(*given)

        return call


class StreamDialer:
    """Makes connections with `FailingStream`s."""

    def __init__(self, cluster: FakeCluster, errors: dict[str, list[BaseException]]) -> None:
        self._cluster = cluster
        self._errors = errors
        self.dialled = 0

    async def dial(self, host: str, port: int, receiver: Any) -> Any:
        self.dialled += 1
        protocol = receiver()
        made = protocol.connection_made
        protocol.connection_made = lambda stream: made(FailingStream(stream, self._errors))
        return await self._cluster.network.dial(host, port, lambda: protocol)


@pytest.mark.parametrize("acks", ["all", "0"])
@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), OSError(), RuntimeError("the handle is closed")], ids=repr
)
@jumping
async def test_a_stream_that_cannot_be_written_is_a_lost_connection(
    error: BaseException, acks: Any
) -> None:
    """The producer connects anew and sends the batch again. It failed for good, or the batches hung until `delivery_timeout_ms`."""
    errors: list[BaseException] = []
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        dialer = StreamDialer(cluster, {"writelines": errors})
        async with Producer(
            bootstrap_servers=cluster.bootstrap_servers, dialer=dialer, acks=acks
        ) as producer:
            await producer.send_and_wait("orders", b"1")
            began = now()
            errors.append(error)
            await producer.send_and_wait("orders", b"2")
            assert errors == []
            await producer.send_and_wait("orders", b"3")
            assert now() - began < 1
        assert cluster.values("orders") == [b"1", b"2", b"3"]


@on_both
@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), RuntimeError("the handle is closed")], ids=repr
)
@jumping
async def test_a_stream_whose_is_closing_raises_is_a_failed_attempt(
    build: Any, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The next attempt connects, and the log names the method. It failed the producer for good."""
    errors: list[BaseException] = []
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        dialer = StreamDialer(cluster, {"is_closing": errors})
        errors.append(error)
        async with producer_on(build)(
            bootstrap_servers=cluster.bootstrap_servers, dialer=dialer
        ) as producer:
            assert errors == []
            assert (
                f"`is_closing` of the connection's stream raised {type(error).__name__}"
                in caplog.text
            )
            dialled = dialer.dialled
            await producer.send_and_wait("orders", b"1")
            errors.append(error)
            await producer.send_and_wait("orders", b"2")
            assert errors == []
            assert dialer.dialled > dialled
        assert cluster.values("orders") == [b"1", b"2"]


@jumping
async def test_a_stream_whose_is_closing_always_raises_ends_the_start_with_words() -> None:
    async with FakeCluster(memory=True) as cluster:
        errors: list[BaseException] = [RuntimeError("the handle is closed") for _ in range(10_000)]
        dialer = StreamDialer(cluster, {"is_closing": errors})
        producer = Producer(
            bootstrap_servers=cluster.bootstrap_servers, dialer=dialer, max_block_ms=5_000
        )
        with pytest.raises(
            BootstrapFailed,
            match="`is_closing` of the connection's stream raised RuntimeError: the handle is closed",
        ):
            await producer.start()
        await producer.stop()


@on_both
@pytest.mark.parametrize("method", ["abort", "close", "get_write_buffer_size"])
@jumping
async def test_a_stream_that_cannot_be_closed_is_let_go(build: Any, method: str) -> None:
    """The producer connects anew beside it, and `stop` ends in time."""
    error = RuntimeError("the handle is closed")
    errors: dict[str, list[BaseException]] = {method: []}
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        dialer = StreamDialer(cluster, errors)
        async with producer_on(build)(
            bootstrap_servers=cluster.bootstrap_servers, dialer=dialer
        ) as producer:
            await producer.send_and_wait("orders", b"1")
            errors["writelines"] = [error]
            errors[method] = [error, error, error]
            await producer.send_and_wait("orders", b"2")
            began = now()
        assert now() - began < 1
        assert cluster.values("orders") == [b"1", b"2"]
