"""Tests of `aioproducer.core.topic_routing`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from murmurs import MURMURS

from aioproducer.core import topic_routing as module
from aioproducer.core.topic_routing import murmur2, pick, weighed

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
    """The hash of a key equals Java's, so that every client sends that key to one partition."""
    assert murmur2(key) == hashed % 2**32


@pytest.mark.parametrize("client", MURMURS)
@given(
    key=st.binary(max_size=40)
    | st.text(st.characters(max_codepoint=127), max_size=40).map(str.encode)
    | st.integers(250, 270).map(
        lambda size: b"\xff\x80\x7f\x00" * (size // 4) + b"\xfe" * (size % 4)
    )
)
def test_keys_hash_as_in_other_clients(client: str, key: bytes) -> None:
    """The hash equals those of other clients for keys of every length, also for keys that are too long to be remembered."""
    assert murmur2(key) == MURMURS[client](key) % 2**32


def test_remembered_heads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In number and in length; and hashes stay right when they are forgotten."""
    monkeypatch.setattr(module, "_MOST_HEADS", 10)
    monkeypatch.setattr(module, "_heads", ({}, {}, {}, {}))
    for number in range(100):
        for filler in (b"", b".", b"..", b"...", b"." * 100):
            key = b"%08d%s" % (number * 10_007, filler)
            for _ in range(2):
                assert murmur2(key) == MURMURS["aiokafka"](key) % 2**32
            assert all(
                len(heads) <= 10 and all(len(head) < 64 for head in heads)
                for heads in module._heads
            )


@pytest.mark.parametrize("sizes", [(4, 5, 6, 7), (7, 6, 5, 4), (20, 16, 19, 17)])
def test_keys_that_begin_alike_but_differ_in_size(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size goes into the hash before the first byte."""
    monkeypatch.setattr(module, "_heads", ({}, {}, {}, {}))
    for size in sizes:
        assert murmur2(b"a" * size) == MURMURS["aiokafka"](b"a" * size) % 2**32


def test_a_text_is_no_key() -> None:
    """Its bytes depend on an encoding."""
    with pytest.raises(TypeError):
        murmur2("text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("depths", "table"),
    [
        ([0, 3, 1], [4, 5, 8]),  # the example in Java's own words
        ([5, 0, 3, 0, 1], [1, 7, 10, 16, 21]),
        ([0, 1], [2, 3]),
        ([1000, 0], [1, 1002]),
        ([0, 0, 0], None),
        ([7, 7], None),
        ([3], None),
    ],
)
def test_queues_weigh_as_in_java(depths: list[int], table: list[int] | None) -> None:
    """The weights of the queues equal those of Java's BuiltInPartitioner. The tests in tests/integration compare with a Java that runs."""
    assert weighed(depths) == table


@given(st.lists(st.integers(1, 10), min_size=1, max_size=20), st.floats(0, 1, exclude_max=True))
def test_a_pick_is_the_first_that_reaches_it(weights: list[int], chance: float) -> None:
    """Never beyond the last, however near the chance is to 1."""
    table = [sum(weights[: at + 1]) for at in range(len(weights))]
    expected = next(at for at, end in enumerate(table) if end > int(chance * table[-1]))
    assert pick(table, chance) == expected
    assert pick(table, 1 - 2**-53) == len(weights) - 1
