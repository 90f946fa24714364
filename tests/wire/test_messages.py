"""The messages are Kafka's: field by field as its own definitions say, byte by byte as kio writes them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import importlib
import importlib.metadata
import io
import json
import re
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from wire_samples import EVERY_CODEC, encoded, messages

from aioproducer.wire.messages import SPECS
from aioproducer.wire.schema import codec, message
from aioproducer.wire.spec import ZERO_ID, Field

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)
_SHORTER_NAMES = {  # ours are the same in every message
    "topic_data": "topics",
    "partition_data": "partitions",
    "partition_responses": "partitions",
}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _our_name(name: str, message_name: str) -> str:
    if message_name == "Produce.response" and name == "responses":
        return "topics"
    return _SHORTER_NAMES.get(name, name)


# Kafka's definitions, as kafka-python ships them


def _definition(name: str) -> dict[str, Any]:
    path = f"kafka/protocol/schemas/resources/{name.replace('.', '').replace('request', 'Request').replace('response', 'Response')}.json"
    text = importlib.metadata.distribution("kafka-python").locate_file(path).read_text()
    definition: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return definition


def _span(text: str | None, within: range) -> set[int]:
    """The versions of "3+", "3-5", "3" or "none" that we speak."""
    if text is None or text == "none":
        return set()
    first, _, last = text.partition("-")
    end = within.stop if text.endswith("+") else int(last or first) + 1
    return set(range(int(first.rstrip("+")), end)) & set(within)


def _definition_default(entry: dict[str, Any], *, is_array: bool, is_nullable: bool) -> object:
    if is_array:
        return ()
    default = entry.get("default")
    if default == "null" or (default is None and is_nullable):
        return None
    implicit: dict[str, object] = {"string": "", "bool": False, "uuid": ZERO_ID}
    if default is None:
        return implicit.get(entry["type"], 0 if entry["type"].startswith("int") else None)
    return {"true": True, "false": False, "": ""}.get(default) if entry["type"] in {"bool", "string"} else int(str(default), 0)


def _kinds(entry: dict[str, Any]) -> tuple[str, bool]:
    kind = entry["type"].removeprefix("[]")
    known = {"int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "string": "str", "records": "bytes"}
    return known.get(kind, kind if kind in {"bool", "uuid"} else "struct"), entry["type"].startswith("[]")


def _facts_of_definition(entries: list[dict[str, Any]], name: str, versions: range, parent: set[int]) -> list[dict[str, Any]]:
    facts = []
    for entry in entries:
        present = _span(entry["versions"], versions) & parent
        if not present:
            continue
        kind, is_array = _kinds(entry)
        nullable = _span(entry.get("nullableVersions"), versions) & present
        facts.append(
            {
                "name": _our_name(_snake(entry["name"]), name),
                "kind": kind,
                "is_array": is_array,
                "versions": present,
                "null": nullable,
                "tag": entry.get("tag"),
                "default": _definition_default(entry, is_array=is_array, is_nullable=bool(nullable)),
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
    assert set(spec.versions) <= _span(definition["validVersions"], range(1 << 15))
    assert spec.flexible == int(definition["flexibleVersions"].rstrip("+"))
    versions = set(spec.versions)
    assert _facts_of_spec(spec.fields, spec.versions, versions) == _facts_of_definition(definition["fields"], name, spec.versions, versions)


# kio, an implementation that shares nothing with ours


def _kio_entity(name: str, version: int) -> Any:
    api, _, side = name.partition(".")
    module = importlib.import_module(f"kio.schema.{_snake(api)}.v{version}.{side}")
    return getattr(module, f"{api}{side.capitalize()}")


def _from_kio(value: Any, field: Any = None) -> Any:
    """A kio value as ours: structures as dicts, times as milliseconds, ids as bytes."""
    match value:
        case None:
            plain: Any = {"uuid": ZERO_ID, "datetime_i64": -1}.get(field.metadata.get("kafka_type"))
        case tuple():
            plain = [_from_kio(element, field) for element in value]
        case dt.timedelta():
            plain = value // _MILLISECOND
        case dt.datetime():
            plain = (value - _EPOCH) // _MILLISECOND
        case uuid.UUID():
            plain = value.bytes
        case enum.Enum():
            plain = value.value
        case _ if dataclasses.is_dataclass(value):
            plain = {part.name: _from_kio(getattr(value, part.name), part) for part in dataclasses.fields(value)}
        case _:
            plain = value
    return plain


def _assert_same(ours: Any, theirs: Any, name: str) -> None:
    if isinstance(theirs, dict):
        for their_name, value in theirs.items():
            our_name = _our_name(their_name, name)
            if not hasattr(ours, our_name):
                our_name += "_ms"  # kio names a duration, we its milliseconds
            _assert_same(getattr(ours, our_name), value, name)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for our_element, their_element in zip(ours, theirs, strict=True):
            _assert_same(our_element, their_element, name)
    else:
        assert ours == theirs


@pytest.mark.parametrize(("name", "version"), EVERY_CODEC)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(draw=st.data())
def test_kio_reads_and_writes_the_same_bytes(name: str, version: int, draw: st.DataObject) -> None:
    """What we write, kio reads as the same values under the same names, and writes again as the same bytes, which we read as ours."""
    sample = draw.draw(messages(name, version, tame=True))
    data = encoded(name, version, sample)
    entity = _kio_entity(name, version)
    theirs, size = entity_reader(entity)(data, 0)
    assert size == len(data)
    _assert_same(sample, _from_kio(theirs), name)
    written = io.BytesIO()
    entity_writer(entity)(written, theirs)
    assert written.getvalue() == data
    assert codec(name, version).decode(written.getvalue()) == sample


def test_metadata_v0_lacks_much_and_defaults_it() -> None:
    """The oldest answer, from its bytes: what it has is read, what later versions have is as Kafka's default."""
    data = bytes.fromhex(
        "00000001 00000007 0009 6c6f63616c686f7374 00002384"  # brokers: 7, localhost, 9092
        "00000001 0000 0001 74 00000001 0000 00000003 00000007 00000001 00000007 00000001 00000007"  # topic t: partition 3, leader 7
    )
    answer = codec("Metadata.response", 0).decode(data)
    assert [(broker.node_id, broker.host, broker.port, broker.rack) for broker in answer.brokers] == [(7, "localhost", 9092, None)]
    assert (answer.cluster_id, answer.controller_id, answer.throttle_time_ms, answer.error_code) == (None, -1, 0, 0)
    (topic,) = answer.topics
    assert (topic.name, topic.topic_id, topic.is_internal, topic.topic_authorized_operations) == ("t", bytes(16), False, -(2**31))
    (partition,) = topic.partitions
    assert (partition.partition_index, partition.leader_id, partition.leader_epoch) == (3, 7, -1)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ((7,), (7,), ())


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
    partitions = [message(path, index=0, error_code=6, current_leader=leader), message(path, index=1)]
    answer = message("Produce.response", topics=[message("Produce.response.topics", name="t", partitions=partitions)])
    moved, stayed = codec("Produce.response", 10).decode(encoded("Produce.response", 10, answer)).topics[0].partitions
    assert (moved.current_leader.leader_id, moved.current_leader.leader_epoch) == (2, 9)
    assert (stayed.current_leader.leader_id, stayed.current_leader.leader_epoch) == (-1, -1)
    older = codec("Produce.response", 9).decode(encoded("Produce.response", 9, answer)).topics[0].partitions[0]
    assert older.current_leader.leader_id == -1
