"""Tests of the estimated compression ratio, per topic and codec: it rises quickly and falls slowly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.model import Compression
from aioproducer.records.compression import CompressionRatios

ZSTD = Compression.ZSTD


def after(*observed: float) -> float:
    ratios = CompressionRatios()
    for ratio in observed:
        ratios.observe("orders", ZSTD, ratio)
    return ratios.guess("orders", ZSTD)


@pytest.mark.parametrize(("observed", "guess"), [
    ((), 1.0),
    ((0.2,), 0.995),
    ((0.2, 0.2), 0.99),
    ((0.998,), 0.998),
    ((1.0,), 1.0),
    ((1.01,), 1.05),
    ((1.4,), 1.4),
    ((*[0.5] * 200,), 0.5),
    ((*[0.5] * 200, 0.52), 0.55),
    ((*[0.5] * 200, 0.9), 0.9),
])  # fmt: skip
def test_it_follows_kafkas_rule(observed: tuple[float, ...], guess: float) -> None:
    """Better: down by 0.005, to what was seen at most. Worse: up by 0.05 at least (RCD-07)."""
    assert after(*observed) == pytest.approx(guess)


@given(st.lists(st.floats(0.001, 1.5), min_size=1, max_size=50))
def test_it_never_falls_below_what_was_seen_last(observed: list[float]) -> None:
    """So that a batch of the same records is not larger than guessed."""
    assert after(*observed) >= observed[-1]


def test_topics_codecs_and_producers_do_not_share_it() -> None:
    """Java's is one for the process, by topic name."""
    ratios = CompressionRatios()
    ratios.observe("orders", ZSTD, 0.1)
    assert ratios.guess("orders", Compression.LZ4) == ratios.guess("others", ZSTD) == 1.0
    assert CompressionRatios().guess("orders", ZSTD) == 1.0


@pytest.mark.parametrize(("seen", "guess"), [(0.3, 1.0), (1.2, 1.2)])
def test_it_is_retracted_when_a_batch_was_too_large(seen: float, guess: float) -> None:
    """To no compression at all, or to worse if that was seen (BAT-03)."""
    ratios = CompressionRatios()
    for _ in range(50):
        ratios.observe("orders", ZSTD, 0.1)
    ratios.retract("orders", ZSTD, seen)
    assert ratios.guess("orders", ZSTD) == guess


def test_a_topic_can_be_forgotten() -> None:
    """It alone, with all codecs."""
    ratios = CompressionRatios()
    for topic in ("orders", "others"):
        ratios.observe(topic, ZSTD, 0.1)
    ratios.forget("orders")
    assert (ratios.guess("orders", ZSTD), ratios.guess("others", ZSTD)) == (1.0, 0.995)


@pytest.mark.parametrize(("seen", "room"), [(1.0, 1_000), (0.5, 1_904), (0.1, 9_523), (1.4, 1_000)])
def test_a_batch_takes_what_should_become_its_size(seen: float, room: int) -> None:
    """With 5 % to spare; and never less than its size, compressed or not."""
    ratios = CompressionRatios()
    for _ in range(200):
        ratios.observe("orders", ZSTD, seen)
    assert ratios.room("orders", ZSTD, 1_000) == room
