"""Decoding what a broken or hostile peer sends: a message, or one ProtocolError, in bounded time and memory."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_samples import EVERY_CODEC, VARINT_4E9, encoded, full_sample, in_steps, messages, mutated

from aioproducer.errors import ProtocolError
from aioproducer.wire.messages import SPECS
from aioproducer.wire.schema import codec, message


def _decoded(name: str, version: int, data: bytes) -> Any:
    """A message, or the ProtocolError. Anything else that is raised fails the test."""
    try:
        return codec(name, version).decode(data)
    except ProtocolError as error:
        return error


def _outcome(name: str, version: int, data: bytes) -> Any:
    """Return the result of decoding, which must be the same at once and in steps."""
    decoded = _decoded(name, version, data)
    if isinstance(decoded, ProtocolError):
        with pytest.raises(ProtocolError) as raised:
            in_steps(name, version, data)
        assert str(raised.value) == str(decoded)
    else:
        assert in_steps(name, version, data)[0] == decoded
    return decoded


@pytest.mark.parametrize(("name", "version"), EVERY_CODEC)
def test_mutated_bytes_give_a_message_or_a_protocol_error(name: str, version: int) -> None:
    """Both decoders end with a message or a ProtocolError, alike, for any mutated bytes."""
    data, chance = full_sample(name, version), random.Random(f"{name} {version}")
    outcomes = [_outcome(name, version, mutated(data, chance)) for _ in range(80)]
    assert len(data) < 8 or any(isinstance(outcome, ProtocolError) for outcome in outcomes)


@pytest.mark.parametrize(("name", "version"), EVERY_CODEC)
def test_a_message_that_ends_early_or_goes_on_is_refused(name: str, version: int) -> None:
    """Each beginning of a message, and the message with a byte behind it, is a ProtocolError that names the message."""
    data = full_sample(name, version)
    for end in range(len(data)):
        with pytest.raises(ProtocolError, match=f"^{name} v{version}: "):
            codec(name, version).decode(data[:end])
    with pytest.raises(ProtocolError, match="1 bytes follow the message"):
        codec(name, version).decode(data + b"\0")


@pytest.mark.parametrize(("name", "version"), EVERY_CODEC)
def test_no_count_or_length_makes_memory(name: str, version: int) -> None:
    """A huge number at any place of a message is refused, or is a number, before memory of that size is taken."""
    data = full_sample(name, version)
    huge = VARINT_4E9 if version >= SPECS[name].flexible else b"\x7f\xff\xff\xff"
    codec(name, version).decode(data)  # compiles it
    tracemalloc.start()
    try:
        for at in range(len(data)):
            _decoded(name, version, data[:at] + huge + data[at + len(huge) :])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300_000


def test_a_count_is_compared_with_what_its_elements_take() -> None:
    """A megabyte of zeros claims as many topics as it has bytes: refused at once, not after a million objects."""
    count = (1_000_000).to_bytes(4, "big")
    data = (
        bytes(4) + bytes(4) + bytes(2) + bytes(4) + count + bytes(1_000_000)
    )  # throttle, brokers, cluster id, controller, topics
    with pytest.raises(
        ProtocolError, match="topics claims a size of 1000000 with 1000000 bytes left"
    ):
        codec("Metadata.response", 5).decode(data)


@pytest.mark.parametrize("version", [5, 9])
def test_no_more_elements_are_made_than_the_caller_takes(version: int) -> None:
    """Elements are counted in all arrays together, before any of an array is made. Numbers are not counted."""
    partition = message("Metadata.response.topics.partitions", replica_nodes=(1,) * 50)
    topics = [message("Metadata.response.topics", name="t", partitions=[partition] * 2)] * 3
    data = encoded("Metadata.response", version, message("Metadata.response", topics=topics))
    decode = codec("Metadata.response", version).decode
    assert decode(data, 0, 9) == decode(data)
    for most, where in ((8, "topics.partitions"), (3, "topics.partitions"), (2, "topics")):
        with pytest.raises(
            ProtocolError, match=f"Metadata.response v{version}: {where} has more elements"
        ):
            decode(data, 0, most)


@pytest.mark.parametrize(
    ("name", "version", "data", "words"),
    [
        (
            "FindCoordinator.request",
            0,
            b"\xff\xff",
            "key claims a size of -1",
        ),  # null, where there is none
        ("FindCoordinator.request", 0, b"\xff\xfe", "key claims a size of -2"),
        ("FindCoordinator.request", 3, b"\0\0\0", "key claims a size of -1"),
        ("InitProducerId.request", 0, b"\xff\xfe\0\0\0\0", "transactional_id claims a size of -2"),
        (
            "Metadata.request",
            0,
            b"\xff\xff\xff\xff",
            "topics claims a size of -1",
        ),  # null came with v1
        ("Metadata.request", 1, b"\xff\xff\xff\xfe", "topics claims a size of -2"),
        ("Metadata.request", 9, b"\x02\0\0\0\0\0", "topics.name claims a size of -1"),
        ("FindCoordinator.request", 0, b"\0\x02\xc3\x28", "not UTF-8"),
        ("FindCoordinator.request", 0, b"\0\x03ab", "key claims a size of 3 with 2 bytes left"),
        (
            "FindCoordinator.request",
            3,
            b"\x80\x80\x80\x80\x80\x01" + bytes(9),
            "longer than five bytes",
        ),
        ("FindCoordinator.request", 4, b"\0\0\0", "coordinator_keys claims a size of -1"),
        (
            "Fetch.request",
            13,
            bytes(25) + b"\x01\x02" + bytes(16) + b"\0\0\x01\0",
            "partitions claims a size of -1",
        ),
        (
            "ApiVersions.response",
            3,
            bytes(2) + b"\x01" + bytes(4) + b"\x01\x07\x04abc",
            "a tagged field claims a size of 4 with 3",
        ),
    ],
)
def test_what_is_wrong_is_said(name: str, version: int, data: bytes, words: str) -> None:
    """The error names the field and the sizes."""
    with pytest.raises(ProtocolError, match=words):
        codec(name, version).decode(data)


# Tagged fields: an InitProducerId.request v2 without them is b"\0" + 4 bytes of time-out


@pytest.mark.parametrize(
    "tags",
    [b"\0", b"\x01\x07\x03abc", b"\x02\x07\0\xff\x7f\x01x", b"\x01\x07\x80\x01" + bytes(128)],
)
def test_unknown_tags_are_skipped(tags: bytes) -> None:
    """The decoder skips a newer peer's tagged fields, and reads all other fields as if they were not there."""
    assert (
        codec("InitProducerId.request", 2).decode(b"\0\0\0\0\x09" + tags).transaction_timeout_ms
        == 9
    )


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01",
        b"\x01\x07",
        b"\x01\x07\x04abc",
        b"\xff\xff\xff\xff\x0f\x07\0",
        b"\x01\x07" + VARINT_4E9,
    ],
)
def test_tags_that_lead_past_the_end_are_refused(tags: bytes) -> None:
    """A tagged field's size is held against the bytes left, as is their count."""
    with pytest.raises(ProtocolError):
        codec("InitProducerId.request", 2).decode(b"\0\0\0\0\x09" + tags)


