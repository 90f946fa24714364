"""Two implementations of Kafka's protocol that share nothing with ours, behind one face: kio and kafka-python."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import importlib
import io
import re
import uuid
import warnings
from typing import Any, Final, NamedTuple

from kio.serial import entity_reader, entity_writer

from aioproducer.wire.spec import ZERO_ID

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its modules use what Python 3.11 deprecates
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.schemas.fields.codecs.types import BitField

__all__ = ["LACKS", "ORACLES", "Lack", "kio", "our_name", "snake"]

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)
_FAMILIES: Final = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)
_SHORTER_NAMES: Final = {  # ours are the same in every message
    "topic_data": "topics",
    "partition_data": "partitions",
    "partition_responses": "partitions",
    "results_by_transaction": "transactions",
    "results_by_topic_v3_and_below": "topics",
    "topic_results": "topics",
    "results_by_partition": "partitions",
    "partition_error_code": "error_code",
}


class Lack(NamedTuple):
    """Versions of a request and its answer that an oracle does not know."""

    oracle: str
    api: str
    versions: range
    reason: str


LACKS: Final = (
    Lack(
        "kio",
        "Produce",
        range(3),
        "it is generated from Kafka 4's definitions, and Kafka 4 takes Produce from version 3 on",
    ),
)


def snake(name: str) -> str:
    """PascalCase as ours."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def our_name(name: str, message_name: str) -> str:
    """Return our name of a field that Kafka calls `name`."""
    if message_name == "Produce.response" and name == "responses":
        return "topics"
    name = name.removeprefix("v3_and_below_")
    return _SHORTER_NAMES.get(name, name)


def kio(name: str, version: int) -> Any:
    """kio's type of a message. ImportError: it has none."""
    api, _, side = name.partition(".")
    module = importlib.import_module(f"kio.schema.{snake(api)}.v{version}.{side}")
    return getattr(module, f"{api}{side.capitalize()}")


def check_with_kio(name: str, version: int, sample: Any, data: bytes) -> None:
    """kio reads our bytes as the values of our message, under the same names, and writes the same bytes again."""
    entity = kio(name, version)
    theirs, size = entity_reader(entity)(data, 0)
    assert size == len(data)
    _assert_same(sample, _from_kio(theirs), name)
    written = io.BytesIO()
    entity_writer(entity)(written, theirs)
    assert written.getvalue() == data


def check_with_kafka_python(name: str, version: int, sample: Any, data: bytes) -> None:
    """kafka-python writes the values of our message as the same bytes, and reads our bytes as the message that it wrote."""
    kind = name.replace(".request", "Request").replace(".response", "Response")
    family = next(family for family in _FAMILIES if hasattr(family, kind))
    theirs = _to_kafka_python(getattr(family, kind), sample, version, name)
    assert bytes(theirs.encode(version=version)) == data
    read = ApiMessage.decode.__func__(
        type(theirs), data, version=version
    )  # not ApiVersions' own, which guesses the version
    assert read.to_dict(json=False) == theirs.to_dict(json=False)


ORACLES: Final = {"kio": check_with_kio, "kafka-python": check_with_kafka_python}


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
            plain = {
                part.name: _from_kio(getattr(value, part.name), part)
                for part in dataclasses.fields(value)
            }
        case _:
            plain = value
    return plain


def _assert_same(ours: Any, theirs: Any, name: str) -> None:
    if isinstance(theirs, dict):
        for their_name, value in theirs.items():
            known = our_name(their_name, name)
            if not hasattr(ours, known):
                known += "_ms"  # kio names a duration, we its milliseconds
            _assert_same(getattr(ours, known), value, name)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for our_element, their_element in zip(ours, theirs, strict=True):
            _assert_same(our_element, their_element, name)
    else:
        assert ours == theirs


def _to_kafka_python(kind: Any, ours: Any, version: int, name: str) -> Any:
    values = {}
    for field in kind._struct._fields:
        if field.for_version_q(version):
            is_bits = field.type_str == "bitfield"  # they dropped the first word of its name
            known = (
                next(slot for slot in ours.__slots__ if slot.endswith(field.name))
                if is_bits
                else our_name(field.name, name)
            )
            values[field.name] = _value_for_kafka_python(
                kind, field, getattr(ours, known), version, name
            )
    return kind(version=version, **values)


def _value_for_kafka_python(kind: Any, field: Any, value: Any, version: int, name: str) -> Any:
    if value is None or (field.type_str == "uuid" and value == ZERO_ID):
        return None
    if field.is_struct():
        return _to_kafka_python(getattr(kind, field.type_str), value, version, name)
    if field.is_struct_array():
        return [
            _to_kafka_python(getattr(kind, field.type_str), element, version, name)
            for element in value
        ]
    if field.type_str == "uuid":
        return uuid.UUID(bytes=value)
    if field.type_str == "bitfield":
        return None if value == -(2**31) else BitField.from_32_bit_field(value & 0xFFFFFFFF)
    return list(value) if isinstance(value, tuple) else value
