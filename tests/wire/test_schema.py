"""Codecs by name and version, and the messages that they take."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire_samples import EVERY_CODEC, encoded, in_steps, messages

from aioproducer.wire import schema
from aioproducer.wire.schema import codec, message


@pytest.mark.parametrize(("name", "version"), EVERY_CODEC)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(draw=st.data())
def test_what_is_encoded_decodes_to_the_same(name: str, version: int, draw: st.DataObject) -> None:
    """Any message that a version can hold comes back equal, read at once, in steps, and from within other bytes."""
    sample = draw.draw(messages(name, version))
    data = encoded(name, version, sample)
    assert codec(name, version).decode(data) == sample
    assert codec(name, version).decode(memoryview(b"header" + data), 6) == sample
    assert in_steps(name, version, data)[0] == sample


@pytest.mark.parametrize(("name", "version"), EVERY_CODEC)
def test_a_message_of_defaults_round_trips(name: str, version: int) -> None:
    """A message that says nothing can be written and read in each version."""
    assert codec(name, version).decode(encoded(name, version, message(name))) == message(name)


@pytest.mark.parametrize(
    ("name", "version"), [("Fetch.request", 3), ("Produce.request", 14), ("Metadata.response", -1)]
)
def test_an_unknown_version_is_named(name: str, version: int) -> None:
    """The error says which versions there are."""
    with pytest.raises(ValueError, match=r"is known in versions \d+ to \d+, not"):
        codec(name, version)


@pytest.mark.parametrize("name", ["", "Produce", "Produce.answer", "Telemetry.request"])
def test_an_unknown_message_is_named(name: str) -> None:
    """`codec` and `message` name an unknown message in their error."""
    with pytest.raises(ValueError, match="there is no"):
        codec(name, 0)
    with pytest.raises(ValueError, match="there is no"):
        message(name)


def test_an_unknown_structure_or_field_is_refused() -> None:
    """A misspelled field cannot be lost in silence."""
    with pytest.raises(ValueError, match=r"there is no structure Produce\.request\.partitions"):
        message("Produce.request.partitions")
    with pytest.raises(TypeError, match="ack"):
        message("Produce.request", ack=1)
    with pytest.raises(AttributeError):
        message("Produce.request").ack = 1


def test_messages_are_equal_by_their_fields() -> None:
    """Equal: same structure, same values, whichever sequence holds them. Mutable, so not hashable."""
    path = "Fetch.request.forgotten_topics_data"
    assert message(path, topic="t", partitions=[1, 2]) == message(
        path, topic="t", partitions=(1, 2)
    )
    assert message(path, topic="t", partitions=[1, 2]) != message(
        path, topic="t", partitions=[2, 1]
    )
    assert message("Produce.request") != message("Produce.response")
    with pytest.raises(TypeError, match="unhashable"):
        hash(message(path))


def test_a_message_shows_its_fields() -> None:
    """The repr is for logs and failing tests."""
    shown = repr(message("ListOffsets.request.topics", name="t"))
    assert shown == "ListOffsets.request.topics(name='t', partitions=())"


def test_default_structures_are_not_shared() -> None:
    """Setting a field of one message's default structure leaves the next message alone."""
    first = message("Produce.response.topics.partitions")
    first.current_leader.leader_id = 5
    assert message("Produce.response.topics.partitions").current_leader.leader_id == -1


def test_a_codec_that_is_made_in_a_thread_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A child that is forked meanwhile makes codecs, too, and would wait for a lock of that thread forever."""
    is_making, may_end = threading.Event(), threading.Event()
    make = schema.Decoder

    def slow(spec: Any, version: int, *rest: Any, **options: Any) -> Any:
        if version == 0:
            is_making.set()
            assert may_end.wait(10)
        return make(spec, version, *rest, **options)

    monkeypatch.setattr(schema, "Decoder", slow)
    schema._decoder.cache_clear()
    first, second = schema.Codec("Metadata.response", 0), schema.Codec("Metadata.response", 1)
    making = threading.Thread(target=lambda: first.decode)
    other = threading.Thread(target=lambda: second.decode, daemon=True)
    making.start()
    assert is_making.wait(10)
    other.start()
    other.join(5)
    assert not other.is_alive()
    may_end.set()
    making.join(10)
    assert first.decode is first.decode


def test_a_repr_hides_what_may_hold_credentials() -> None:
    """Only the length of a secret field is shown, so that no log and no traceback with locals has a password."""
    shown = repr(message("SaslAuthenticate.request", auth_bytes=b"\0alice\0canary-alice"))
    assert "canary" not in shown
    assert "<19 secret bytes>" in shown
    assert "mechanism='PLAIN'" in repr(message("SaslHandshake.request", mechanism="PLAIN"))
