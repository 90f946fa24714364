"""Tests of `aioproducer.testing.faults` and `call`: what a client sees of scripted trouble. On sockets and in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fake_requests import batch, client, produce

from aioproducer.errors import ConnectionLost, ProtocolError, RequestTimedOut
from aioproducer.testing import FakeCluster
from aioproducer.wire.api import ApiKey
from aioproducer.wire.frame import FrameReader, correlation_of, encode_request
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from aioproducer.testing.call import Context

pytestmark = pytest.mark.asyncio


class Raw(asyncio.Protocol):
    """A connection that keeps what comes, read by read."""

    def __init__(self) -> None:
        self.reads: list[bytes] = []
        self.transport: Any = None
        self._came = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.reads.append(data)
        self._came.set()

    async def ask(self, cluster: FakeCluster, count: int) -> list[int]:
        """The correlation ids of the answers to so many Metadata requests that are sent at once, numbered from 0."""
        broker = cluster.brokers[1]
        loop = asyncio.get_running_loop()
        dial = (
            cluster.network.dial
            if cluster.network
            else lambda host, port, made: loop.create_connection(made, host, port)
        )
        await dial(broker.host, broker.port, lambda: self)
        body = codec("Metadata.request", 12).encode(message("Metadata.request", topics=[]))
        self.transport.write(
            b"".join(
                b"".join(encode_request(ApiKey.METADATA, 12, number, "raw", body))
                for number in range(count)
            )
        )
        async with asyncio.timeout(5):
            while len(answers := FrameReader().feed(b"".join(self.reads))) < count:
                self._came.clear()
                await self._came.wait()
        self.transport.abort()
        return [correlation_of(answer) for answer in answers]


async def test_a_handler_answers_passes_or_disconnects(cluster: FakeCluster) -> None:
    """A handler answers first, then passes, then disconnects. It sees the request and the broker that got it."""
    told: list[tuple[str, int, int]] = []

    @cluster.on("Metadata")
    def answer(request: Any, context: Context) -> Any:
        told.append((context.api, context.version, context.broker))
        if len(told) == 1:
            return context.answer(cluster_id="scripted")
        return context.PASS if len(told) == 2 else context.DISCONNECT

    async with client(cluster) as kafka:
        assert (await kafka.metadata()).cluster_id == "scripted"
        assert (await kafka.metadata()).cluster_id == cluster.cluster_id
        with pytest.raises(ConnectionLost):
            await kafka.metadata()
    assert told == [("Metadata", 13, 1)] * 3


async def test_a_handler_may_be_a_coroutine_and_answer_once(cluster: FakeCluster) -> None:
    """It ends with its connection, and without `keep` it is used for one request."""
    going, ended = asyncio.Event(), asyncio.Event()

    @cluster.on("Metadata", keep=False)
    async def wait(request: Any, context: Context) -> Any:
        going.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with client(cluster) as kafka:
        asking = asyncio.ensure_future(kafka.metadata())
        await going.wait()
        cluster.disconnect_all()
        with pytest.raises(ConnectionLost):
            await asking
        await ended.wait()
        assert (await kafka.metadata()).cluster_id == cluster.cluster_id
    cluster.assert_all_fired()


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_handler_that_raises_is_told_twice(
    cluster: FakeCluster, asynchronous: bool
) -> None:
    """To the loop, and at the end of the test; the client sees a lost connection."""
    heard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: heard.append(context["exception"])
    )

    def broken(request: Any, context: Context) -> Any:
        raise LookupError("a test's own bug")

    async def broken_later(request: Any, context: Context) -> Any:
        raise LookupError("a test's own bug")

    cluster.on("Metadata", keep=False)(broken_later if asynchronous else broken)
    async with client(cluster) as kafka:
        with pytest.raises(ConnectionLost):
            await kafka.metadata()
    assert [type(error) for error in heard] == [LookupError]
    with pytest.raises(AssertionError, match="LookupError"):
        cluster.assert_all_fired()


async def test_a_request_that_its_release_lacks_can_be_scripted() -> None:
    """It is advertised then."""
    async with FakeCluster(memory=True, version="0.10.2") as cluster, client(cluster) as kafka:
        with pytest.raises(ProtocolError, match="in no version"):
            await kafka.ask(
                ApiKey.INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=1
            )
    async with FakeCluster(memory=True, version="0.10.2") as cluster:
        cluster.on("InitProducerId")(lambda request, context: context.answer(producer_id=7))
        async with client(cluster) as kafka:
            assert (
                await kafka.ask(
                    ApiKey.INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=1
                )
            ).producer_id == 7


async def test_answers_may_be_dropped_doubled_and_reordered(cluster: FakeCluster) -> None:
    """Each once, in a row of six."""
    cluster.drop_reply("Metadata")
    cluster.unsolicited("Metadata")
    cluster.reorder("Metadata")
    assert await Raw().ask(cluster, 6) == [1, 1 ^ 0x5A5A, 3, 2, 4, 5]


async def test_answers_come_in_crumbs_or_all_at_once(cluster: FakeCluster) -> None:
    """The bytes are the same."""
    if cluster.network is None:
        return  # a kernel puts together what it likes
    whole = Raw()
    await whole.ask(cluster, 3)
    cluster.segment("Metadata", times=3)
    crumbs = Raw()
    assert await crumbs.ask(cluster, 3) == [0, 1, 2]
    assert {len(read) for read in crumbs.reads} == {1}
    cluster.gather("Metadata", 3)
    at_once = Raw()
    await at_once.ask(cluster, 3)
    assert at_once.reads == [b"".join(crumbs.reads)] == [b"".join(whole.reads)]


async def test_a_lost_answer_is_carried_out(cluster: FakeCluster) -> None:
    """The broker carries the request out without an answer, and the connection goes on."""
    cluster.drop_reply("Produce")
    async with client(cluster, timeout=0.1) as kafka:
        with pytest.raises(RequestTimedOut):
            await produce(kafka, batch(b"a"))
        assert (await produce(kafka, batch(b"b"))).base_offset == 1


async def test_a_partition_or_a_topic_is_left_out(cluster: FakeCluster) -> None:
    """Metadata and Produce leave out the named partition or topic, and contain the others."""
    cluster.omit("Metadata", topic="orders", partition=1)
    cluster.omit("Produce", topic="orders", partition=0)
    async with client(cluster) as kafka:
        assert [part.partition_index for part in (await kafka.metadata()).topics[0].partitions] == [
            0
        ]
        cluster.omit("Metadata", topic="orders")
        assert (await kafka.metadata()).topics == []
        assert len((await kafka.metadata()).topics[0].partitions) == 2
        with pytest.raises(IndexError):
            await produce(kafka, batch(b"a"))
    assert cluster.values("orders") == [b"a"]


async def test_an_error_says_what_it_is_told_to(cluster: FakeCluster) -> None:
    """Its text, the records that were wrong (KIP-467), the leader (KIP-951)."""
    cluster.fail("Produce", "INVALID_RECORD", message="one is bad", record_errors={1: "this one"})
    cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER", leader=2)
    async with client(cluster) as kafka:
        answer = await produce(kafka, batch(b"a", b"b"), version=12)
        assert (answer.error_code, answer.error_message) == (87, "one is bad")
        assert [
            (one.batch_index, one.batch_index_error_message) for one in answer.record_errors
        ] == [(1, "this one")]
        answer = await produce(kafka, batch(b"a"), version=12)
        assert (
            answer.error_code,
            answer.current_leader.leader_id,
            answer.current_leader.leader_epoch,
        ) == (6, 2, 1)
    assert cluster.values("orders") == []
