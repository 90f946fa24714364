"""Producers that fetch tokens from a token endpoint, on a fake cluster that verifies them: faults, refreshes and outages.

The endpoint is a `TokenServer` on loopback, with the clock of the test's loop. In virtual time a fetch takes none.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, running

from aioproducer import Producer
from aioproducer.errors import BootstrapFailed
from aioproducer.testing import FakeCluster, ListenerSecurity, ListenerTokens
from tests.support.token_server import TokenServer

if TYPE_CHECKING:
    import pathlib
    from collections.abc import AsyncIterator

EPOCH = 1_900_000_000.0
"""Seconds since 1970 at the zero of the loop's clock."""
SECRET = {
    "sasl_oauthbearer_client_credentials_client_id": "orders",
    "sasl_oauthbearer_client_credentials_client_secret": "canary-orders",
}


class Secured:
    """A token endpoint, a cluster that takes its tokens, and the options of clients."""

    def __init__(
        self, endpoint: TokenServer, cluster: FakeCluster, options: dict[str, Any]
    ) -> None:
        self.endpoint = endpoint
        self.cluster = cluster
        self.options = options

    def principals(self) -> set[str | None]:
        return {one.principal for one in self.cluster.security.authentications}


@contextlib.asynccontextmanager
async def secured(
    protocol: Any = "SASL_PLAINTEXT", *, brokers: int = 1, memory: bool = True, **endpoint: Any
) -> AsyncIterator[Secured]:
    loop = asyncio.get_running_loop()

    def wall() -> float:
        return loop.time() + EPOCH if memory else time.time()

    with TokenServer({"orders": "canary-orders"}, clock=wall, **endpoint) as server:
        tokens = ListenerTokens(unsecured=False, verify=server.verify, audience="kafka")
        security = ListenerSecurity(protocol, tokens=tokens)
        async with FakeCluster(
            brokers, memory=memory, security=security, wall_clock=wall
        ) as cluster:
            cluster.create_topic("orders", partitions=brokers)
            options = {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": server.url,
                "wall_clock": wall,
            }
            yield Secured(server, cluster, options)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("is_urlencoded", [False, True])
@jumping
async def test_records_arrive(protocol: str, *, is_urlencoded: bool) -> None:
    """As the principal of the token, which one request has fetched."""
    options = {
        **SECRET,
        "sasl_oauthbearer_header_urlencode": is_urlencoded,
        "sasl_oauthbearer_scope": "produce",
    }
    async with secured(protocol) as made:
        async with running(made.cluster, **made.options, **options) as (_, producer):
            await producer.send_and_wait("orders", b"x")
        assert made.cluster.values("orders") == [b"x"]
        assert made.principals() == {"orders"}
        assert [asked.scope for asked in made.endpoint.requests] == ["produce"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "{path} cannot be read: No such file or directory"),
        ("canary-a b", "the token file {path}: the token has a blank or a line break"),
        ("expired", "the token file {path}: the token expired "),
    ],
)
@jumping
async def test_a_token_file_that_has_none(
    tmp_path: pathlib.Path, content: str | None, reason: str
) -> None:
    """The start fails, and names the file."""
    async with secured() as made:
        path = tmp_path / "token"
        if content is not None:
            path.write_text(
                made.endpoint.token("bob", lifetime=-5) if content == "expired" else content
            )
        options = {
            **made.cluster.client_options,
            **made.options,
            "sasl_oauthbearer_token_endpoint_url": path,
        }
        with pytest.raises(BootstrapFailed) as caught:
            await Producer(**options, max_block_ms=10_000).start()
        assert reason.format(path=path) in str(caught.value)
        assert "canary" not in str(caught.value)


@jumping
async def test_row_111_unavailable_then_a_token() -> None:
    """503 twice: the producer starts when the third request succeeds, and no record or caller sees the first two."""
    async with secured() as made:
        made.endpoint.fail("unavailable", times=2)
        began = asyncio.get_running_loop().time()
        async with running(made.cluster, **made.options, **SECRET) as (_, producer):
            await producer.send_and_wait("orders", b"x")
            assert asyncio.get_running_loop().time() - began < 5
        assert len(made.endpoint.requests) == 3


