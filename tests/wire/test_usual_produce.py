"""Requests and answers by ready-made bytes are the schema's, byte for byte; and what is not usual is left to the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ProtocolError
from aioproducer.wire import usual_produce
from aioproducer.wire.primitives import JOINED, uvarint
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSIONS = range(usual_produce.FIRST, 14)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# Names of some languages are longer in bytes than one byte of length can say.
TOPICS = st.text(min_size=1, max_size=249) | st.sampled_from(["model topic", "another topic"])
HEADER = bytes(range(61))
PAYLOADS = st.binary(max_size=300) | st.integers(900, 1100).map(bytes) | st.integers(16_300, 16_400).map(bytes)
ANSWERED = st.tuples(INT32, INT64, INT64, INT64)  # partition, base offset, time of the append, first offset of the log
SOME_TOPICS = st.lists(TOPICS, unique=True, max_size=4)


def id_of(name: str) -> bytes:
    """A topic's id."""
    return name.encode()[:16].ljust(16, b".")


def named(version: int, name: str) -> str | bytes:
    """A topic as a request of that version has it."""
    return name if version < usual_produce.FIRST_WITH_TOPIC_IDS else id_of(name)


def answer(version: int, partitions: Mapping[str, Sequence[Mapping[str, Any]]], *, throttle_time_ms: int = 0) -> bytes:
    """Return the answer's bytes as the schema writes them."""
    topics = [
        message(
            "Produce.response.topics",
            name=name,
            topic_id=id_of(name),
            partitions=[message("Produce.response.topics.partitions", **fields) for fields in some],
        )
        for name, some in partitions.items()
    ]
    return b"".join(
        codec("Produce.response", version).encode(message("Produce.response", topics=topics, throttle_time_ms=throttle_time_ms))
    )


def written(index: int, base_offset: int, appended_ms: int, start: int) -> dict[str, int]:
    """Return the fields of a partition with a written batch."""
    return {"index": index, "base_offset": base_offset, "log_append_time_ms": appended_ms, "log_start_offset": start}


@pytest.mark.parametrize("version", VERSIONS)
@given(
    acks=st.integers(-1, 1),
    timeout_ms=INT32,
    transactional_id=st.none() | st.text() | st.sampled_from(["model topic", "some records", "\x0cmodel topic"]),
    topics=st.dictionaries(TOPICS, st.lists(st.tuples(INT32, PAYLOADS), max_size=3), max_size=3),
)
def test_a_request_is_the_schemas(
    version: int, acks: int, timeout_ms: int, transactional_id: str | None, topics: dict[str, list[tuple[int, bytes]]]
) -> None:
    """The request has the schema's bytes for any topics with some partitions each."""
    model = [
        message(
            "Produce.request.topics",
            name=name,
            topic_id=id_of(name),
            partitions=[message("Produce.request.topics.partitions", index=index, records=(HEADER, payload)) for index, payload in some],
        )
        for name, some in topics.items()
    ]
    whole = message("Produce.request", transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topics=model)
    given_topics = {
        named(version, name): [(index, HEADER, memoryview(payload)) for index, payload in some] for name, some in topics.items()
    }
    if len(given_topics) == len(topics):  # ids may be alike where names are not
        buffers = usual_produce.encode(version, acks, timeout_ms, transactional_id, given_topics)
        assert b"".join(buffers) == b"".join(codec("Produce.request", version).encode(whole))


@pytest.mark.parametrize(("sizes", "buffers"), [((1,), 1), ((JOINED - 1,), 1), ((JOINED,), 3), ((16_384, 5, 16_384), 5)])
def test_what_is_copied(sizes: tuple[int, ...], buffers: int) -> None:
    """A large payload leaves as the object that came in; a small one joins what is around it."""
    payloads = [bytes(size) for size in sizes]
    request = usual_produce.encode(12, -1, 30_000, None, {"orders": [(at, HEADER, payload) for at, payload in enumerate(payloads)]})
    assert len(request) == buffers
    assert [any(buffer is payload for buffer in request) for payload in payloads] == [size >= JOINED for size in sizes]


