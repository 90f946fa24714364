"""Tests of `aioproducer.net.broker_connection`: addresses, set-up times, backoff, handshakes, the task."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from jumping import jumping, settle, until
from nodes import Tasks, now, refuse, running, with_fake
from scripted import Asked, ScriptedDialer, ScriptedStream, api_versions

from aioproducer.core.retries import Backoff
from aioproducer.errors import ConnectionLost
from aioproducer.net.cluster import Standing
from aioproducer.wire.api import CLIENT_VERSIONS, ApiKey

if TYPE_CHECKING:
    pass

NEWEST = CLIENT_VERSIONS[ApiKey.API_VERSIONS][1]


# Addresses


# Times


@jumping
async def test_only_a_usable_connection_ends_the_pauses() -> None:
    """KIP-144: a listener that accepts and then closes is no broker that is back."""

    def close(stream: ScriptedStream, _asked: Asked) -> None:
        stream.lose()

    dialer = ScriptedDialer(answers=close)
    async with running(dialer, on_change=lambda node: node.produce.request_connection()) as node:
        node.produce.request_connection()
        await asyncio.sleep(3)
        moments = [moment for moment, _, _ in dialer.dials]
        assert [later - earlier for earlier, later in itertools.pairwise(moments)][
            :5
        ] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8], abs=0.01)


@jumping
async def test_a_connection_that_is_lost_at_once_is_not_made_again_at_once() -> None:
    """A broker that lets us in and throws us out is dialled as often as the first pause allows."""

    def answer_and_vanish(stream: ScriptedStream, asked: Asked) -> None:
        api_versions(stream, asked)
        asyncio.get_running_loop().call_soon(stream.lose)

    dialer = ScriptedDialer(answers=answer_and_vanish)
    async with running(dialer, on_change=lambda node: node.produce.request_connection()) as node:
        node.produce.request_connection()
        await asyncio.sleep(1)
        assert 15 < len(dialer.dials) <= 21


class HungResolver:
    """Never answers."""

    async def resolve(self, _host: str) -> list[str]:
        await asyncio.Event().wait()
        return []


@jumping
async def test_patience_is_shorter_than_the_look_up() -> None:
    """The error says that the name is not resolved yet, and nothing of look-ups once the broker is dialled."""
    async with running(ScriptedDialer(), resolver=HungResolver()) as node:
        with pytest.raises(
            ConnectionLost, match=r"no connection within 1 s yet: the name is not resolved$"
        ):
            await node.call(ApiKey.METADATA, lambda _: None, timeout=30.0, patience=1.0)


@jumping
async def test_patience_is_shorter_than_the_dial() -> None:
    """The caller may ask another broker after its patience is over.

    The node goes on to connect, and the next caller uses that connection.
    """
    gate = asyncio.Event()

    async def wait(_dial: int) -> None:
        await gate.wait()

    dialer = ScriptedDialer(wait)
    async with running(dialer) as node:
        began = now()
        with pytest.raises(ConnectionLost, match=r"no connection within 1 s yet$"):
            await node.call(ApiKey.METADATA, lambda _: None, timeout=30.0, patience=1.0)
        assert now() - began == pytest.approx(1, abs=0.01)
        assert node.load == (Standing.DIALLING, 0)
        gate.set()
        await settle()
        assert node.load == (Standing.CONNECTED, 0)
        assert len(dialer.dials) == 1


# Handshakes


@jumping
async def test_a_broker_that_closes_at_our_newest_form_is_asked_in_the_oldest() -> None:
    """Row 47: in at most three tries, and so again at each connection."""

    def old(stream: ScriptedStream, asked: Asked) -> None:
        if asked.version:
            stream.lose()
        else:
            api_versions(stream, asked)

    dialer = ScriptedDialer(answers=old)
    async with running(dialer, on_change=lambda node: node.produce.request_connection()) as node:
        node.produce.request_connection()
        while not node.is_ready:
            await asyncio.sleep(0.01)
        assert [stream.asked[0].version for stream in dialer.streams] == [NEWEST, NEWEST, 0]
        await asyncio.sleep(10)
        dialer.streams[-1].lose()
        await until(lambda: node.is_ready)
        assert dialer.streams[-1].asked[0].version == 0, "it is remembered"


@jumping
async def test_a_broker_that_was_only_restarting_is_asked_in_our_newest_form() -> None:
    """One closed handshake is no reason to speak as in old times."""

    def close_once(stream: ScriptedStream, asked: Asked) -> None:
        if len(dialer.streams) == 1:
            stream.lose()
        else:
            api_versions(stream, asked)

    dialer = ScriptedDialer(answers=close_once)
    async with running(dialer, on_change=lambda node: node.produce.request_connection()) as node:
        node.produce.request_connection()
        while not node.is_ready:
            await asyncio.sleep(0.01)
        assert [stream.asked[0].version for stream in dialer.streams] == [NEWEST, NEWEST]


@pytest.mark.parametrize(("highest", "is_muted"), [(4, True), (2, True), (1, False)])
@jumping
async def test_a_handshake_may_throttle(highest: int, *, is_muted: bool) -> None:
    """From ApiVersions v2 on it is the client that waits (KIP-219)."""
    async with with_fake() as (node, cluster, _):
        cluster.brokers[1].versions = {
            **cluster.brokers[1].versions,
            ApiKey.API_VERSIONS: (0, highest),
        }
        cluster.throttle("ApiVersions", 2, times=None)
        node.produce.request_connection()
        await until(lambda: node.produce.connection)
        assert node.is_muted is is_muted


# The task


@jumping
async def test_one_task_makes_the_connection_each_time() -> None:
    """It begins with the first request, and waits for the next one while the connection is ready, and after a loss or a failure."""

    async def fail_second(dial: int) -> None:
        if dial == 2:
            await refuse(dial)

    dialer = ScriptedDialer(fail_second)
    tasks = Tasks()
    async with running(dialer, tasks=tasks) as node:
        await asyncio.sleep(1)
        assert tasks.started == []
        for dials in (1, 2, 3):
            node.produce.request_connection()
            await asyncio.sleep(0.2)
            assert len(dialer.dials) == dials
            assert node.is_ready is (dials != 2)
            if dials == 1:
                dialer.streams[0].lose()
                await asyncio.sleep(0.2)
                assert len(dialer.dials) == 1, "nobody needs the connection"
            assert not node.produce.is_dialling
            assert tasks.alive == tasks.started == ["node 1 host:9092, produce"]
    assert tasks.alive == []


@jumping
async def test_an_attempt_is_not_made_twice() -> None:
    """Requests during an attempt, and during the pause after it, are one request."""
    dialer = ScriptedDialer(refuse)
    async with running(dialer) as node:
        for _ in range(3):
            node.produce.request_connection()
            await asyncio.sleep(0)
        await settle()
        assert len(dialer.dials) == 1
        node.produce.request_connection()
        await asyncio.sleep(1)
        assert len(dialer.dials) == 1


@pytest.mark.parametrize(
    "when", ["new", "dialling", "shaking hands", "pausing", "connected", "lost"]
)
@jumping
async def test_closing_ends_the_task(when: str) -> None:
    """At once, wherever it is. It ends without an error, because a cancelled task would end the producer."""

    async def before(_dial: int) -> None:
        if when == "dialling":
            await asyncio.sleep(5)
        if when == "pausing":
            await refuse(1)

    dialer = ScriptedDialer(before, None if when == "shaking hands" else api_versions)
    tasks = Tasks()
    async with running(dialer, tasks=tasks, reconnect=Backoff(5.0, 5.0)) as node:
        node.produce.request_connection()
        if when != "new":
            await settle()
        if when == "lost":
            dialer.streams[0].lose()
            await settle()
        assert len(tasks.alive) == 1
        began, failures = now(), node.failures
        node.close()
        await tasks.end()
        assert (now(), node.failures) == (began, failures)
        node.produce.request_connection()
        assert len(tasks.started) == 1


@jumping
async def test_a_dialer_that_suppresses_the_cancellation_gives_no_connection() -> None:
    """It is the user's, and may do so. The broker's id may belong to another node by then."""

    async def stubborn(_dial: int) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(5)

    dialer = ScriptedDialer(stubborn)
    changed: list[bool] = []
    tasks = Tasks()
    async with running(
        dialer, tasks=tasks, on_change=lambda node: changed.append(node.is_ready)
    ) as node:
        node.produce.request_connection()
        await settle()
        node.close()
        await tasks.end()
        await settle()
        assert node.produce.connection is None
        assert changed == []
        assert dialer.streams[0].aborted


@pytest.mark.parametrize("before", [None, refuse], ids=["ready", "failed"])
@jumping
async def test_the_task_may_close_its_own_connection(before: Any) -> None:
    """By what it calls when the connection is ready, or may be tried again. It does not end as a cancelled task."""
    tasks = Tasks()
    async with running(
        ScriptedDialer(before), tasks=tasks, on_change=lambda node: node.close()
    ) as node:
        node.produce.request_connection()
        await tasks.end()
        await settle()
        assert node.produce.connection is None
        assert len(tasks.started) == 1