def test_known_tags_are_read_among_unknown_ones() -> None:
    """Features of an ApiVersions answer are read among tags of the future."""
    epoch = b"\x01\x08" + (7).to_bytes(8, "big")
    body = b"\x02" + b"\x04kip" + b"\0\x05\0\x01" + b"\0"
    features = b"\x02" + bytes([len(body)]) + body
    answer = codec("ApiVersions.response", 3).decode(
        b"\0\0\x01\0\0\0\0" + b"\x04" + epoch + features + b"\x09\x01x" + b"\x0a\0"
    )
    assert answer.finalized_features_epoch == 7
    assert [(feature.name, feature.max_version_level) for feature in answer.finalized_features] == [
        ("kip", 5)
    ]
    assert (answer.supported_features, answer.zk_migration_ready) == ((), False)


@pytest.mark.parametrize("size", [7, 9])
def test_a_known_tag_of_another_size_is_refused(size: int) -> None:
    """A tagged int64 that claims seven or nine bytes is refused, as its writer means another field."""
    data = b"\0\0\x01\0\0\0\0" + b"\x01\x01" + bytes([size]) + bytes(9)
    with pytest.raises(ProtocolError, match="finalized_features_epoch"):
        codec("ApiVersions.response", 3).decode(data)


# Sizes of more than one byte, and arrays of many sizes


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 126, 127, 128, 300, 20_000])
@pytest.mark.parametrize("version", [8, 12])
def test_arrays_of_any_size(count: int, version: int) -> None:
    """Counts on both sides of each varint boundary, and of the table of short layouts."""
    numbers, ids = (
        tuple(range(count)),
        [message("Metadata.response.topics", name=f"t{i}") for i in range(count % 1000)],
    )
    partition = message(
        "Metadata.response.topics.partitions", replica_nodes=numbers, isr_nodes=numbers[:3]
    )
    answer = message(
        "Metadata.response",
        topics=[
            message("Metadata.response.topics", name="x" * count, partitions=[partition]),
            *ids,
        ],
    )
    assert (
        codec("Metadata.response", version).decode(encoded("Metadata.response", version, answer))
        == answer
    )


# Steps


def test_steps_are_one_per_partition() -> None:
    """Brokers, topics and their partitions are read one at a time, so a slice is never longer than one element."""
    partitions = [
        message("Metadata.response.topics.partitions", partition_index=i) for i in range(50)
    ]
    topics = [
        message("Metadata.response.topics", name=f"t{i}", partitions=partitions) for i in range(4)
    ]
    answer = message(
        "Metadata.response",
        brokers=[message("Metadata.response.brokers", host="h")] * 3,
        topics=topics,
    )
    decoded, steps = in_steps("Metadata.response", 12, encoded("Metadata.response", 12, answer))
    assert decoded == answer
    assert steps == 3 + 4 + 4 * 50


def test_steps_can_be_left() -> None:
    """A caller may stop before the last step: closing the generator ends it quietly."""
    answer = message(
        "Metadata.response", topics=[message("Metadata.response.topics", name="t")] * 2
    )
    decoding = codec("Metadata.response", 12).decode_in_steps(
        encoded("Metadata.response", 12, answer)
    )
    next(decoding)
    decoding.close()
    with pytest.raises(StopIteration):
        next(decoding)


@settings(max_examples=50, deadline=None)
@given(draw=st.data())
def test_the_buffer_may_be_any_kind(draw: st.DataObject) -> None:
    """bytes, bytearray and memoryview decode alike, and the message does not look into the buffer afterwards."""
    sample = draw.draw(messages("Fetch.response", 12))
    data = bytearray(encoded("Fetch.response", 12, sample))
    decoded = codec("Fetch.response", 12).decode(data)
    assert decoded == codec("Fetch.response", 12).decode(memoryview(data)) == sample
    data[:] = bytes(len(data))
    assert decoded == sample
