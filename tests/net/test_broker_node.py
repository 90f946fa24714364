"""Tests of `aioproducer.net.cluster`: the fake cluster's brokers, and a dialer that does as told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from jumping import jumping, settle, until
from nodes import Tasks, ask, now, refuse, running, with_fake
from scripted import ScriptedDialer, ScriptedStream, api_versions

from aioproducer.errors import ConnectionLost, RequestTimedOut
from aioproducer.net.cluster import BrokerNode, Standing
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

# Connections


@jumping
async def test_the_produce_connection_is_made_when_it_is_requested() -> None:
    """The node connects once, however often the connection is requested. The Sender is notified."""
    async with with_fake() as (node, cluster, changed):
        for _ in range(3):
            node.produce.request_connection()
        await until(lambda: changed)
        assert node.is_ready
        assert changed == [node]
        assert node.load == (Standing.ALIVE, 0)
        await settle()
        assert len({request.connection for request in cluster.requests()}) == 1
        assert "produce" in repr(node)


@jumping
async def test_metadata_has_a_connection_of_its_own() -> None:
    """It must not wait behind records that a broker takes long to write."""
    async with with_fake() as (node, cluster, _):
        node.produce.request_connection()
        answers = [await ask(node), await ask(node)]
        assert [answer.decode().cluster_id for answer in answers] == [cluster.cluster_id] * 2
        assert node.is_ready
        asked = cluster.requests("Metadata")
        assert len({request.connection for request in asked}) == 1
        assert node.produce.connection is not node.control.connection
        assert asked[0].client_id == "tests"


@jumping
async def test_the_load_counts_what_is_unanswered() -> None:
    """The load counts the unanswered requests of both connections. The failures come first."""
    async with running(ScriptedDialer()) as node:
        node.produce.request_connection()
        first, second = ask(node), ask(node)
        await until(lambda: node.load == (0, 2))
        assert node.produce.connection is not None
        third = asyncio.ensure_future(
            node.produce.connection.ask(
                ApiKey.METADATA, 9, message("Metadata.request", topics=[]), 30.0
            )
        )
        await until(lambda: node.load == (0, 3))
        node.close()
        for task in (first, second, third):
            with pytest.raises(ConnectionLost):
                await task


@jumping
async def test_a_full_buffer_makes_a_node_unready() -> None:
    """The node is not ready while its buffer is full, so no batch is drained into it. The Sender is notified when the buffer has space."""
    changed: list[BrokerNode] = []
    async with running(ScriptedDialer(), on_change=changed.append) as node:
        node.produce.request_connection()
        await until(lambda: node.is_ready)
        connection = node.produce.connection
        assert connection is not None
        connection.pause_writing()
        assert not node.is_ready
        changed.clear()
        connection.resume_writing()
        assert node.is_ready
        assert changed == [node]


@jumping
async def test_a_connection_that_closes_is_not_ready() -> None:
    """A node is not ready while its connection closes, since a request that is written to it would be lost."""
    dialer = ScriptedDialer()
    async with running(dialer) as node:
        node.produce.request_connection()
        await until(lambda: node.is_ready)
        dialer.streams[0].lingers = True
        dialer.streams[0].end()
        assert node.produce.connection is not None
        assert not node.is_ready
        dialer.streams[0].lose()


@jumping
async def test_the_loss_of_one_connection_is_not_that_of_the_other() -> None:
    """They fail apart."""
    dialer = ScriptedDialer()
    async with running(dialer) as node:
        node.produce.request_connection()
        task = ask(node)
        await until(lambda: node.load == (0, 1))
        dialer.streams[1].lose()
        with pytest.raises(ConnectionLost):
            await task
        assert node.is_ready


# Calls


@jumping
async def test_a_call_that_takes_too_long() -> None:
    """Its connection is given up, as a broker answers in order."""
    async with with_fake(request_timeout=5.0) as (node, cluster, _):
        cluster.hang("Metadata", times=1)
        began = now()
        with pytest.raises(RequestTimedOut, match="Metadata within 5 s"):
            await ask(node, timeout=5.0)
        assert now() - began == pytest.approx(5, abs=0.01)
        await asyncio.sleep(0.1)
        await settle()
        assert node.control.connection is None
        assert (await ask(node)).decode().cluster_id == cluster.cluster_id


@pytest.mark.parametrize(("idle", "waits"), [(59, 30), (61, 10)])
@jumping
async def test_a_connection_that_was_idle_for_long_gets_less_time(
    idle: float, waits: float
) -> None:
    """A NAT may have dropped it without a word. The next call is sent over another one, and has all its time."""
    async with with_fake() as (node, cluster, _):
        await ask(node)
        await asyncio.sleep(idle)
        cluster.hang("Metadata", times=2)
        for seconds in (waits, 30):
            began = now()
            with pytest.raises(RequestTimedOut):
                await ask(node)
            assert now() - began == pytest.approx(seconds, abs=0.01)
        await ask(node)


@pytest.mark.parametrize("is_in_use", [False, True])
@jumping
async def test_a_broker_that_is_silent_on_one_connection_loses_the_other(
    *, is_in_use: bool
) -> None:
    """Unless it is in use: then its own requests tell whether the broker answers."""
    async with with_fake() as (node, cluster, _):
        node.produce.request_connection()
        await ask(node)
        await until(lambda: node.is_ready)
        produce = node.produce.connection
        assert produce is not None
        cluster.hang("Metadata", times=2)
        with pytest.raises(RequestTimedOut):
            task = ask(node, 5)
            if is_in_use:
                other = asyncio.ensure_future(
                    produce.ask(ApiKey.METADATA, 9, message("Metadata.request", topics=[]), 10)
                )
            await task
        await settle()
        assert (node.produce.connection is produce) is is_in_use
        if is_in_use:
            with pytest.raises(RequestTimedOut):
                await other


@jumping
async def test_a_call_waits_for_its_connection_no_longer_than_for_its_answer() -> None:
    """The time is for the whole."""

    async def hang(_dial: int) -> None:
        await asyncio.Event().wait()

    async with running(ScriptedDialer(hang)) as node:
        began = now()
        with pytest.raises(RequestTimedOut, match="within 2 s"):
            await ask(node, timeout=2.0)
        assert now() - began == pytest.approx(2, abs=0.01)


@jumping
async def test_a_cancelled_call_leaves_the_others() -> None:
    """The other calls go on after a call is cancelled, both while it waits for the connection and while it waits for the answer."""
    async with with_fake() as (node, cluster, _):
        hang = cluster.hang("Metadata", times=1)
        tasks = [ask(node) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await cluster.seen("Metadata")
        tasks[1].cancel()
        await settle()
        hang.release()
        for task in tasks[2:]:
            assert (await task).decode().cluster_id == cluster.cluster_id
        assert [task.cancelled() for task in tasks] == [True, True, False, False]


@jumping
async def test_who_asks_while_a_connection_closes_gets_the_next() -> None:
    """The second call waits for the next connection, since a close may take long: written bytes must leave first.

    The node dials for that call.
    """
    dialer = ScriptedDialer()
    async with running(dialer) as node:
        first = ask(node)
        await until(lambda: node.load == (0, 1))
        dialer.streams[0].answer(dialer.streams[0].asked[-1])
        await first
        dialer.streams[0].lingers = True
        assert node.control.connection is not None
        node.control.connection.close()
        second = ask(node)
        await settle()
        assert len(dialer.dials) == 1
        dialer.streams[0].lose()
        await asyncio.sleep(0.06)  # it lasted for a moment only
        await until(lambda: node.load == (0, 1))
        dialer.streams[1].answer(dialer.streams[1].asked[-1])
        await second


@jumping
async def test_a_connection_that_ends_before_its_waiter_runs() -> None:
    """The question fails at once, not after its whole time."""

    def answer_and_vanish(stream: ScriptedStream, asked: Any) -> None:
        api_versions(stream, asked)  # the node's task is next, and then the connection's end
        asyncio.get_running_loop().call_soon(stream.lose)

    async with running(ScriptedDialer(answers=answer_and_vanish)) as node:
        began = now()
        with pytest.raises(ConnectionLost):
            await ask(node)
        assert now() == began
        assert node.failures == 0, "it was ready, for a moment"


# The end


@jumping
async def test_closing_ends_everything() -> None:
    """The close ends both connections, the waiting calls, the requests in flight, and the task."""
    async with with_fake() as (node, cluster, _):
        node.produce.request_connection()
        await ask(node)
        cluster.hang("Metadata")
        task = ask(node)
        await cluster.seen("Metadata", 2)
        node.close()
        with pytest.raises(ConnectionLost):
            await task
        await until(lambda: not cluster.brokers[1].connections)
        assert (node.produce.connection, node.control.connection) == (None, None)
        with pytest.raises(ConnectionLost, match="no longer a broker"):
            await ask(node)
        node.produce.request_connection()
        await asyncio.sleep(100)
        assert not cluster.brokers[1].connections


@jumping
async def test_aborting_does_not_wait_for_a_broker_that_does_not_read() -> None:
    """Closing does: what is written must leave first."""
    dialer = ScriptedDialer()
    async with running(dialer) as node:
        node.produce.request_connection()
        await until(lambda: node.is_ready)
        dialer.streams[0].lingers = True
        node.close()
        await settle()
        assert node.produce.connection is not None
        node.close(now=True)
        await settle()
        assert node.produce.connection is None
        assert dialer.streams[0].aborted


@pytest.mark.parametrize("at", ["dial", "handshake"])
@jumping
async def test_a_node_that_was_closed_while_it_dialled_is_never_connected(at: str) -> None:
    """Its number may be another node's by then: records must not go to where the broker was."""
    gate = asyncio.Event()
    changed: list[bool] = []
    streams: list[ScriptedStream] = []

    async def before(_dial: int) -> None:
        if at == "dial":
            await gate.wait()

    dialer = ScriptedDialer(before, None if at == "handshake" else api_versions)
    streams = dialer.streams
    async with running(dialer, on_change=lambda node: changed.append(node.is_ready)) as node:
        node.produce.request_connection()
        await settle()
        began = now()
        node.close()
        gate.set()
        await settle()
        assert True not in changed
        assert node.produce.connection is None
        assert all(stream.is_closing() for stream in streams)
        assert len(streams) == (at == "handshake")
    assert now() == began, "a closed node has nothing to pause for"


@jumping
async def test_who_waits_when_a_node_is_closed_is_told() -> None:
    """A connection will never come."""

    async def hang(_dial: int) -> None:
        await asyncio.sleep(5)

    async with running(ScriptedDialer(hang)) as node:
        task = ask(node)
        await settle()
        began = now()
        node.close()
        with pytest.raises(ConnectionLost, match="closed"):
            await task
        assert now() == began


@pytest.mark.parametrize("when", ["dialling", "shaking hands", "pausing", "connected"])
@jumping
async def test_a_cancelled_task_leaves_no_connection(when: str) -> None:
    """The producer ends while its node is anywhere."""

    async def before(_dial: int) -> None:
        if when == "dialling":
            await asyncio.sleep(5)
        if when == "pausing":
            await refuse(1)

    answers: Any = None if when == "shaking hands" else api_versions
    dialer = ScriptedDialer(before, answers)
    tasks = Tasks()
    async with running(dialer, tasks=tasks) as node:
        node.produce.request_connection()
        await settle()
        assert tasks.alive == ["node 1 host:9092, produce"]
        await tasks.cancel()
    await settle()
    assert all(stream.is_closing() for stream in dialer.streams)
    assert not node.is_ready
