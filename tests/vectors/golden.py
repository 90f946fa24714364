"""The golden vectors of vectors.json as values: what Kafka's own classes wrote, and of what."""

from __future__ import annotations

import functools
import json
import pathlib
from typing import TYPE_CHECKING, Any, NamedTuple

from aioproducer.model import Compression
from aioproducer.records.message_set_reader import Message, read_messages
from aioproducer.records.reader import MAX_DECOMPRESSED, Record, RecordBatch, read_batches
from aioproducer.records.record_batch_writer import BatchFields, RecordBatchWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE = pathlib.Path(__file__).with_name("vectors.json")
NO_TIMESTAMP = -1


class Case(NamedTuple):
    """What was written. `log_append_time` is -1 where the producer's time counts."""

    base_offset: int
    log_append_time: int
    records: list[Record]


class Vector(NamedTuple):
    """A case in one format: its bytes, or why Kafka writes none."""

    magic: int
    codec: Compression
    case: str
    raw: bytes | None
    refused: str | None

    @property
    def id(self) -> str:
        """For pytest."""
        return f"v{self.magic} {self.codec.name.lower()} {self.case}"


def unhex(value: Any) -> bytes | None:
    """Bytes, as vectors.json and the Java side write them."""
    if value is None:
        return None
    return bytes.fromhex(value[0]) * value[1] if isinstance(value, list) else bytes.fromhex(value)


def record(offset: int, timestamp: int, key: Any, value: Any, headers: Any) -> Record:
    """A record of it."""
    return Record(offset, timestamp, unhex(key), unhex(value), tuple((bytes.fromhex(name).decode(), unhex(data)) for name, data in headers))


@functools.cache
def cases() -> dict[str, Case]:
    """By name."""
    told = json.loads(FILE.read_text())["cases"]
    return {
        name: Case(
            case["base_offset"], case["log_append_time"], [record(case["base_offset"] + i, *row) for i, row in enumerate(case["records"])]
        )
        for name, case in told.items()
    }


@functools.cache
def vectors() -> tuple[Vector, ...]:
    """All of them, refused ones too."""
    return tuple(
        Vector(one["magic"], Compression[one["codec"].upper()], one["case"], unhex(one.get("hex")), one.get("refused"))
        for one in json.loads(FILE.read_text())["vectors"]
    )


def written() -> list[Vector]:
    """Those that a builder wrote: not control batches, nor what compaction leaves."""
    return [vector for vector in vectors() if vector.case in cases() and vector.raw is not None]


def build(magic: int, codec: Compression, case: Case) -> bytes:
    """The same by our builder."""
    builder = RecordBatchWriter(
        magic=magic,
        codec=codec,
        base_offset=case.base_offset,
        fields=BatchFields(log_append_time_ms=case.log_append_time),
    )
    for one in case.records:
        builder.append(one.timestamp_ms, one.key, one.value, one.headers)
    return builder.build()


def expected(magic: int, case: Case) -> list[Record]:
    """What a reader must make of it: magic 0 has no timestamps, and an appending broker's own stands for every record's."""
    records = case.records
    if magic == 0:
        return [one._replace(timestamp_ms=NO_TIMESTAMP) for one in records]
    if case.log_append_time != NO_TIMESTAMP:
        return [one._replace(timestamp_ms=case.log_append_time) for one in records]
    return records


def entries(magic: int, raw: bytes) -> Sequence[RecordBatch | Message]:
    """What stands in a log: batches, or messages."""
    return list(read_messages(raw) if magic < 2 else read_batches(raw))


def area(magic: int, codec: Compression, raw: bytes) -> bytes:
    """What was compressed, or would have been."""
    from aioproducer.records.compression import decompress
    from aioproducer.records.lz4_header import mend

    if codec is Compression.NONE and magic < 2:
        return raw
    payload = raw[(26, 34, 61)[magic] :]
    return decompress(codec, mend(payload) if (magic, codec) == (0, Compression.LZ4) else payload, MAX_DECOMPRESSED)
