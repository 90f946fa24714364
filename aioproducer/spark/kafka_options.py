"""Checks the sink's options that begin with `kafka.`, in the driver: all of them are read as the producer reads them.

A secret has to be a reference, because Spark writes options down as text: in plans, in events, and in what it sends to executors. A
reference is not read here: it stands for a variable or a file of the executor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.config import OPTIONS, ProducerConfig
from aioproducer.errors import ConfigError, UsageError
from aioproducer.model import Acks
from aioproducer.option_names import hide_secrets, options_of
from aioproducer.record_validation import check_topic
from aioproducer.secret import Secret
from aioproducer.secure_kinds import is_secret
from aioproducer.spark.sink_options import EXACTLY_ONCE, PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.spark.sink_options import SinkOptions

__all__ = ["LITERAL", "kafka_problems"]

# What is to be written in place of a secret's text.
LITERAL: Final = (
    "a secret is written as a reference, because Spark writes options down. Write ${env:NAME}, and set the variable in the executors: "
    "spark.executorEnv.NAME, on Kubernetes spark.kubernetes.executor.secretKeyRef.NAME=secret:key, on Databricks "
    "NAME={{secrets/scope/key}} among the cluster's environment variables; or write ${file:/path}, a file of the executors"
)
# Options with which the others are read: a value of these decides what the rest says.
_CONTEXT: Final = ("compression.type", "config.providers", "sasl.mechanism", "sasl.mechanisms")


def kafka_problems(options: SinkOptions) -> list[str]:
    """Return what is wrong with the options of Kafka and with the names of topics, a text for each problem. No text has a secret."""
    kafka: dict[str, Any] = dict(options.kafka)
    hide_secrets(kafka, OPTIONS)
    problems = [] if "bootstrap.servers" in kafka or "metadata.broker.list" in kafka else [f"option '{PREFIX}bootstrap.servers' is missing"]
    problems += _topic_problems(options)
    problems += _each_alone(kafka)
    if not problems:
        problems += _conflicts(kafka, options.delivery)
    return problems


def _topic_problems(options: SinkOptions) -> list[str]:
    problems = []
    for name, topic in (("topic", options.topic), ("ledgerTopic", options.ledger_topic)):
        if topic is None or not topic.strip() or (name == "ledgerTopic" and topic == options.topic):
            continue
        try:
            check_topic(topic)
        except UsageError as error:
            problems.append(f"option {name!r}: {error}")
    return problems


def _each_alone(kafka: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with each option, read alone but for those that decide how it is read."""
    context = {name: value for name, value in kafka.items() if name in _CONTEXT or name.startswith("config.providers.")}
    problems, known = [], {}
    try:
        known = options_of(context, OPTIONS)
    except ConfigError as error:
        problems.append(f"{PREFIX}{next(iter(context))}: {error}")
        context = {}
    problems += [problem for field, value in known.items() for problem in _value_problems(field.replace("_", "."), field, value)]
    for name, value in kafka.items():
        if name in _CONTEXT or name.startswith("config.providers."):
            continue
        try:
            fields = options_of({**context, name: value}, OPTIONS)
        except ConfigError as error:
            problems.append(f"{PREFIX}{name}: {error}")
            continue
        problems += [problem for field in fields if field not in known for problem in _value_problems(name, field, fields[field])]
    return problems


def _value_problems(name: str, field: str, value: Any) -> list[str]:
    kind = OPTIONS[field].kind
    if is_secret(kind) and isinstance(value, Secret) and value.reference is None:
        return [f"{PREFIX}{name}: {LITERAL}"]
    try:
        kind.read(field, value)
    except ConfigError as error:
        return [f"{PREFIX}{name}: {error}"]
    return []


def _conflicts(kafka: Mapping[str, Any], delivery: str) -> list[str]:
    """Return what is wrong with options that are right one by one."""
    try:
        config = ProducerConfig.from_mapping(kafka)
    except ConfigError as error:
        return [str(error)]
    problems = []
    if config.transactional_id is not None:
        problems.append(
            f"{PREFIX}transactional.id: the sink names its transactions. Leave it out; transactionalIdPrefix is what they begin with"
        )
    if config.key_serializer is not None or config.value_serializer is not None:
        problems.append(f"{PREFIX}key.serializer, {PREFIX}value.serializer: columns are bytes or text already; leave them out")
    if config.acks is Acks.NONE:
        problems.append(f"{PREFIX}acks=0: nothing would say that a row is written. It is all, or 1")
    if delivery == EXACTLY_ONCE and not config.is_idempotent:
        problems.append(f"delivery={EXACTLY_ONCE} needs {PREFIX}acks=all and {PREFIX}enable.idempotence=true: leave both out")
    return problems
