"""Tests of `aioproducer.core.produce_exchange`: what an answer says of each batch, and its bytes.

Requests and answers by prepared bytes are the schema's, byte for byte; an answer that is not usual is left to the schema.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.core import produce_exchange
from aioproducer.core.partition_queues import PartitionQueue, TopicRouting
from aioproducer.core.producer_batch import ProducerBatch
from aioproducer.errors import BrokerError, ProtocolError
from aioproducer.wire.primitives import JOINED, uvarint
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSIONS = range(produce_exchange.FIRST_FLEXIBLE, 14)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# Names of some languages are longer in bytes than one byte of length can say.
TOPICS = st.text(min_size=1, max_size=249) | st.sampled_from(["model topic", "another topic"])
HEADER = bytes(range(61))
PAYLOADS = (
    st.binary(max_size=300)
    | st.integers(900, 1100).map(bytes)
    | st.integers(16_300, 16_400).map(bytes)
)
ANSWERED = st.tuples(
    INT32, INT64, INT64, INT64
)  # partition, base offset, time of the append, first offset of the log
SOME_TOPICS = st.lists(TOPICS, unique=True, max_size=4)


def asked(*partitions: int) -> produce_exchange.Asked:
    """A batch of two records for each partition of topic t."""
    routing = TopicRouting("t", bytes(16))
    batches = [
        ProducerBatch(PartitionQueue(routing, partition, 1, None), 1, None, None, expires_at=1.0)
        for partition in partitions
    ]
    for batch in batches:
        batch.count = 2
    return {("t", batch.queue.partition): batch for batch in batches}


def saying(**partition: object) -> object:
    one = message("Produce.response.topics.partitions", index=0, **partition)
    return message(
        "Produce.response", topics=[message("Produce.response.topics", name="t", partitions=[one])]
    )


@pytest.mark.parametrize("offset", [-1, 0, 17])
def test_an_error_with_an_offset(offset: int) -> None:
    """A leader that appended, and then lost the partition, gives the offset with the error (Kafka's DelayedProduce)."""
    (told,) = produce_exchange.read(asked(0), saying(error_code=6, base_offset=offset)).values()
    assert isinstance(told.error, BrokerError)
    assert (told.error.name, told.base_offset) == ("NOT_LEADER_OR_FOLLOWER", offset)


def test_a_brokers_texts_are_cut_and_printable() -> None:
    """They go to logs and errors: none of them forges a line of a log, or fills memory."""
    hostile = "bad\nERROR forged\x1b[2J" + "x" * 1000
    each = message(
        "Produce.response.topics.partitions.record_errors",
        batch_index=0,
        batch_index_error_message=hostile,
    )
    (told,) = produce_exchange.read(
        asked(0), saying(error_code=87, error_message=hostile, record_errors=[each])
    ).values()
    assert isinstance(told.error, BrokerError)
    for text in (told.error.message, told.refused[0]):
        assert text is not None
        assert text.startswith("bad ERROR forged [2Jxxx")
        assert len(text) == 500
    each.batch_index_error_message = None
    (told,) = produce_exchange.read(
        asked(0), saying(error_code=87, error_message=None, record_errors=[each])
    ).values()
    assert isinstance(told.error, BrokerError)
    assert (told.error.message, told.refused) == (None, {0: None})


def test_an_acknowledgement() -> None:
    """Its offset, and the broker's time where it stamps."""
    (told,) = produce_exchange.read(asked(0), saying(base_offset=5, log_append_time_ms=9)).values()
    assert told == produce_exchange.PartitionResponse(None, 5, 9)


def received(*indexes: int, topic: str = "t", version: int = 12) -> tuple[int, bytes, int]:
    """The version, the frame and the offset of an answer that acknowledges those partitions of a topic, each at ten times its number."""
    partitions = [
        message("Produce.response.topics.partitions", index=index, base_offset=10 * index)
        for index in indexes
    ]
    model = message(
        "Produce.response",
        topics=[message("Produce.response.topics", name=topic, partitions=partitions)],
    )
    return version, b"".join(codec("Produce.response", version).encode(model)), 0


def test_the_usual_answer_acknowledges_each_batch() -> None:
    """In whichever order the broker names the partitions."""
    batches = asked(0, 1, 2)
    told = produce_exchange.read_usual(batches, *received(2, 0, 1))
    assert told == {
        batch: produce_exchange.PartitionResponse(None, 10 * partition)
        for (_, partition), batch in batches.items()
    }


@pytest.mark.parametrize(
    "answered",
    [
        received(0, 1, 3),
        received(0, 1),
        received(0, 1, 1),
        received(0, 1, 2, 2),
        received(0, 1, 2, topic="u"),
        received(0, 1, 2, version=8),
    ],
    ids=[
        "another partition",
        "one is left out",
        "one twice for another",
        "one twice",
        "another topic",
        "an old version",
    ],
)
def test_an_answer_that_is_not_of_just_these_batches(answered: tuple[int, bytes, int]) -> None:
    """It is left to the schema, and to `read`, which says what is wrong with it."""
    assert produce_exchange.read_usual(asked(0, 1, 2), *answered) is None


# Prepared bytes


def id_of(name: str) -> bytes:
    """A topic's id."""
    return name.encode()[:16].ljust(16, b".")


def named(version: int, name: str) -> str | bytes:
    """A topic as a request of that version has it."""
    return name if version < produce_exchange.FIRST_WITH_TOPIC_IDS else id_of(name)


def answer(
    version: int,
    partitions: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    throttle_time_ms: int = 0,
) -> bytes:
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
        codec("Produce.response", version).encode(
            message("Produce.response", topics=topics, throttle_time_ms=throttle_time_ms)
        )
    )


