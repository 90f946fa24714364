"""Runs a broker that costs almost no CPU: it takes every Produce request, answers at once, and reads no record.

    python -m tests.tools.benchmarks.stub PARTITIONS

It prints its address, and ends with its standard input. Every topic exists and has that many partitions. Offsets count up, as the batches'
headers say. The stub keeps, checks and compares no data.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections import defaultdict
from typing import Any, Final

import uvloop

from aioproducer.testing.frames import decode_request, encode_response
from aioproducer.wire.api import ApiKey, is_flexible
from aioproducer.wire.schema import codec, message

VERSIONS: Final = {
    ApiKey.PRODUCE: 12,
    ApiKey.METADATA: 12,
    ApiKey.API_VERSIONS: 3,
    ApiKey.INIT_PRODUCER_ID: 4,
}
_BUFFER: Final = 16 * 2**20
_SPARE: Final = 4 * 2**20  # a frame is shorter
_SIZE: Final = struct.Struct(">i")
_COUNT_AT: Final = 57  # of records, in a batch's header


class Stub(asyncio.BufferedProtocol):
    """Serves one connection."""

    def __init__(self, port: int, partitions: int, ends: defaultdict[tuple[str, int], int]) -> None:
        self._port = port
        self._partitions = partitions
        self._ends = ends
        self._buffer = memoryview(bytearray(_BUFFER))
        self._begin = self._filled = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def get_buffer(self, _hint: int) -> memoryview:
        if _BUFFER - self._filled < _SPARE:
            rest = self._filled - self._begin
            self._buffer[:rest] = bytes(self._buffer[self._begin : self._filled])
            self._begin, self._filled = 0, rest
        return self._buffer[self._filled :]

    def buffer_updated(self, count: int) -> None:
        self._filled += count
        while self._filled - self._begin >= 4:
            end = self._begin + 4 + _SIZE.unpack_from(self._buffer, self._begin)[0]
            if end > self._filled:
                return
            self._answer(self._buffer[self._begin + 4 : end])
            self._begin = end
        if self._begin == self._filled:
            self._begin = self._filled = 0

    def _answer(self, frame: memoryview) -> None:
        header = decode_request(frame)
        key = ApiKey(header.key)
        name = {
            ApiKey.PRODUCE: "Produce",
            ApiKey.METADATA: "Metadata",
            ApiKey.INIT_PRODUCER_ID: "InitProducerId",
        }.get(key, "ApiVersions")
        request = codec(f"{name}.request", header.version).decode(frame, header.offset)
        answer = getattr(self, f"_{name}")(request)
        body = codec(f"{name}.response", header.version).encode(answer)
        self._transport.writelines(
            encode_response(key, header.version, header.correlation_id, body)
        )

    def _Produce(self, request: Any) -> Any:
        topics = [
            message(
                "Produce.response.topics",
                name=topic.name,
                partitions=[self._placed(topic.name, one) for one in topic.partitions],
            )
            for topic in request.topics
        ]
        return message("Produce.response", topics=topics)

    def _placed(self, topic: str, asked: Any) -> Any:
        begin = self._ends[topic, asked.index]
        self._ends[topic, asked.index] += _SIZE.unpack_from(asked.records, _COUNT_AT)[0]
        return message("Produce.response.topics.partitions", index=asked.index, base_offset=begin)

    def _Metadata(self, request: Any) -> Any:
        part = "Metadata.response.topics.partitions"
        parts = [
            message(part, partition_index=at, leader_id=1, leader_epoch=0)
            for at in range(self._partitions)
        ]
        topics = [
            message(
                "Metadata.response.topics",
                name=topic.name,
                topic_id=topic.name.encode()[:16].ljust(16, b"."),
                partitions=parts,
            )
            for topic in request.topics or ()
        ]
        broker = message("Metadata.response.brokers", node_id=1, host="127.0.0.1", port=self._port)
        return message(
            "Metadata.response", brokers=[broker], cluster_id="stub", controller_id=1, topics=topics
        )

    def _InitProducerId(self, _request: Any) -> Any:
        return message("InitProducerId.response", producer_id=1, producer_epoch=0)

    def _ApiVersions(self, _request: Any) -> Any:
        one = "ApiVersions.response.api_keys"
        return message(
            "ApiVersions.response",
            api_keys=[
                message(one, api_key=int(key), max_version=top) for key, top in VERSIONS.items()
            ],
        )


async def serve(partitions: int) -> None:
    loop = asyncio.get_running_loop()
    ends: defaultdict[tuple[str, int], int] = defaultdict(int)
    port = 0
    server = await loop.create_server(lambda: Stub(port, partitions, ends), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    assert is_flexible(ApiKey.PRODUCE, VERSIONS[ApiKey.PRODUCE])
    uvloop.run(serve(int(sys.argv[1])))