@pytest.mark.parametrize("fault", ["unavailable", "refused", "not-json", "gone"])
@jumping
async def test_an_endpoint_that_is_away_while_the_old_token_lives(fault: Any) -> None:
    """For 12 s, from before the refresh of a token of 60 s until shortly before its end: no record fails, and the next token comes in time."""
    async with (
        secured(lifetime=60) as made,
        running(made.cluster, **made.options, **SECRET) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"before")
        await asyncio.sleep(45)
        made.endpoint.stop() if fault == "gone" else made.endpoint.fail(fault)
        for _ in range(12):
            await producer.send_and_wait("orders", b"while it is away")
            await asyncio.sleep(1)
        made.endpoint.heal()
        made.endpoint.start()
        await asyncio.sleep(30)
        await producer.send_and_wait("orders", b"after")
        assert len(made.cluster.values("orders")) == 14
        assert {one.error for one in made.cluster.security.authentications} == {0}


@jumping
async def test_an_endpoint_that_is_away_for_longer_than_the_token_lives() -> None:
    """Records wait for a new token until their deadline; none is lost."""
    async with (
        secured(lifetime=60) as made,
        running(made.cluster, **made.options, **SECRET) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"before")
        made.endpoint.fail("unavailable")
        await asyncio.sleep(70)
        waiting = await producer.send("orders", b"waits")
        await asyncio.sleep(20)
        assert not waiting.done()
        made.endpoint.heal()
        await waiting
        assert made.cluster.values("orders") == [b"before", b"waits"]


@jumping
async def test_a_hundred_connections_are_one_request() -> None:
    async with secured(brokers=40) as made:
        async with running(made.cluster, **made.options, **SECRET) as (_, producer):
            await asyncio.gather(
                *[
                    producer.send_and_wait("orders", b"x", partition=partition)
                    for partition in range(40)
                ]
            )
        assert len(made.cluster.security.authentications) >= 40
        assert len(made.endpoint.requests) == 1


@jumping
async def test_a_wrong_secret() -> None:
    """The start fails with the endpoint's words, and without the secret."""
    async with secured() as made:
        wrong = {**SECRET, "sasl_oauthbearer_client_credentials_client_secret": "canary-wrong"}
        with pytest.raises(BootstrapFailed) as caught:
            async with Producer(
                **{**made.cluster.client_options, **made.options, **wrong}, max_block_ms=10_000
            ):
                pass
        text = str(caught.value)
        assert "the token endpoint 127.0.0.1:" in text
        assert "answers 401: invalid_client (no such client, or another secret)" in text
        assert "canary" not in text


def test_a_silent_endpoint_delays_neither_the_loop_nor_stop() -> None:
    """While a fetch hangs for 10 s, the loop goes on; a start that is given up ends at once, and so does the program.

    The bounds leave room for a busy machine, and are less than the fetch takes; the latest tick was 7 ms.
    """

    async def given_up() -> tuple[float, float]:
        async with secured(memory=False) as made:
            made.endpoint.fail("hanging")
            options = {**made.cluster.client_options, **made.options, **SECRET}
            starting = asyncio.create_task(Producer(**options).start())
            latest, ends_at = 0.0, time.monotonic() + 0.6
            while time.monotonic() < ends_at:
                before = time.monotonic()
                await asyncio.sleep(0.005)
                if made.endpoint.requests:
                    latest = max(latest, time.monotonic() - before - 0.005)
            began = time.monotonic()
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            return latest, time.monotonic() - began

    began = time.monotonic()
    latest, stopping = asyncio.run(given_up())
    print(f"latest tick {latest * 1000:.1f} ms, stopping {stopping * 1000:.1f} ms")
    assert latest <= 5
    assert stopping <= 5
    assert time.monotonic() - began <= 8