@pytest.mark.parametrize("version", VERSIONS)
@given(names=SOME_TOPICS, partitions=st.lists(ANSWERED, min_size=1, max_size=3), before=st.binary(max_size=9))
def test_the_usual_answer_is_read(version: int, names: list[str], partitions: list[tuple[int, int, int, int]], before: bytes) -> None:
    """Topic, partition, base offset and time of each batch, wherever in a frame the answer begins."""
    frame = before + answer(version, {name: [written(*one) for one in partitions] for name in names})
    assert usual_produce.read(version, frame, len(before)) == [(named(version, name), *one[:3]) for name in names for one in partitions]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    "unusual",
    [
        {"error_code": 6},
        {"error_message": "no"},
        {"error_message": ""},
        {"record_errors": [message("Produce.response.topics.partitions.record_errors", batch_index=1)]},
    ],
    ids=str,
)
def test_what_is_not_usual_is_left(version: int, at: int, unusual: dict[str, Any]) -> None:
    """An error, words, refused records, of whichever partition."""
    partitions: list[dict[str, Any]] = [written(3, 17, -1, 0), written(4, 18, -1, 0)]
    partitions[at].update(unusual)
    assert usual_produce.read(version, answer(version, {"orders": partitions}), 0) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_throttle_is_left(version: int) -> None:
    """An answer with a throttle time is not the usual answer, and `usual_produce` does not read it."""
    assert usual_produce.read(version, answer(version, {"orders": [written(3, 17, -1, 0)]}, throttle_time_ms=1), 0) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_any_byte_may_be_another(version: int) -> None:
    """One bit is turned, or the end is missing, or there is more: what is read then is what the schema reads, or it is left to that."""
    whole = answer(version, {"orders": [written(3, 17, 18, 1), written(4, 19, 20, 2)], "sales": [written(0, 21, 22, 3)]})
    bent = [bytes((*whole[:at], whole[at] ^ 1 << bit, *whole[at + 1 :])) for at in range(len(whole)) for bit in range(8)]
    bent += [whole[:end] for end in range(len(whole))] + [whole + more for more in (b"\0", whole, whole[-9:])]
    numbers = 0
    for frame in bent:
        told = usual_produce.read(version, frame, 0)
        if told is None:
            continue
        numbers += 1
        read = codec("Produce.response", version).decode(frame)
        assert read.throttle_time_ms == 0
        assert told == [
            (topic.name or topic.topic_id, partition.index, partition.base_offset, partition.log_append_time_ms)
            for topic in read.topics
            for partition in topic.partitions
        ]
        assert all(
            (one.error_code, one.error_message, one.record_errors) == (0, None, []) for topic in read.topics for one in topic.partitions
        )
    names = 2 * 16 if version >= usual_produce.FIRST_WITH_TOPIC_IDS else len("orders") + len("sales")
    # The bits of three partitions' four numbers, and those of the names that leave ASCII.
    assert numbers == 3 * (32 + 3 * 64) + names * (8 if version >= usual_produce.FIRST_WITH_TOPIC_IDS else 7)
    with pytest.raises(ProtocolError):
        codec("Produce.response", version).decode(whole[:-1])


@pytest.mark.parametrize(
    "frame",
    [b"", b"\xff" * 9, uvarint(2**34 - 1) + b"\0" * 40, uvarint(2) + b"\0" * 40, uvarint(2**34 - 1) + (b"\0" + b"\1\1\0") * 9],
    ids=["empty", "endless varint", "many topics", "no name", "topics without partitions"],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_hostile_answer_is_left(version: int, frame: bytes) -> None:
    """Counts that no frame can keep end the reading, at the frame's end at the latest."""
    assert usual_produce.read(version, frame, 0) is None
