"""Checks the sink's options that begin with `kafka.`, in the driver: all of them are read as the producer reads them.

A secret has to be a reference, because Spark writes options down as text: in plans, in events, and in what it sends to executors. A
reference is not read here: it stands for a variable or a file of the executor.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioproducer.config.option_names import options_of
from aioproducer.config.producer_config import OPTIONS, ProducerConfig
from aioproducer.config.secret import has_private_key, is_reference
from aioproducer.config.security_options import type_of
from aioproducer.errors import ConfigError
from aioproducer.model import Acks
from aioproducer.spark.sink_options import EXACTLY_ONCE, PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioproducer.spark.sink_options import SinkOptions

__all__ = ["LITERAL", "kafka_problems"]

# What is to be written in place of a secret's text.
LITERAL: Final = (
    "as text, and Spark writes options down, in plans and events. Write a reference, ${env:NAME}, and set the variable in the executors "
    "(spark.executorEnv.NAME; on Kubernetes spark.kubernetes.executor.secretKeyRef.NAME=secret:key; on Databricks "
    "NAME={{secrets/scope/key}} among the cluster's environment variables), or ${file:/path}, a file that the executors have. "
    'Within sasl.jaas.config it is password="${env:NAME}"'
)
# Fields that are not the user's to choose, with what is said of them.
_CHOSEN: Final[Mapping[str, str]] = {
    "transactional_id": "the sink names its transactions: leave it out. transactionalIdPrefix is what their names begin with",
    "key_serializer": "columns hold bytes or text already: leave it out",
    "value_serializer": "columns hold bytes or text already: leave it out",
}
_ADDRESSES: Final = ("bootstrap.servers", "metadata.broker.list", "bootstrap_servers")
# A name at the beginning of a text, and the one that it may have been meant for.
_QUOTED: Final = re.compile(r"(^|unknown option |did you mean )'([\w.]+)'")
# Options with which the others are read: a value of these decides what the rest says.
_CONTEXT: Final = ("compression.type", "config.providers", "sasl.mechanism", "sasl.mechanisms")


def kafka_problems(options: SinkOptions) -> list[str]:
    """Return what is wrong with the options of Kafka, a text for each problem. No text has a secret."""
    kafka: dict[str, Any] = dict(options.kafka)
    problems = (
        []
        if any(name in kafka for name in _ADDRESSES)
        else [f"option '{PREFIX}{_ADDRESSES[0]}' is missing"]
    )
    literal: list[str] = []
    problems += _each_alone(kafka, literal)
    if literal:
        problems.append(f"{', '.join(literal)}: a secret is given {LITERAL}")
    if not problems:
        problems += _conflicts(kafka, options.delivery)
    return problems


def _each_alone(kafka: Mapping[str, Any], literal: list[str]) -> list[str]:
    """Return what is wrong with each option, read alone but for those that decide how it is read.

    Args:
        kafka: the options, with hidden secrets.
        literal: gets the names of options that hold a secret as its text.
    """
    context = {name: value for name, value in kafka.items() if _is_context(name)}
    known: dict[str, Any] = {}
    problems = []
    try:
        known = options_of(context, OPTIONS)
    except ConfigError as error:
        problems.append(_told(next(iter(context)), error))
        context = {}
    problems += _value_problems(known, {field: field.replace("_", ".") for field in known}, literal)
    for name in kafka:
        if _is_context(name):
            continue
        try:
            fields = options_of({**context, name: kafka[name]}, OPTIONS)
        except ConfigError as error:
            problems.append(_told(name, error))
        else:
            problems += _value_problems(
                fields, dict.fromkeys(fields.keys() - known.keys(), name), literal
            )
    return problems


def _is_context(name: str) -> bool:
    return name in _CONTEXT or name.startswith("config.providers.")


def _value_problems(
    fields: Mapping[str, Any], names: Mapping[str, str], literal: list[str]
) -> list[str]:
    """Return what is wrong with the values of some fields; `names` has the options that set them."""
    problems = []
    for field, name in names.items():
        value, kind = fields[field], OPTIONS[field].kind
        if isinstance(value, str) and (
            has_private_key(value) or (kind.is_secret and not is_reference(value))
        ):
            literal.append(PREFIX + name)
            continue
        try:
            made = kind.read(field, value)
        except ConfigError as error:
            problems.append(_told(name, error, field))
        else:
            problems += (
                [f"{PREFIX}{name}: {_CHOSEN[field]}"]
                if field in _CHOSEN and made is not None
                else []
            )
    return problems


def _told(name: str, error: ConfigError, field: str = "") -> str:
    """Return an error's text with the name of its option as the user has written it."""
    text = str(error)
    for own in filter(None, (name, field)):
        if text.startswith(own):
            return f"{PREFIX}{name}{text[len(own) :]}"
    return (
        _QUOTED.sub(rf"\1'{PREFIX}\2'", text)
        if text.startswith(f"unknown option {name!r}")
        else f"{PREFIX}{name}: {text}"
    )


def _conflicts(kafka: Mapping[str, Any], delivery: str) -> list[str]:
    """Return what is wrong with options that are right one by one."""
    try:
        config = ProducerConfig.from_mapping(kafka)
    except ConfigError as error:
        return [str(error)]
    problems = [*_store_problems(config)]
    if config.acks is Acks.NONE:
        problems.append(f"{PREFIX}acks=0: nothing would say that a row is written. It is all, or 1")
    if delivery == EXACTLY_ONCE and not config.is_idempotent:
        problems.append(
            f"delivery={EXACTLY_ONCE} needs {PREFIX}acks=all and {PREFIX}enable.idempotence=true: leave both out"
        )
    return problems


def _store_problems(config: ProducerConfig) -> Iterator[str]:
    """Yield what is wrong with the key stores that this machine has, too. Executors read theirs when they connect."""
    for name in ("truststore", "keystore"):
        path = getattr(config, f"ssl_{name}_location")
        if path is not None and Path(path).is_file():
            try:
                type_of(f"{PREFIX}ssl.{name}.location", path, getattr(config, f"ssl_{name}_type"))
            except ConfigError as error:
                yield str(error)
