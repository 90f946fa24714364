"""Tests of `aioproducer.testing.broker`: what bytes do to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Any

import pytest
from fake_requests import batch, topic
from hypothesis import given, settings
from hypothesis import strategies as st
from jumping import jumping

from aioproducer.testing import FakeCluster
from aioproducer.wire.api import ApiKey
from aioproducer.wire.frame import FrameReader, decode_response, encode_request
from aioproducer.wire.schema import codec, message


class Raw(asyncio.Protocol):
    """A connection of bytes."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.lost = asyncio.Event()
        self._reader = FrameReader()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            self.frames.put_nowait(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    async def answer(self) -> bytes:
        async with asyncio.timeout(5):
            return await self.frames.get()


async def connect(cluster: FakeCluster, broker: int = 1) -> Raw:
    raw = Raw()
    there = cluster.brokers[broker]
    if cluster.network is not None:
        await cluster.network.dial(there.host, there.port, lambda: raw)
    else:
        await asyncio.get_running_loop().create_connection(lambda: raw, there.host, there.port)
    return raw


def encoded(key: ApiKey, version: int, correlation_id: int = 0, **fields: object) -> bytes:
    name = {
        ApiKey.METADATA: "Metadata",
        ApiKey.PRODUCE: "Produce",
        ApiKey.API_VERSIONS: "ApiVersions",
        ApiKey.FETCH: "Fetch",
    }[key]
    body = codec(f"{name}.request", version).encode(message(f"{name}.request", **fields))
    return b"".join(encode_request(key, version, correlation_id, "raw", body))


METADATA = encoded(ApiKey.METADATA, 12, topics=[])


@pytest.mark.asyncio
async def test_requests_may_come_in_any_pieces(cluster: FakeCluster) -> None:
    """A byte at a time, or several requests at once; answers keep their order."""
    raw = await connect(cluster)
    for byte in encoded(ApiKey.METADATA, 12, 7, topics=[]):
        raw.transport.write(bytes([byte]))
    assert decode_response(ApiKey.METADATA, 12, await raw.answer())[0] == 7
    raw.transport.write(
        b"".join(encoded(ApiKey.METADATA, 12, number, topics=[]) for number in range(50))
    )
    assert [decode_response(ApiKey.METADATA, 12, await raw.answer())[0] for _ in range(50)] == list(
        range(50)
    )
    raw.transport.abort()


@pytest.mark.asyncio
async def test_an_unsupported_api_versions_is_answered_in_version_0() -> None:
    """With the range of ApiVersions alone (KIP-511); the connection goes on."""
    async with FakeCluster(versions={"ApiVersions": (0, 2)}) as cluster:
        raw = await connect(cluster)
        raw.transport.write(struct.pack(">ihhih", 20, 18, 99, 5, -1) + b"0123456789")
        frame = await raw.answer()
        assert struct.unpack_from(">i", frame) == (5,)
        answer = codec("ApiVersions.response", 0).decode(frame, 4)
        assert answer.error_code == 35
        assert [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys] == [
            (18, 0, 2)
        ]
        raw.transport.write(encoded(ApiKey.API_VERSIONS, 2))
        ranges = codec("ApiVersions.response", 2).decode(await raw.answer(), 4).api_keys
        told = {api.api_key: (api.min_version, api.max_version) for api in ranges}
        assert (
            told.items()
            >= {
                0: (3, 13),
                1: (4, 17),
                2: (1, 9),
                3: (0, 13),
                10: (0, 6),
                18: (0, 2),
            }.items()
        )
        assert cluster.violations == []
        raw.transport.abort()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("name", "code"), [("aio-producer.x", 0), ("", 42), ("-x", 42), ("a b", 42)]
)
async def test_api_versions_wants_a_software_name(
    cluster: FakeCluster, name: str, code: int
) -> None:
    """From version 3 on, of Kafka's characters."""
    raw = await connect(cluster)
    raw.transport.write(
        encoded(ApiKey.API_VERSIONS, 4, client_software_name=name, client_software_version="1.0")
    )
    frame = await raw.answer()
    assert codec("ApiVersions.response", 4).decode(frame, 4).error_code == code
    raw.transport.abort()


