"""The golden vectors of vectors.json as values: what Kafka's own classes wrote, and of what."""

from __future__ import annotations

import functools
import json
import pathlib
from typing import TYPE_CHECKING, Any, NamedTuple

from aioproducer.model import Compression
from aioproducer.records.compression import compress
from aioproducer.records.message_set import (
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Message,
    encode_message_set,
    message,
    read_messages,
    wrapper,
)
from aioproducer.records.reader import MAX_DECOMPRESSED, Record
from aioproducer.records.record_batch import encode_headers, encode_record, header, placed
from aioproducer.testing.record_batches import RecordBatch, read_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_LEADER_EPOCH = -1
FILE = pathlib.Path(__file__).with_name("vectors.json")


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
    return Record(
        offset,
        timestamp,
        unhex(key),
        unhex(value),
        tuple((bytes.fromhex(name).decode(), unhex(data)) for name, data in headers),
    )


@functools.cache
def cases() -> dict[str, Case]:
    """By name."""
    told = json.loads(FILE.read_text())["cases"]
    return {
        name: Case(
            case["base_offset"],
            case["log_append_time"],
            [record(case["base_offset"] + i, *row) for i, row in enumerate(case["records"])],
        )
        for name, case in told.items()
    }


@functools.cache
def vectors() -> tuple[Vector, ...]:
    """All of them, refused ones too."""
    return tuple(
        Vector(
            one["magic"],
            Compression[one["codec"].upper()],
            one["case"],
            unhex(one.get("hex")),
            one.get("refused"),
        )
        for one in json.loads(FILE.read_text())["vectors"]
    )


def written() -> list[Vector]:
    """Those that a builder wrote: not control batches, nor what compaction leaves."""
    return [vector for vector in vectors() if vector.case in cases() and vector.raw is not None]


def build(magic: int, codec: Compression, case: Case) -> bytes:
    """The same by our functions, those of a producer where a producer writes such bytes."""
    if magic == 2:
        return build_batch(codec, case)
    if (case.base_offset, case.log_append_time) == (0, NO_TIMESTAMP):
        return encode_message_set(magic, codec, case.records)
    is_appended = case.log_append_time != NO_TIMESTAMP
    attributes = LOG_APPEND_TIME if is_appended else 0
    first = case.base_offset if magic and codec is not Compression.NONE else 0
    times = [case.log_append_time if is_appended else one.timestamp_ms for one in case.records]
    inner = b"".join(
        message(magic, one.offset - first, time, one.key, one.value, attributes)
        for one, time in zip(case.records, times, strict=True)
    )
    if codec is Compression.NONE:
        return inner
    return wrapper(magic, codec, inner, case.records[-1].offset, max(times), attributes=attributes)


def build_batch(codec: Compression, case: Case, level: int | None = None) -> bytes:
    """A batch of magic 2, as its producer writes it and its broker changes it."""
    if not case.records:
        return b""
    times = [one.timestamp_ms for one in case.records]
    records = [
        encode_record(
            number, one.timestamp_ms - times[0], one.key, one.value, encode_headers(one.headers)
        )
        for number, one in enumerate(case.records)
    ]
    payload = compress(codec, b"".join(records), level)
    is_appended = case.log_append_time != NO_TIMESTAMP
    attributes, latest = (
        (codec | LOG_APPEND_TIME, case.log_append_time) if is_appended else (int(codec), max(times))
    )
    return (
        placed(
            header(payload, len(records), attributes, times[0], latest),
            case.base_offset,
            NO_LEADER_EPOCH,
        )
        + payload
    )


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
    from aioproducer.records.message_set import mend

    if codec is Compression.NONE and magic < 2:
        return raw
    payload = raw[(26, 34, 61)[magic] :]
    return decompress(
        codec,
        mend(payload) if (magic, codec) == (0, Compression.LZ4) else payload,
        MAX_DECOMPRESSED,
    )