def written(index: int, base_offset: int, appended_ms: int, start: int) -> dict[str, int]:
    """Return the fields of a partition with a written batch."""
    return {
        "index": index,
        "base_offset": base_offset,
        "log_append_time_ms": appended_ms,
        "log_start_offset": start,
    }


@pytest.mark.parametrize("version", VERSIONS)
@given(
    acks=st.integers(-1, 1),
    timeout_ms=INT32,
    transactional_id=st.none()
    | st.text()
    | st.sampled_from(["model topic", "some records", "\x0cmodel topic"]),
    topics=st.dictionaries(TOPICS, st.lists(st.tuples(INT32, PAYLOADS), max_size=3), max_size=3),
)
def test_a_request_is_the_schemas(
    version: int,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
    topics: dict[str, list[tuple[int, bytes]]],
) -> None:
    """The request has the schema's bytes for any topics with some partitions each."""
    model = [
        message(
            "Produce.request.topics",
            name=name,
            topic_id=id_of(name),
            partitions=[
                message("Produce.request.topics.partitions", index=index, records=(HEADER, payload))
                for index, payload in some
            ],
        )
        for name, some in topics.items()
    ]
    whole = message(
        "Produce.request",
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topics=model,
    )
    given_topics = {
        named(version, name): [(index, HEADER, memoryview(payload)) for index, payload in some]
        for name, some in topics.items()
    }
    if len(given_topics) == len(topics):  # ids may be alike where names are not
        buffers = produce_exchange.encode_topics(
            version, acks, timeout_ms, transactional_id, given_topics
        )
        assert b"".join(buffers) == b"".join(codec("Produce.request", version).encode(whole))


@pytest.mark.parametrize(
    ("sizes", "buffers"), [((1,), 1), ((JOINED - 1,), 1), ((JOINED,), 3), ((16_384, 5, 16_384), 5)]
)
def test_what_is_copied(sizes: tuple[int, ...], buffers: int) -> None:
    """A large payload leaves as the object that came in; a small one joins what is around it."""
    payloads = [bytes(size) for size in sizes]
    request = produce_exchange.encode_topics(
        12,
        -1,
        30_000,
        None,
        {"orders": [(at, HEADER, payload) for at, payload in enumerate(payloads)]},
    )
    assert len(request) == buffers
    assert [any(buffer is payload for buffer in request) for payload in payloads] == [
        size >= JOINED for size in sizes
    ]


