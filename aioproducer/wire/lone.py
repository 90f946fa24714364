"""A Produce request of a single batch, and the usual answer to it, by ready-made bytes: most of either is the same each time.

Those bytes are what the schema's own codecs write for a model, once for each version: nothing here says what a field means. An answer
that is not the usual one (an error, a throttle, a new leader) is the schema's to read.

Who sends one record at a time, and waits for it, has a seventh of its bytecodes in these two messages otherwise. Knows nothing of batches.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.wire.primitives import JOINED, uvarint
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from aioproducer.interfaces import Buffer

__all__ = ["FIRST", "FIRST_WITH_TOPIC_IDS", "encode", "read"]

FIRST: Final = 9  # version of Produce that can be written so: lengths are varints from then on
FIRST_WITH_TOPIC_IDS: Final = 13  # instead of names (KIP-516)
_pack_index: Final = struct.Struct(">i").pack
_TOLD: Final = struct.Struct(">ihqqq")  # partition, error, base offset, time of the append, first offset of the log
_TOLD_SIZE: Final = _TOLD.size
_unpack_told: Final = _TOLD.unpack_from
# what differs, in a model
_NAME: Final = "model topic"
_ID: Final = b"a model topic id"
_RECORDS: Final = b"its records"
_MODEL: Final = (0x1BAD_CAFE, 0, 0x0123_4567_89AB_CDEF, 0x1357_9BDF_0246_8ACE, 0x2468_ACE0_1357_9BDF)


class _Bytes(NamedTuple):
    """What stands before the topic, between that and the partition's number, and behind all that differs."""

    head: bytes
    middle: bytes
    tail: bytes


def encode(
    version: int,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
    topic: str | bytes,
    partition: int,
    header: bytes,
    payload: Buffer,
) -> list[Buffer]:
    """The request, as the schema's codec writes it; a large payload is not copied. `topic`: by name, or by id from 13 on."""
    head, middle, tail = _request(version, acks, timeout_ms, transactional_id)
    size = len(header) + len(payload)
    begin = head + _place(topic) + middle + _pack_index(partition) + uvarint(size + 1) + header
    if len(payload) < JOINED:
        return [b"".join((begin, payload, tail))]
    return [begin, payload, tail]


def read(version: int, topic: str | bytes, partition: int, frame: bytes, offset: int) -> tuple[int, int] | None:
    """Base offset and time of the append (-1: the records' own) of the answer that begins at `offset`; None: it is not the usual one."""
    head, middle, tail = _answer(version)
    begin = head + _place(topic) + middle
    at = offset + len(begin)
    if len(frame) != at + _TOLD_SIZE + len(tail) or not (frame.startswith(begin, offset) and frame.endswith(tail)):
        return None
    index, error, base_offset, appended_ms, _ = _unpack_told(frame, at)
    return None if error or index != partition else (base_offset, appended_ms)


def _place(topic: str | bytes) -> bytes:
    """A topic as it is written: by name, or by id."""
    if isinstance(topic, bytes):
        return topic
    name = topic.encode()
    return uvarint(len(name) + 1) + name


@lru_cache(maxsize=1024)  # one for each producer: of those with transactions there may be many
def _request(version: int, acks: int, timeout_ms: int, transactional_id: str | None) -> _Bytes:
    partition = message("Produce.request.topics.partitions", index=_MODEL[0], records=_RECORDS)
    topic = message("Produce.request.topics", name=_NAME, topic_id=_ID, partitions=[partition])
    model = message("Produce.request", transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topics=[topic])
    differs = _pack_index(_MODEL[0]) + uvarint(len(_RECORDS) + 1) + _RECORDS
    return _cut(b"".join(codec("Produce.request", version).encode(model)), version, differs)


@lru_cache(maxsize=64)
def _answer(version: int) -> _Bytes:
    names = ("index", "error_code", "base_offset", "log_append_time_ms", "log_start_offset")
    partition = message("Produce.response.topics.partitions", **dict(zip(names, _MODEL, strict=True)))
    topic = message("Produce.response.topics", name=_NAME, topic_id=_ID, partitions=[partition])
    model = message("Produce.response", topics=[topic])
    return _cut(b"".join(codec("Produce.response", version).encode(model)), version, _TOLD.pack(*_MODEL))


def _cut(model: bytes, version: int, differs: bytes) -> _Bytes:
    """What is around the topic and around what `differs`; from behind, as a transactional id may be anything."""
    before, _, tail = model.rpartition(differs)
    head, _, middle = before.rpartition(_place(_ID if version >= FIRST_WITH_TOPIC_IDS else _NAME))
    return _Bytes(head, middle, tail)
