"""The messages are Kafka's: field by field as its own definitions say, byte by byte as kio and kafka-python write them."""

from __future__ import annotations

import importlib.metadata
import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles import LACKS, ORACLES, our_name, snake
from wire_samples import EVERY_CODEC, encoded, messages

from aioproducer.wire.messages import SPECS
from aioproducer.wire.schema import codec, message
from aioproducer.wire.spec import ZERO_ID, Field

# Above every version of a message.
NO_FLEXIBLE_VERSION = 32_768
_BEFORE_KAFKA_4 = {
    "Produce": {0, 1, 2}
}  # versions that Kafka 4 no longer takes, though its definitions still have their fields


# Kafka's definitions, as kafka-python ships them


def _definition(name: str) -> dict[str, Any]:
    path = f"kafka/protocol/schemas/resources/{name.replace('.', '').replace('request', 'Request').replace('response', 'Response')}.json"
    text = importlib.metadata.distribution("kafka-python").locate_file(path).read_text()
    definition: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}
    _fill_in(definition["fields"], common)
    return definition


def _fill_in(entries: list[dict[str, Any]], common: dict[str, list[dict[str, Any]]]) -> None:
    """Give each structure that a definition states once, for several places, its fields in each of them."""
    for entry in entries:
        if (kind := entry["type"].removeprefix("[]")) in common:
            entry["fields"] = common[kind]
        _fill_in(entry.get("fields", []), common)


def _span(text: str | None, within: range) -> set[int]:
    """The versions of "3+", "3-5", "3" or "none" that we speak."""
    if text is None or text == "none":
        return set()
    first, _, last = text.partition("-")
    end = within.stop if text.endswith("+") else int(last or first) + 1
    return set(range(int(first.rstrip("+")), end)) & set(within)


def _definition_default(
    entry: dict[str, Any], *, is_array: bool, is_always_nullable: bool
) -> object:
    if is_array:
        return ()
    default = entry.get("default")
    if default == "null" or (default is None and is_always_nullable):
        return None
    implicit: dict[str, object] = {"string": "", "bool": False, "bytes": b"", "uuid": ZERO_ID}
    if default is None:
        return implicit.get(entry["type"], 0 if entry["type"].startswith("int") else None)
    return (
        {"true": True, "false": False, False: False, "": ""}.get(default)
        if entry["type"] in {"bool", "string"}
        else int(str(default), 0)
    )


def _kinds(entry: dict[str, Any]) -> tuple[str, bool]:
    kind = entry["type"].removeprefix("[]")
    known = {
        "int8": "i8",
        "int16": "i16",
        "int32": "i32",
        "int64": "i64",
        "string": "str",
        "records": "bytes",
    }
    return known.get(kind, kind if kind in {"bool", "bytes", "uuid"} else "struct"), entry[
        "type"
    ].startswith("[]")


def _facts_of_definition(
    entries: list[dict[str, Any]], name: str, versions: range, parent: set[int]
) -> list[dict[str, Any]]:
    facts = []
    for entry in entries:
        present = _span(entry["versions"], versions) & parent
        if not present:
            continue
        kind, is_array = _kinds(entry)
        nullable = _span(entry.get("nullableVersions"), versions) & present
        facts.append(
            {
                "name": our_name(snake(entry["name"]), name),
                "kind": kind,
                "is_array": is_array,
                "versions": present,
                "null": nullable,
                "tag": entry.get("tag"),
                "default": _definition_default(
                    entry, is_array=is_array, is_always_nullable=nullable == present
                ),
                "fields": _facts_of_definition(entry.get("fields", []), name, versions, present),
            }
        )
    return facts


def _facts_of_spec(fields: list[Field], versions: range, parent: set[int]) -> list[dict[str, Any]]:
    facts = []
    for field in fields:
        present = set(field.versions) & parent
        facts.append(
            {
                "name": field.name,
                "kind": field.kind,
                "is_array": field.is_array,
                "versions": present,
                "null": set(field.null_versions) & present,
                "tag": field.tag,
                "default": field.default,
                "fields": _facts_of_spec(field.fields, versions, present),
            }
        )
    return facts


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_says_what_kafkas_definition_says(name: str) -> None:
    """Names, order, types, versions, nulls, tags and defaults are those of the broker's own message definitions."""
    definition, spec = _definition(name), SPECS[name]
    assert set(spec.versions) - _BEFORE_KAFKA_4.get(name.partition(".")[0], set()) <= _span(
        definition["validVersions"], range(1 << 15)
    )
    first_flexible = definition["flexibleVersions"].rstrip("+")
    assert spec.flexible == (
        NO_FLEXIBLE_VERSION if first_flexible == "none" else int(first_flexible)
    )
    versions = set(spec.versions)
    assert _facts_of_spec(spec.fields, spec.versions, versions) == _facts_of_definition(
        definition["fields"], name, spec.versions, versions
    )


# Others' implementations


@pytest.mark.parametrize(("name", "version"), EVERY_CODEC)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(draw=st.data())
def test_others_read_and_write_the_same_bytes(name: str, version: int, draw: st.DataObject) -> None:
    """kio and kafka-python read what we write as the same values, and write the same values as the same bytes; what they write we read."""
    sample = draw.draw(messages(name, version, tame=True))
    data = encoded(name, version, sample)
    lacking = {
        lack.oracle
        for lack in LACKS
        if lack.api == name.partition(".")[0] and version in lack.versions
    }
    for oracle in ORACLES.keys() - lacking:
        ORACLES[oracle](name, version, sample, data)
    assert codec(name, version).decode(data) == sample


def test_all_topics_are_asked_for_by_null_and_in_v0_by_none_at_all() -> None:
    """`topics=None` means every topic in each version; v0 had no null and said it with an empty array."""
    everything = message("Metadata.request", topics=None)
    assert encoded("Metadata.request", 0, everything) == b"\0\0\0\0"
    assert encoded("Metadata.request", 1, everything) == b"\xff\xff\xff\xff"
    assert encoded("Metadata.request", 9, everything) == b"\0\x01\0\0\0"
    assert encoded("Metadata.request", 1, message("Metadata.request", topics=[])) == b"\0\0\0\0"


def test_a_new_leader_in_a_produce_answer_is_tagged() -> None:
    """KIP-951 leaders travel as tagged fields; an answer without them has their defaults."""
    path = "Produce.response.topics.partitions"
    leader = message(f"{path}.current_leader", leader_id=2, leader_epoch=9)
    partitions = [
        message(path, index=0, error_code=6, current_leader=leader),
        message(path, index=1),
    ]
    answer = message(
        "Produce.response",
        topics=[message("Produce.response.topics", name="t", partitions=partitions)],
    )
    moved, stayed = (
        codec("Produce.response", 10)
        .decode(encoded("Produce.response", 10, answer))
        .topics[0]
        .partitions
    )
    assert (moved.current_leader.leader_id, moved.current_leader.leader_epoch) == (2, 9)
    assert (stayed.current_leader.leader_id, stayed.current_leader.leader_epoch) == (-1, -1)
    older = (
        codec("Produce.response", 9)
        .decode(encoded("Produce.response", 9, answer))
        .topics[0]
        .partitions[0]
    )
    assert older.current_leader.leader_id == -1
