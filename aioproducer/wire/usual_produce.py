"""Encode a Produce request, and read the usual answer to it, by ready-made bytes: most of either is the same each time.

Those bytes are cut from what the schema's own codecs write for a model, once for each version: nothing here says what a field means. An
answer that is not the usual one (an error, a throttle, a new leader) is the schema's to read.

By the schema's codecs alone these two messages take a tenth of a request of six small batches. Knows nothing of batches.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from aioproducer.errors import ProtocolError
from aioproducer.wire.primitives import JOINED, read_uvarint, uvarint
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioproducer.interfaces import Buffer

__all__ = ["FIRST", "FIRST_WITH_TOPIC_IDS", "Acknowledged", "encode", "read"]

# Of a batch that was written: topic (by name, or by id from version 13 on), partition, base offset, and the time of the append in ms; -1:
# the records keep their own. A plain tuple: one is made for each batch.
Acknowledged: TypeAlias = "tuple[str | bytes, int, int, int]"
# Version of Produce from which on lengths are varints, and each structure ends with its tagged fields.
FIRST: Final = 9
# A version in which topics have ids instead of names (KIP-516).
FIRST_WITH_TOPIC_IDS: Final = 13
_ID_SIZE: Final = 16
_pack_index: Final = struct.Struct(">i").pack
# Partition, error, base offset, time of the append, first offset of the log.
_PARTITION: Final = ">ihqqq"
# What differs, in a model of two topics, of which the first has two partitions.
_NAMES: Final = ("model topic", "another topic")
_IDS: Final = (b"a model topic id", b"another topic id")
_RECORDS: Final = (b"some records", b"other records", b"more records")
_NUMBERS: Final = tuple(
    (0x1BAD_CAF0 + at, 0, 0x0123_4567_89AB_CDE0 + at, 0x1357_9BDF_0246_8AC0 + at, 0x2468_ACE0_1357_9BD0 + at) for at in range(3)
)
_COUNTED: Final = 1  # bytes of a count, in a model


class _Bytes(NamedTuple):
    """What stands before all topics, behind each partition, behind each topic's partitions, and behind all topics."""

    begin: bytes
    partition_end: bytes
    topic_end: bytes
    end: bytes


def encode(
    version: int,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
    topics: Mapping[str | bytes, Sequence[tuple[int, bytes, Buffer]]],
) -> list[Buffer]:
    """Encode a request as the schema's codec does. Returns its buffers; a large payload is one of them, not copied.

    Args:
        version: of Produce, `FIRST` or later.
        acks: the request's.
        timeout_ms: likewise.
        transactional_id: likewise.
        topics: by name, or by id from version 13 on; of each of its partitions the number, and the header and payload of its batch.
    """
    begin, partition_end, topic_end, end = _request(version, acks, timeout_ms, transactional_id)
    buffers: list[Buffer] = []
    small: list[Buffer] = [begin, uvarint(len(topics) + 1)]
    for topic, partitions in topics.items():
        small += (_encoded(topic), uvarint(len(partitions) + 1))
        for index, header, payload in partitions:
            small += (_pack_index(index), uvarint(len(header) + len(payload) + 1), header)
            if len(payload) < JOINED:
                small.append(payload)
            else:
                buffers += (b"".join(small), payload)
                small = []
            small.append(partition_end)
        small.append(topic_end)
    small.append(end)
    buffers.append(b"".join(small))
    return buffers


def read(version: int, frame: bytes, offset: int) -> list[Acknowledged] | None:
    """Read an answer that begins at `offset` and ends with the frame. Returns what it says of each partition; None: it is not the usual one."""
    (_, partition_end, topic_end, end), layout = _answer(version)
    has_ids = version >= FIRST_WITH_TOPIC_IDS
    told: list[Acknowledged] = []
    try:
        count, at = read_uvarint(frame, offset)
        for _ in range(count - 1):
            size, at = (_ID_SIZE + 1, at) if has_ids else read_uvarint(frame, at)
            name = frame[at : at + size - 1]
            topic = name if has_ids else name.decode()
            partitions, at = read_uvarint(frame, at + size - 1)
            stop = at + (partitions - 1) * layout.size
            if not size or not partitions or not frame.startswith(topic_end, stop):
                return None
            for index, error, base_offset, appended_ms, _, rest in layout.iter_unpack(frame[at:stop]):
                if error or rest != partition_end:
                    return None
                told.append((topic, index, base_offset, appended_ms))
            at = stop + len(topic_end)
    except (IndexError, UnicodeDecodeError, ProtocolError):  # the schema's codec says what is wrong with it
        return None
    return told if len(frame) == at + len(end) and frame.endswith(end) else None


def _encoded(topic: str | bytes) -> bytes:
    """A topic as it is written: by name, or by id."""
    if isinstance(topic, bytes):
        return topic
    name = topic.encode()
    return uvarint(len(name) + 1) + name


@lru_cache(maxsize=1024)  # one for each producer: of those with transactions there may be many
def _request(version: int, acks: int, timeout_ms: int, transactional_id: str | None) -> _Bytes:
    partitions = [
        message("Produce.request.topics.partitions", index=numbers[0], records=records)
        for numbers, records in zip(_NUMBERS, _RECORDS, strict=True)
    ]
    topics = _topics("Produce.request.topics", partitions)
    model = message("Produce.request", transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topics=topics)
    differing = [_pack_index(numbers[0]) + uvarint(len(records) + 1) + records for numbers, records in zip(_NUMBERS, _RECORDS, strict=True)]
    return _cut(b"".join(codec("Produce.request", version).encode(model)), version, differing)


@lru_cache(maxsize=64)
def _answer(version: int) -> tuple[_Bytes, struct.Struct]:
    """Those of an answer, and the layout of one partition with what is behind it."""
    names = ("index", "error_code", "base_offset", "log_append_time_ms", "log_start_offset")
    partitions = [message("Produce.response.topics.partitions", **dict(zip(names, numbers, strict=True))) for numbers in _NUMBERS]
    model = message("Produce.response", topics=_topics("Produce.response.topics", partitions))
    differing = [struct.pack(_PARTITION, *numbers) for numbers in _NUMBERS]
    cut = _cut(b"".join(codec("Produce.response", version).encode(model)), version, differing)
    return cut, struct.Struct(f"{_PARTITION}{len(cut.partition_end)}s")


def _topics(name: str, partitions: list[Any]) -> list[Any]:
    """The model's: two partitions in the first, one in the second."""
    parts = (partitions[:2], partitions[2:])
    return [message(name, name=_NAMES[at], topic_id=_IDS[at], partitions=parts[at]) for at in range(2)]


def _cut(model: bytes, version: int, differing: Sequence[bytes]) -> _Bytes:
    """What is around a model's topics and partitions; from behind, as a transactional id may be anything."""
    first, second = map(_encoded, _IDS if version >= FIRST_WITH_TOPIC_IDS else _NAMES)
    before, _, ends = model.rpartition(differing[2])
    before, _, _ = before.rpartition(second)
    before, _, behind_both = before.rpartition(differing[1])
    before, _, partition_end = before.rpartition(differing[0])
    begin = before.rpartition(first)[0][:-_COUNTED]
    topic_end = behind_both[len(partition_end) :]
    return _Bytes(begin, partition_end, topic_end, ends[len(behind_both) :])
