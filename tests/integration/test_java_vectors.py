"""Tests that Kafka's classes read every golden case that we write, and still write the stored vectors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.model import Compression
from tests.vectors.generate import run
from tests.vectors.golden import FILE, area, build, cases, expected, record, unhex, written

if TYPE_CHECKING:
    from tests.vectors.golden import Vector

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("compiler")]


def read_by_java(vectors: list[Vector], raws: list[bytes]) -> list[Any]:
    lines = [
        f"{vector.magic} {vector.codec.name.lower()} {raw.hex()}\n"
        for vector, raw in zip(vectors, raws, strict=True)
    ]
    return [json.loads(line) for line in run("read", "".join(lines))]


def test_kafka_reads_what_we_write() -> None:
    """CRCs, offsets, timestamps, keys, values and headers; and it decompresses to the bytes that we compressed."""
    vectors = [vector for vector in written() if vector.case != "empty batch"]
    raws = [build(vector.magic, vector.codec, cases()[vector.case]) for vector in vectors]
    answers = read_by_java(vectors, raws)
    assert len(vectors) == len(answers) > 100
    for vector, raw, told in zip(vectors, raws, answers, strict=True):
        assert "refused" not in told, f"{vector.id}: {told}"
        assert [record(*row) for row in told["records"]] == expected(
            vector.magic, cases()[vector.case]
        ), vector.id
        assert unhex(told["area"]) == area(vector.magic, vector.codec, raw), vector.id


def test_kafka_refuses_a_wrong_byte() -> None:
    """So that what it says of ours means something: one bit changed behind the CRC, and it is corrupt."""
    vectors = [
        vector for vector in written() if vector.case == "one" and vector.codec is Compression.NONE
    ]
    raws = [bytes([*raw[:-1], raw[-1] ^ 1]) for vector in vectors if (raw := vector.raw)]
    assert ["corrupt" in told["refused"].lower() for told in read_by_java(vectors, raws)] == [
        True
    ] * 3


def test_the_vectors_are_what_kafka_writes() -> None:
    """The file in the tree is the program's output, unchanged; of gzip what it holds, as each Java has its own zlib."""
    told = [json.loads(line) for line in run("write")]
    file = json.loads(FILE.read_text())
    assert [settled(one) for one in told if "magic" in one] == [
        settled(one) for one in file["vectors"]
    ]
    assert {one.pop("case"): one for one in told if "records" in one} == file["cases"]


def settled(vector: dict[str, Any]) -> dict[str, Any]:
    if vector["codec"] == "gzip" and vector.get("hex"):
        return {
            **vector,
            "hex": area(vector["magic"], Compression.GZIP, bytes.fromhex(vector["hex"])),
        }
    return vector
