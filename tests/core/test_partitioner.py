"""Tests of `aioproducer.core.partitioner`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import MURMURS

from aioproducer.core import partitioner as module
from aioproducer.core.partitioner import murmur2

JAVAS = {  # Kafka's UtilsTest.testMurmur2, as Java's signed int
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), JAVAS.items(), ids=map(str, JAVAS))
def test_keys_hash_as_in_java(key: bytes, hashed: int) -> None:
    """One key has one partition, whoever sends it."""
    assert murmur2(key) == hashed % 2**32


@pytest.mark.parametrize("client", MURMURS)
@given(
    key=st.binary(max_size=40)
    | st.text(st.characters(max_codepoint=127), max_size=40).map(str.encode)
    | st.integers(250, 270).map(lambda size: b"\xff\x80\x7f\x00" * (size // 4) + b"\xfe" * (size % 4))
)
def test_keys_hash_as_in_other_clients(client: str, key: bytes) -> None:
    """Of every length, also where unpacking is no longer prepared; text is hashed in a way of its own."""
    assert murmur2(key) == MURMURS[client](key) % 2**32


@given(st.binary(max_size=30))
def test_a_hash_has_32_bits(key: bytes) -> None:
    """Unsigned, so that what is made of it does not depend on Python's signs."""
    assert 0 <= murmur2(key) < 2**32


def test_what_is_remembered_of_text_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """And hashes stay right when it is forgotten."""
    monkeypatch.setattr(module, "_MOST_MIXED", 10)
    monkeypatch.setattr(module, "_mixed", {})
    for number in range(1000):
        key = b"%04d" % number
        assert murmur2(key) == MURMURS["aiokafka"](key) % 2**32
        assert len(module._mixed) <= 10


def test_a_text_is_no_key() -> None:
    """Its bytes depend on an encoding."""
    with pytest.raises(TypeError):
        murmur2("text")  # type: ignore[arg-type]