@pytest.mark.parametrize("version", VERSIONS)
@given(
    names=SOME_TOPICS,
    partitions=st.lists(ANSWERED, min_size=1, max_size=3),
    before=st.binary(max_size=9),
)
def test_the_usual_answer_is_read(
    version: int, names: list[str], partitions: list[tuple[int, int, int, int]], before: bytes
) -> None:
    """Topic, partition, base offset and time of each batch, wherever in a frame the answer begins."""
    frame = before + answer(
        version, {name: [written(*one) for one in partitions] for name in names}
    )
    assert produce_exchange.read_acknowledged(version, frame, len(before)) == [
        ((named(version, name), one[0]), produce_exchange.PartitionResponse(None, *one[1:3]))
        for name in names
        for one in partitions
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    "unusual",
    [
        {"error_code": 6},
        {"error_message": "no"},
        {"error_message": ""},
        {
            "record_errors": [
                message("Produce.response.topics.partitions.record_errors", batch_index=1)
            ]
        },
    ],
    ids=str,
)
def test_what_is_not_usual_is_left(version: int, at: int, unusual: dict[str, Any]) -> None:
    """An error, words, refused records, of whichever partition."""
    partitions: list[dict[str, Any]] = [written(3, 17, -1, 0), written(4, 18, -1, 0)]
    partitions[at].update(unusual)
    assert (
        produce_exchange.read_acknowledged(version, answer(version, {"orders": partitions}), 0)
        is None
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_throttle_is_left(version: int) -> None:
    """An answer with a throttle time is not the usual answer, and `read_acknowledged` does not read it."""
    assert (
        produce_exchange.read_acknowledged(
            version, answer(version, {"orders": [written(3, 17, -1, 0)]}, throttle_time_ms=1), 0
        )
        is None
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_any_byte_may_be_another(version: int) -> None:
    """One bit is turned, or the end is missing, or there is more: what is read then is what the schema reads, or it is left to that."""
    whole = answer(
        version,
        {
            "orders": [written(3, 17, 18, 1), written(4, 19, 20, 2)],
            "sales": [written(0, 21, 22, 3)],
        },
    )
    bent = [
        bytes((*whole[:at], whole[at] ^ 1 << bit, *whole[at + 1 :]))
        for at in range(len(whole))
        for bit in range(8)
    ]
    bent += [whole[:end] for end in range(len(whole))] + [
        whole + more for more in (b"\0", whole, whole[-9:])
    ]
    numbers = 0
    for frame in bent:
        told = produce_exchange.read_acknowledged(version, frame, 0)
        if told is None:
            continue
        numbers += 1
        read = codec("Produce.response", version).decode(frame)
        assert read.throttle_time_ms == 0
        assert told == [
            (
                (topic.name or topic.topic_id, partition.index),
                produce_exchange.PartitionResponse(
                    None, partition.base_offset, partition.log_append_time_ms
                ),
            )
            for topic in read.topics
            for partition in topic.partitions
        ]
        assert all(
            (one.error_code, one.error_message, one.record_errors) == (0, None, [])
            for topic in read.topics
            for one in topic.partitions
        )
    names = (
        2 * 16 if version >= produce_exchange.FIRST_WITH_TOPIC_IDS else len("orders") + len("sales")
    )
    # The bits of three partitions' four numbers, and those of the names that leave ASCII.
    assert numbers == 3 * (32 + 3 * 64) + names * (
        8 if version >= produce_exchange.FIRST_WITH_TOPIC_IDS else 7
    )
    with pytest.raises(ProtocolError):
        codec("Produce.response", version).decode(whole[:-1])


@pytest.mark.parametrize("version", range(14))
def test_whatever_an_answer_says_each_batch_has_a_response(version: int) -> None:
    """Each bit of an answer is turned: the schema refuses it, or each batch gets one response, and hints concern these batches alone."""
    errors = [
        message(
            "Produce.response.topics.partitions.record_errors",
            batch_index=at,
            batch_index_error_message="no",
        )
        for at in (0, 1)
    ]
    leader = message(
        "Produce.response.topics.partitions.current_leader", leader_id=2, leader_epoch=7
    )
    refused = message(
        "Produce.response.topics.partitions",
        index=0,
        error_code=87,
        record_errors=errors,
        current_leader=leader,
    )
    written = message("Produce.response.topics.partitions", index=1, base_offset=5)
    topic = message(
        "Produce.response.topics",
        name="t",
        topic_id=bytes(15) + b"\1",
        partitions=[refused, written],
    )
    nodes = [message("Produce.response.node_endpoints", node_id=2, host="host", port=9092)]
    whole = b"".join(
        codec("Produce.response", version).encode(
            message("Produce.response", topics=[topic], node_endpoints=nodes)
        )
    )
    batches = asked(0, 1)
    if version >= produce_exchange.FIRST_WITH_TOPIC_IDS:
        batches = {
            (bytes(15) + b"\1", partition): batch for (_, partition), batch in batches.items()
        }
    outcomes = set()
    for at, bit in itertools.product(range(len(whole)), range(8)):
        bent = bytes((*whole[:at], whole[at] ^ 1 << bit, *whole[at + 1 :]))
        usual = produce_exchange.read_usual(batches, version, bent, 0)
        try:
            decoded = codec("Produce.response", version).decode(
                bent, 0, produce_exchange.most_elements(batches)
            )
        except ProtocolError:
            assert usual is None
            continue
        responses = usual or produce_exchange.read(batches, decoded)
        assert responses.keys() == set(batches.values())
        assert all(index in (0, 1) for response in responses.values() for index in response.refused)
        assert produce_exchange.hints(batches, decoded).keys() <= set(batches.values())
        outcomes |= {type(response.error) for response in responses.values()}
    assert outcomes == {type(None), BrokerError, ProtocolError}


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xff" * 9,
        uvarint(2**34 - 1) + b"\0" * 40,
        uvarint(2) + b"\0" * 40,
        uvarint(2**34 - 1) + (b"\0" + b"\1\1\0") * 9,
    ],
    ids=["empty", "endless varint", "many topics", "no name", "topics without partitions"],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_hostile_answer_is_left(version: int, frame: bytes) -> None:
    """Counts that no frame can keep end the reading, at the frame's end at the latest."""
    assert produce_exchange.read_acknowledged(version, frame, 0) is None
