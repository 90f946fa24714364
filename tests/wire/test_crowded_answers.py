"""Answers that claim as many elements as their bytes can hold: memory in proportion to the bytes, in every message that a producer reads."""

from __future__ import annotations

import contextlib
import random
import time
import tracemalloc

import pytest
from wire_samples import EVERY_CODEC, full_sample

from aioproducer.errors import ProtocolError
from aioproducer.wire.messages import SPECS
from aioproducer.wire.primitives import uvarint
from aioproducer.wire.schema import codec

# Those of the handshake, of the fake cluster and of tests' consumers, too.
READ = [name for name in SPECS if name.endswith(".response")]
CODECS = [(name, version) for name, version in EVERY_CODEC if name in READ]
SIZE = 16_384
# Bytes of objects for each byte of an answer. The densest element, a structure of empty fields, takes three bytes.
DENSEST = 60


def crowded(name: str, version: int, chance: random.Random) -> bytes:
    """Return a message in which one place has a count of some of the bytes behind it, which are all zero or one."""
    data = full_sample(name, version)
    count = SIZE // chance.choice([1, 2, 3, 4, 6, 8, 12, 20, 32])
    claim = uvarint(count + 1) if version >= SPECS[name].flexible else count.to_bytes(4, "big")
    return data[: chance.randrange(len(data))] + claim + bytes([chance.choice([0, 0, 1])]) * SIZE


def decode(name: str, version: int, data: bytes) -> int:
    """Decode at once, or be refused. Returns the peak of the memory that it took."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    with contextlib.suppress(ProtocolError):
        codec(name, version).decode(data)
    return tracemalloc.get_traced_memory()[1] - before


def test_each_answer_is_there() -> None:
    assert (
        {name for name, _ in CODECS}
        == set(READ)
        >= {"Produce.response", "DescribeTransactions.response", "ListTransactions.response"}
    )


@pytest.mark.parametrize(("name", "version"), CODECS)
def test_memory_is_in_proportion_to_the_bytes(name: str, version: int) -> None:
    """Whatever a count claims, and wherever: a message, or a ProtocolError."""
    chance = random.Random(f"crowded {name} {version}")
    codec(name, version).decode(full_sample(name, version))
    tracemalloc.start()
    try:
        peak = max(decode(name, version, crowded(name, version, chance)) for _ in range(30))
    finally:
        tracemalloc.stop()
    assert peak < DENSEST * SIZE


@pytest.mark.parametrize("name", READ)
def test_time_is_in_proportion_to_the_bytes(name: str) -> None:
    """The slowest of many crowded answers takes less than 2 us of CPU time for each byte, so that no byte is read again and again."""
    version = SPECS[name].versions[-1]
    chance = random.Random(f"slow {name}")

    def took(data: bytes) -> float:
        began = time.thread_time()
        with contextlib.suppress(ProtocolError):
            codec(name, version).decode(data)
        return time.thread_time() - began

    slowest = max((crowded(name, version, chance) for _ in range(50)), key=took)
    # A busy machine may make one of them look slow.
    assert min(took(slowest) for _ in range(3)) < 0.000_002 * len(slowest)