HOSTILE = {
    "negative size": (b"\xff\xff\xff\xff", "claims -1 bytes"),
    "http": (b"GET / HTTP/1.1\r\n\r\n", "HTTP client"),
    "tls": (b"\x16\x03\x01\x02\x00\x01", "TLS"),
    "too large": (struct.pack(">i", 200_000_000), "claims 200000000 bytes"),
    "empty frame": (struct.pack(">i", 0), "shorter than its header"),
    "short header": (struct.pack(">ihhi", 8, 3, 12, 0), "shorter than its header"),
    "unknown request": (struct.pack(">ihhih", 10, 999, 0, 0, -1), "request 999 in version 0"),
    "known to kafka alone": (struct.pack(">ihhih", 10, 29, 1, 0, -1), "request 29 in version 1"),
    "version too high": (struct.pack(">ihhih", 10, 0, 99, 0, -1), "request 0 in version 99"),
    "version too low": (struct.pack(">ihhih", 10, 0, 2, 0, -1), "request 0 in version 2"),
    "negative version": (struct.pack(">ihhih", 10, 3, -1, 0, -1), "request 3 in version -1"),
    "hostile client id": (struct.pack(">ihhih", 10, 3, 1, 0, 30_000), "client id"),
    "hostile count": (struct.pack(">ihhihi", 14, 3, 1, 0, -1, 2_000_000_000), "Metadata.request"),
    "trailing bytes": (
        struct.pack(">i", len(METADATA) + 1 - 4) + METADATA[4:] + b"x",
        "Metadata.request",
    ),
    "cut off": (struct.pack(">i", len(METADATA) - 5) + METADATA[4:-1], "Metadata.request"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("case", HOSTILE)
async def test_what_no_broker_takes_closes_the_connection(cluster: FakeCluster, case: str) -> None:
    """The broker records the violation. It answers earlier requests, and does not answer later ones. Other connections go on."""
    sent, words = HOSTILE[case]
    other, raw = await connect(cluster), await connect(cluster)
    raw.transport.write(METADATA + sent + METADATA)
    async with asyncio.timeout(5):
        await raw.lost.wait()
    assert raw.frames.qsize() == (0 if case in _NOT_A_FRAME else 1)
    assert len(cluster.violations) == 1
    assert words in cluster.violations[0].what
    assert cluster.violations[0].broker == 1
    other.transport.write(METADATA)
    await other.answer()
    other.transport.abort()


_NOT_A_FRAME = {
    "negative size",
    "http",
    "tls",
    "too large",
}  # the whole read is thrown away with it


def _frames(key: ApiKey) -> st.SearchStrategy[bytes]:
    """A right header with a body of any bytes, or a right Produce with any records."""
    headers = st.integers(0, 17).map(
        lambda version: struct.pack(">hhih", key, version, 1, -1) + b"\x00" * (version > 8)
    )
    garbled = st.tuples(headers, st.binary(max_size=80)).map(
        lambda parts: struct.pack(">i", sum(map(len, parts))) + b"".join(parts)
    )
    sound = batch(b"value")
    records = st.tuples(st.integers(0, len(sound) - 1), st.integers(0, 255)).map(
        lambda at: sound[: at[0]] + bytes([at[1]]) + sound[at[0] + 1 :]
    )
    produced = records.map(
        lambda sent: encoded(ApiKey.PRODUCE, 9, acks=-1, topics=[topic("orders", {0: sent})])
    )
    return st.one_of(garbled, produced)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(st.binary(max_size=60), st.sampled_from(list(ApiKey)).flatmap(_frames)),
        max_size=5,
    )
)
def test_no_bytes_break_it(chunks: list[bytes]) -> None:
    """The broker answers any bytes or closes the connection, and lives on."""

    async def main() -> None:
        problems: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: problems.append(context)
        )
        async with FakeCluster(memory=True) as cluster:
            cluster.create_topic("orders")
            raw = await connect(cluster)
            for chunk in chunks:
                raw.transport.write(chunk)
            other = await connect(cluster)
            other.transport.write(METADATA)
            await other.answer()
        assert problems == []

    asyncio.run(main())


@pytest.mark.asyncio
@pytest.mark.parametrize("turns", range(4))
async def test_a_connection_that_comes_as_a_broker_stops_is_reset(turns: int) -> None:
    """The broker resets the connection, in whichever event-loop iteration it is accepted. No client keeps a connection to a stopped
    broker.
    """
    async with FakeCluster() as cluster:
        with socket.create_connection(("127.0.0.1", cluster.brokers[1].port)) as late:
            for _ in range(turns):
                await asyncio.sleep(0)
            await cluster.brokers[1].stop()
            assert not cluster.brokers[1].connections
            late.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert late.recv(1) == b""


@pytest.mark.asyncio
async def test_a_client_that_reads_nothing_is_not_answered_for_ever() -> None:
    """Answers wait in the client's socket and a bounded buffer. The client's further requests wait, unread, before the broker."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=300)
        raw = await connect(cluster)
        raw.transport.pause_reading()
        ask = encoded(ApiKey.METADATA, 12, topics=None)
        raw.transport.write(ask * 300)
        for _ in range(100):
            await asyncio.sleep(0)
        answered = len(cluster.requests("Metadata"))
        assert 1 < answered < 100
        raw.transport.resume_reading()
        for _ in range(300):
            await raw.answer()
        raw.transport.abort()


@jumping
async def test_a_waiting_request_lets_only_what_came_in_wait() -> None:
    """A muted connection takes no more bytes, so that a client's buffer fills as it does with a slow broker."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.hang("Produce")
        raw = await connect(cluster)
        sent = encoded(
            ApiKey.PRODUCE, 9, acks=-1, topics=[topic("orders", {0: batch(b"v" * 100_000)})]
        )
        for _ in range(20):
            raw.transport.write(sent)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        size: int = raw.transport.get_write_buffer_size()
        raw.transport.abort()
        assert size > 1_000_000
