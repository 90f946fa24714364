"""Requests and answers by ready-made bytes are the schema's, byte for byte; and what is not usual is left to the schema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ProtocolError
from aioproducer.wire import lone
from aioproducer.wire.primitives import JOINED
from aioproducer.wire.schema import codec, message

VERSIONS = range(lone.FIRST, 14)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPICS = st.text(min_size=1, max_size=249)  # names of some languages are longer in bytes than one byte of length can say
IDS = st.binary(min_size=16, max_size=16)
HEADER = bytes(range(61))


def named(version: int, name: str, topic_id: bytes) -> str | bytes:
    """A topic as a request of that version has it."""
    return name if version < 13 else topic_id


def answer(version: int, name: str, topic_id: bytes, /, *, throttle_time_ms: int = 0, **partition: Any) -> bytes:
    """As the schema writes it."""
    one = message("Produce.response.topics.partitions", **partition)
    topic = message("Produce.response.topics", name=name, topic_id=topic_id, partitions=[one])
    return b"".join(
        codec("Produce.response", version).encode(message("Produce.response", topics=[topic], throttle_time_ms=throttle_time_ms))
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(
    acks=st.integers(-1, 1),
    timeout_ms=INT32,
    transactional_id=st.none() | st.text() | st.sampled_from(["model topic", "its records", "\x0cmodel topic"]),
    name=TOPICS | st.just("model topic"),
    topic_id=IDS,
    partition=INT32,
    payload=st.binary(max_size=300) | st.integers(900, 1100).map(bytes) | st.integers(16_300, 16_400).map(bytes),
)
def test_a_request_is_the_schemas(
    version: int, acks: int, timeout_ms: int, transactional_id: str | None, name: str, topic_id: bytes, partition: int, payload: bytes
) -> None:
    """Whatever it holds."""
    one = message("Produce.request.topics.partitions", index=partition, records=(HEADER, payload))
    topic = message("Produce.request.topics", name=name, topic_id=topic_id, partitions=[one])
    whole = message("Produce.request", transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topics=[topic])
    place = named(version, name, topic_id)
    chunks = lone.encode(version, acks, timeout_ms, transactional_id, place, partition, HEADER, memoryview(payload))
    assert b"".join(chunks) == b"".join(codec("Produce.request", version).encode(whole))


@pytest.mark.parametrize(("size", "chunks"), [(1, 1), (JOINED - 1, 1), (JOINED, 3), (16_384, 3)])
def test_what_is_copied(size: int, chunks: int) -> None:
    """A large payload leaves as the object that came in; a small one joins what is around it."""
    payload = bytes(size)
    request = lone.encode(12, -1, 30_000, None, "orders", 3, HEADER, payload)
    assert len(request) == chunks
    assert any(chunk is payload for chunk in request) == (chunks > 1)


@pytest.mark.parametrize("version", VERSIONS)
@given(name=TOPICS, topic_id=IDS, partition=INT32, base_offset=INT64, appended_ms=INT64, start=INT64, before=st.binary(max_size=9))
def test_the_usual_answer_is_read(
    version: int, name: str, topic_id: bytes, partition: int, base_offset: int, appended_ms: int, start: int, before: bytes
) -> None:
    """Base offset and time, wherever in a frame it begins."""
    frame = before + answer(
        version, name, topic_id, index=partition, base_offset=base_offset, log_append_time_ms=appended_ms, log_start_offset=start
    )
    assert lone.read(version, named(version, name, topic_id), partition, frame, len(before)) == (base_offset, appended_ms)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "unusual",
    [
        {"index": 3, "error_code": 6},
        {"index": 4},
        {"index": 3, "throttle_time_ms": 1},
        {"index": 3, "error_message": "no"},
        {"index": 3, "error_message": ""},
        {"index": 3, "record_errors": [message("Produce.response.topics.partitions.record_errors", batch_index=1)]},
    ],
    ids=str,
)
def test_what_is_not_usual_is_left(version: int, unusual: dict[str, Any]) -> None:
    """An error, another partition, a throttle, words, refused records."""
    assert lone.read(version, named(version, "orders", bytes(16)), 3, answer(version, "orders", bytes(16), **unusual), 0) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_any_byte_may_be_another(version: int) -> None:
    """One bit is turned, or the end is missing, or there is more: what is read then is what the schema reads, or it is left to that."""
    topic_id = bytes(range(16))
    place = named(version, "orders", topic_id)
    whole = answer(version, "orders", topic_id, index=3, base_offset=17, log_append_time_ms=18, log_start_offset=1)
    bent = [bytes((*whole[:at], whole[at] ^ 1 << bit, *whole[at + 1 :])) for at in range(len(whole)) for bit in range(8)]
    bent += [whole[:end] for end in range(len(whole))] + [whole + more for more in (b"\0", whole, whole[-9:])]
    numbers = 0
    for frame in bent:
        told = lone.read(version, place, 3, frame, 0)
        if told is None:
            continue
        numbers += 1
        read = codec("Produce.response", version).decode(frame)
        (topic,) = read.topics
        (partition,) = topic.partitions
        assert (topic.name or topic.topic_id) == place
        assert (partition.index, partition.error_code, partition.error_message, read.throttle_time_ms) == (3, 0, None, 0)
        assert told == (partition.base_offset, partition.log_append_time_ms)
    assert numbers == 3 * 64  # the bits of the three numbers
    with pytest.raises(ProtocolError):
        codec("Produce.response", version).decode(whole[:-1])
