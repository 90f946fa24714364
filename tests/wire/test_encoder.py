"""Encoding: what is copied and what is not, what is left out, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import buffers, encoded

from aioproducer.wire.schema import codec, message

_HEADER = bytes(61)
_LARGE = b"x" * 5000


def _produce(*records: Any) -> Any:
    partitions = [
        message("Produce.request.topics.partitions", index=index, records=each)
        for index, each in enumerate(records)
    ]
    return message(
        "Produce.request",
        acks=-1,
        topics=[message("Produce.request.topics", name="orders", partitions=partitions)],
    )


@pytest.mark.parametrize("version", [3, 9, 13])
def test_batches_are_not_copied(version: int) -> None:
    """A payload leaves as the object that came in; all that is small is joined: two chunks for a partition, and an end."""
    chunks = codec("Produce.request", version).encode(
        _produce((_HEADER, _LARGE), (_HEADER, _LARGE), (_HEADER, _LARGE))
    )
    assert [chunk is _LARGE for chunk in chunks[:6]] == [False, True] * 3
    assert len(chunks) <= 7
    assert all(len(chunk) for chunk in chunks)


@pytest.mark.parametrize("version", [3, 9, 13])
@given(pieces=st.lists(buffers(), max_size=5))
def test_records_in_pieces_are_records_in_one(version: int, pieces: list[bytes]) -> None:
    """A sequence of buffers is one field: the encoder sums their lengths and writes their bytes in order."""
    whole = b"".join(pieces)
    expected = encoded("Produce.request", version, _produce(whole, None, whole))
    assert (
        encoded("Produce.request", version, _produce(pieces, None, tuple(map(memoryview, pieces))))
        == expected
    )
    assert (
        encoded("Produce.request", version, _produce(bytearray(whole), None, memoryview(whole)))
        == expected
    )
    decoded = codec("Produce.request", version).decode(expected)
    assert [partition.records for partition in decoded.topics[0].partitions] == [whole, None, whole]


def test_encoding_leaves_the_message_alone() -> None:
    """A retry encodes the same message again."""
    request = _produce([_HEADER, _LARGE])
    assert encoded("Produce.request", 9, request) == encoded("Produce.request", 9, request)
    assert request.topics[0].partitions[0].records == [_HEADER, _LARGE]


def test_an_empty_message_has_no_chunks() -> None:
    """ApiVersions v0 asks with its header alone."""
    assert codec("ApiVersions.request", 0).encode(message("ApiVersions.request")) == []


def test_what_a_version_lacks_is_not_written() -> None:
    """The same message serves all versions: older ones have less of it."""
    request = message(
        "ApiVersions.request", client_software_name="aioproducer", client_software_version="1"
    )
    assert encoded("ApiVersions.request", 2, request) == b""
    assert encoded("ApiVersions.request", 3, request) == b"\x0caioproducer\x021\0"


def test_tagged_fields_are_written_where_they_say_something() -> None:
    """A default costs nothing. None means a structure's default. Tags are written in ascending order."""
    bare = message("Fetch.request")
    plain = encoded("Fetch.request", 17, bare)
    assert plain.endswith(b"\x01\0")  # an empty rack, no tags
    assert encoded("Fetch.request", 17, message("Fetch.request", replica_state=None)) == plain
    state = message("Fetch.request.replica_state", replica_id=1)
    tagged = encoded(
        "Fetch.request", 17, message("Fetch.request", replica_state=state, cluster_id="c")
    )
    assert (
        tagged
        == plain[:-1] + b"\x02" + b"\0\x02\x02c" + b"\x01\x0d" + b"\0\0\0\x01" + b"\xff" * 8 + b"\0"
    )


@pytest.mark.parametrize(
    ("name", "version", "fields"),
    [
        ("Metadata.request", 9, {"topics": [message("Metadata.request.topics", name=None)]}),
        ("Produce.request", 9, {"acks": 40_000}),
        ("Produce.request", 9, {"acks": None}),
        ("Produce.request", 9, {"topics": None}),
        ("Produce.request", 9, {"transactional_id": b"bytes"}),
        ("Produce.request", 9, {"transactional_id": "\ud800"}),
        ("Produce.request", 8, {"transactional_id": "x" * 40_000}),
        ("Produce.request", 13, {"topics": [message("Produce.request.topics", topic_id=b"short")]}),
        ("Produce.request", 9, {"topics": [message("Produce.request.topics", partitions=[None])]}),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    name: str, version: int, fields: dict[str, Any]
) -> None:
    """One ValueError, which names the message, and never wrong bytes."""
    with pytest.raises(ValueError, match=rf"{name} v{version} cannot hold such a value"):
        codec(name, version).encode(message(name, **fields))
