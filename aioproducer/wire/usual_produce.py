"""The fast codecs of a Produce request and of the usual answer to it, which reuse prepared bytes.

Most bytes of a request, and of an answer, are the same each time. The prepared bytes are cut, once for each version, from the output of
the schema's codecs for a model message. So this module defines no field itself. The schema's codec reads an answer that is not the usual
one: an error, a throttle time, a new leader.

With the schema's codecs alone, these two messages take a tenth of the time of a request of six small batches.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aioproducer.errors import ProtocolError
from aioproducer.named_tuples import NamedTuple
from aioproducer.wire.primitives import JOINED, read_uvarint, uvarint
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioproducer.interfaces import Buffer

__all__ = ["FIRST", "FIRST_WITH_TOPIC_IDS", "Acknowledged", "encode", "read"]

# The answer for a batch that was written: topic (name, or id from version 13 on), partition, base offset, log append time in ms. A time of
# -1 means that the records keep their own timestamps. It is a plain tuple, because `read` makes one for each batch.
Acknowledged: TypeAlias = "tuple[str | bytes, int, int, int]"
# The first version of Produce with varint lengths, and with tagged fields at the end of each structure.
FIRST: Final = 9
# The first version in which topics have ids instead of names (KIP-516).
FIRST_WITH_TOPIC_IDS: Final = 13
_ID_SIZE: Final = 16
_pack_index: Final = struct.Struct(">i").pack
# Partition, error, base offset, log append time, log start offset.
_PARTITION: Final = ">ihqqq"
# The variable values of the model, which has two topics; the first topic has two partitions.
_NAMES: Final = ("model topic", "another topic")
_IDS: Final = (b"a model topic id", b"another topic id")
_RECORDS: Final = (b"some records", b"other records", b"more records")
_NUMBERS: Final = tuple(
    (0x1BAD_CAF0 + at, 0, 0x0123_4567_89AB_CDE0 + at, 0x1357_9BDF_0246_8AC0 + at, 0x2468_ACE0_1357_9BD0 + at) for at in range(3)
)
# Bytes of a count in the model.
_COUNTED: Final = 1


class _Bytes(NamedTuple):
    """Holds the constant bytes before all topics, after each partition, after each topic's partitions, and after all topics."""

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
    """Encode a request to the same bytes as the schema's codec. Returns its buffers; a large payload is one of them, not copied.

    Args:
        version: the version of Produce, `FIRST` or later.
        acks: the request's field.
        timeout_ms: the request's field.
        transactional_id: the request's field.
        topics: the partitions by topic name, or by topic id from version 13 on. A partition is its number, and its batch's header and
            payload.
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
    """Read an answer that begins at `offset` and ends with the frame.

    Returns the answer for each partition, or None if the answer is not the usual one.
    """
    (_, partition_end, topic_end, end), layout = _answer(version)
    has_ids = version >= FIRST_WITH_TOPIC_IDS
    told: list[Acknowledged] = []
    try:
        count, at = read_uvarint(frame, offset)
        for _ in range(count - 1):
            topic, at = (frame[at : at + _ID_SIZE], at + _ID_SIZE) if has_ids else _read_name(frame, at)
            partitions, at = read_uvarint(frame, at)
            stop = at + (partitions - 1) * layout.size
            if not partitions or not frame.startswith(topic_end, stop):
                return None
            for index, error, base_offset, appended_ms, _, rest in layout.iter_unpack(frame[at:stop]):
                if error or rest != partition_end:
                    return None
                told.append((topic, index, base_offset, appended_ms))
            at = stop + len(topic_end)
    # the schema's codec raises the error for such an answer
    except (IndexError, UnicodeDecodeError, ProtocolError):
        return None
    return told if frame[at:] == end else None


def _read_name(frame: bytes, offset: int) -> tuple[str, int]:
    """Return the topic's name that begins at `offset`, and the offset after it.

    Raises:
        ProtocolError: the name is null.
        UnicodeDecodeError: the name is not UTF-8.
    """
    size, at = read_uvarint(frame, offset)
    if not size:
        raise ProtocolError("a topic without a name")
    end = at + size - 1
    return frame[at:end].decode(), end


def _encoded(topic: str | bytes) -> bytes:
    """Return the bytes of a topic's name or id in a message."""
    if isinstance(topic, bytes):
        return topic
    name = topic.encode()
    return uvarint(len(name) + 1) + name


# one entry for each producer, because each transactional producer has an id of its own
@lru_cache(maxsize=1024)
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
    """Return the constant bytes of an answer, and the layout of one partition with the constant bytes after it."""
    names = ("index", "error_code", "base_offset", "log_append_time_ms", "log_start_offset")
    partitions = [message("Produce.response.topics.partitions", **dict(zip(names, numbers, strict=True))) for numbers in _NUMBERS]
    model = message("Produce.response", topics=_topics("Produce.response.topics", partitions))
    differing = [struct.pack(_PARTITION, *numbers) for numbers in _NUMBERS]
    cut = _cut(b"".join(codec("Produce.response", version).encode(model)), version, differing)
    return cut, struct.Struct(f"{_PARTITION}{len(cut.partition_end)}s")


def _topics(name: str, partitions: list[Any]) -> list[Any]:
    """Return the topics of a model: the first has two partitions, the second has one."""
    parts = (partitions[:2], partitions[2:])
    return [message(name, name=_NAMES[at], topic_id=_IDS[at], partitions=parts[at]) for at in range(2)]


def _cut(model: bytes, version: int, differing: Sequence[bytes]) -> _Bytes:
    """Return the constant bytes around a model's topics and partitions.

    The search runs from the end, because a transactional id, which comes first, may contain any of the values.
    """
    first, second = map(_encoded, _IDS if version >= FIRST_WITH_TOPIC_IDS else _NAMES)
    before, _, ends = model.rpartition(differing[2])
    before, _, _ = before.rpartition(second)
    before, _, behind_both = before.rpartition(differing[1])
    before, _, partition_end = before.rpartition(differing[0])
    begin = before.rpartition(first)[0][:-_COUNTED]
    topic_end = behind_both[len(partition_end) :]
    return _Bytes(begin, partition_end, topic_end, ends[len(behind_both) :])
