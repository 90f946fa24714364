"""Tests of `aioproducer.net.cluster`: connections that cannot be made."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from jumping import jumping, settle, until
from nodes import ask, now, refuse, running, with_fake
from scripted import ScriptedDialer, ScriptedStream

from aioproducer.errors import ConnectionLost, KafkaError
from aioproducer.net.cluster import Standing


@jumping
async def test_failures_are_followed_by_pauses_that_grow() -> None:
    """With jitter, up to the longest; the first success ends them."""

    async def fail_six_times(dial: int) -> None:
        if dial <= 6:
            await refuse(dial)

    chances = (
        chance for pause in [0.5, 0.0, 0.5, 1.0, 0.5, 0.5] for chance in (0.5, pause)
    )  # each attempt's time has jitter as well
    dialer = ScriptedDialer(fail_six_times)
    async with running(
        dialer,
        on_change=lambda node: None if node.is_ready else node.produce.request_connection(),
        chance=lambda: next(chances, 0.5),
    ) as node:
        node.produce.request_connection()
        while not node.is_ready:
            await asyncio.sleep(0.001)
            assert (node.last_error is None) == (not node.failures)
        moments = [moment for moment, _, _ in dialer.dials]
        pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
        assert pauses == pytest.approx([0.05, 0.1 * 0.8, 0.2, 0.4 * 1.2, 0.8, 1.0], abs=0.01)
        assert (node.failures, node.last_error) == (0, None)


@jumping
async def test_a_failed_dial_tells_those_who_wait() -> None:
    """At once, with the reason; they may ask another broker."""
    async with running(ScriptedDialer(refuse)) as node:
        began = now()
        tasks = [ask(node), ask(node)]
        for task in tasks:
            with pytest.raises(ConnectionLost, match=r"host:9092.*nobody listens") as caught:
                await task
            assert isinstance(caught.value.__cause__, ConnectionRefusedError)
        assert now() == began
        assert (node.failures, node.load) == (1, (Standing.PAUSING, 0))


@jumping
async def test_who_asks_during_a_pause_waits_for_the_next_dial() -> None:
    """And gets an answer if that one succeeds."""

    async def fail_once(dial: int) -> None:
        if dial == 1:
            await refuse(dial)

    dialer = ScriptedDialer(fail_once)
    async with running(dialer) as node:
        with pytest.raises(ConnectionLost):
            await ask(node)
        task = ask(node)
        await asyncio.sleep(0.06)
        await until(lambda: node.load == (0, 1))
        asked = dialer.streams[0].asked[-1]
        dialer.streams[0].answer(asked)
        assert (await task).version == asked.version


@pytest.mark.parametrize(
    "spoil", ["garbage", "wrong_correlation_id", "truncate", "error", "disconnect"]
)
@jumping
async def test_a_handshake_that_fails_is_a_dial_that_failed(spoil: str) -> None:
    """Its connection is closed."""
    async with with_fake() as (node, cluster, _):
        match spoil:
            case "error":
                cluster.fail("ApiVersions", "CLUSTER_AUTHORIZATION_FAILED")
            case "disconnect":
                cluster.fail("ApiVersions", disconnect="after")
            case _:
                getattr(cluster, spoil)("ApiVersions")
        with pytest.raises(KafkaError):
            await ask(node)
        assert node.failures == 1
        await settle()
        assert not cluster.brokers[1].connections
        cluster.assert_all_fired()
        assert (await ask(node)).decode().cluster_id == cluster.cluster_id


@jumping
async def test_a_handshake_with_a_large_answer_is_refused() -> None:
    """The size alone tells: nothing of it is decoded. After the handshake, answers may be larger."""
    async with with_fake() as (node, cluster, _):
        cluster.raw("ApiVersions", (256 * 1024 + 1).to_bytes(4, "big"))
        with pytest.raises(
            ConnectionLost, match="a frame claims 262145 bytes, and no more than 262144 are taken"
        ):
            await ask(node)
        assert (await ask(node)).decode().cluster_id == cluster.cluster_id
        assert node.control.connection is not None
        assert node.control.connection.frames.limit == 100 * 1024 * 1024


@jumping
async def test_a_handshake_that_hangs_is_given_up() -> None:
    """After the time that an attempt may take; the connection is closed."""
    async with with_fake() as (node, cluster, _):
        began = now()
        cluster.hang("ApiVersions", times=1)
        with pytest.raises(ConnectionLost, match="no usable connection within 10 s"):
            await ask(node)
        assert now() - began == pytest.approx(10, abs=0.01)
        await settle()
        assert not cluster.brokers[1].connections


@jumping
async def test_a_connection_that_ends_with_its_handshake() -> None:
    """It is never ready."""

    def answer_and_close(stream: ScriptedStream, asked: Any) -> None:
        stream.answer(asked)
        stream.end()

    async with running(ScriptedDialer(answers=answer_and_close)) as node:
        with pytest.raises(ConnectionLost):
            await ask(node)
        assert node.control.connection is None
