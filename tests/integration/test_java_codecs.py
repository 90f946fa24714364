"""Kafka's own classes read each codec at each level."""

from __future__ import annotations

import json

import pytest

from aioproducer.model import Compression
from aioproducer.records.reader import Record
from tests.vectors.generate import run
from tests.vectors.golden import Case, build_batch, unhex

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("compiler")]
# More than one block of each codec, and bytes that no codec makes smaller.
VALUES = [
    b"".join(b"%d," % (i * i % 10_007) for i in range(20_000)),
    b"v",
    bytes(i * i % 251 ^ i >> 7 & 0xFF for i in range(70_000)),
]
LEVELS = {
    Compression.NONE: (None,),
    Compression.GZIP: (None, *range(1, 10)),
    Compression.SNAPPY: (None,),
    Compression.LZ4: (None, *range(1, 18)),
    Compression.ZSTD: (None, -131072, -5, *range(1, 23)),
}
CASES = [(codec, level) for codec, levels in LEVELS.items() for level in levels]


def batch(codec: Compression, level: int | None) -> bytes:
    records = [Record(number, number, b"k", value, ()) for number, value in enumerate(VALUES)]
    return build_batch(codec, Case(0, -1, records), level)


def test_java_reads_each_level() -> None:
    """The classes of Java's consumer, in one process for all levels: they check the CRC, and give the values that were written."""
    raws = [batch(codec, level) for codec, level in CASES]
    told = [
        json.loads(line)
        for line in run(
            "read",
            "".join(
                f"2 {codec.name.lower()} {raw.hex()}\n"
                for (codec, _), raw in zip(CASES, raws, strict=True)
            ),
        )
    ]
    read = {
        case: answer.get("refused") or [unhex(row[3]) for row in answer["records"]]
        for case, answer in zip(CASES, told, strict=True)
    }
    assert [case for case, values in read.items() if values != VALUES] == []
