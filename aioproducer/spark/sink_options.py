"""Reads the options of the sink. Spark lower-cases their names.

A Python process that Spark starts for a step of a micro-batch imports this module before the step begins, so it imports nothing that is slow:
`kafka_options` checks what begins with `kafka.`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.spark.contract import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AT_LEAST_ONCE",
    "EXACTLY_ONCE",
    "MAX_NAME_BYTES",
    "OPTIONS",
    "PREFIX",
    "TOPIC",
    "SinkOptions",
    "option_problems",
]

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE: Final = "exactly_once"
PREFIX: Final = "kafka."
_PREFIX: Final = "spark-"

# The options of the sink, as they are written in documents.
OPTIONS: Final = (
    "topic",
    "timestampColumn",
    "delivery",
    "transactionalIdPrefix",
    "transactionalId",
    "ledgerTopic",
)
_BY_LOWER: Final = {name.lower(): name for name in OPTIONS}
# What Spark itself puts among the options of a streaming query.
_SPARKS: Final = ("checkpointlocation", "queryname")
_TOPICS: Final = ("topic", "ledgertopic")
# Kafka's own rule.
TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_SHOWN: Final = 40
# Brokers read no longer text. The longest that is added to a name is "-driver.", and the number of a decision's last group.
_MAX_ID_BYTES: Final = 2**15 - 1
MAX_NAME_BYTES: Final = _MAX_ID_BYTES - len("-driver.21474836")
# The id of a query is a UUID, and so is the name of a write without one, without its dashes.
_QUERY_BYTES: Final = 36
_WRITE_BYTES: Final = 32
_OF_TRANSACTIONS: Final = ("transactionalidprefix", "transactionalid", "ledgertopic")


class SinkOptions(NamedTuple):
    """Holds the options of one write, or of one streaming query.

    Attributes:
        kafka: the options that begin with `kafka.`, without that.
        is_stream: True for a streaming query.
        topic: None: the column `topic` names it.
        delivery: `at_least_once` or `exactly_once`.
        prefix: what transactional ids begin with.
        transactional_id: the name of a batch write; None: it has none.
        ledger_topic: the topic whose partition 0 keys the marks of transactions; None where `topic` is None, too.
        times: the column that has the records' times; None: they are written now.
    """

    kafka: dict[str, str]
    is_stream: bool
    topic: str | None = None
    delivery: str = AT_LEAST_ONCE
    prefix: str = _PREFIX
    transactional_id: str | None = None
    ledger_topic: str | None = None
    times: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
        """Return the options that a mapping of Spark has. Nothing is checked."""
        lower = {name.lower(): value for name, value in options.items()}
        topic = lower.get("topic")
        return cls(
            kafka={
                name.removeprefix(PREFIX): value
                for name, value in lower.items()
                if name.startswith(PREFIX)
            },
            is_stream=is_stream,
            topic=topic,
            delivery=lower.get("delivery", AT_LEAST_ONCE).strip().lower(),
            prefix=lower.get("transactionalidprefix", _PREFIX),
            transactional_id=lower.get("transactionalid"),
            ledger_topic=lower.get("ledgertopic", topic),
            times=lower.get("timestampcolumn"),
        )


def option_problems(options: Mapping[str, str], *, is_stream: bool) -> list[str]:
    """Return what is wrong with the options that do not begin with `kafka.`, a text for each problem."""
    lower = {
        name.lower(): value
        for name, value in options.items()
        if not name.lower().startswith(PREFIX)
    }
    problems = [_unknown(name) for name in lower if name not in _BY_LOWER and name not in _SPARKS]
    problems += [
        f"option {_BY_LOWER[name]!r} is empty: leave it out"
        for name in _BY_LOWER
        if not lower.get(name, "-").strip()
    ]
    problems += [
        f"option {_BY_LOWER[name]!r} is {lower[name][:_SHOWN]!r}, which names no topic: up to 249 of a-z A-Z 0-9 . _ - do"
        for name in _TOPICS
        if lower.get(name, "").strip() and TOPIC.fullmatch(lower[name]) is None
    ]
    made = SinkOptions.of(options, is_stream=is_stream)
    if made.delivery not in {AT_LEAST_ONCE, EXACTLY_ONCE}:
        problems.append(f"delivery={lower['delivery']!r}: it is {AT_LEAST_ONCE} or {EXACTLY_ONCE}")
    elif made.delivery == AT_LEAST_ONCE:
        problems += [
            f"option {_BY_LOWER[name]!r} is for delivery={EXACTLY_ONCE}: give that, too, or leave it out"
            for name in _OF_TRANSACTIONS
            if name in lower
        ]
    else:
        problems += _transaction_problems(made)
    return problems


def _transaction_problems(made: SinkOptions) -> list[str]:
    problems = []
    if made.is_stream and made.transactional_id is not None:
        problems.append(
            "option 'transactionalId' is for a batch: a query's transactions have its own id. Give transactionalIdPrefix"
        )
    problems += _name_problems(made)
    if made.ledger_topic is None:
        problems.append(
            f"option 'ledgerTopic' is missing: with delivery={EXACTLY_ONCE} and topics from a column, name the topic whose partition 0 keys "
            "the marks of transactions"
        )
    return problems


def _name_problems(made: SinkOptions) -> list[str]:
    """Return what is wrong with the name from which transactional ids and consumer groups are made."""
    size, limit = len(made.prefix.encode(errors="replace")), MAX_NAME_BYTES
    named = "option 'transactionalIdPrefix' has"
    if made.is_stream:
        limit -= _QUERY_BYTES
    elif made.transactional_id is None:
        limit -= _WRITE_BYTES
    else:
        size += len(made.transactional_id.encode(errors="replace"))
        named = "options 'transactionalIdPrefix' and 'transactionalId' have"
    if size > limit:
        return [
            f"{named} {size:,} bytes: at most {limit:,} are possible, as the sink adds to it, and Kafka reads {_MAX_ID_BYTES:,} bytes"
        ]
    return []


def _unknown(name: str) -> str:
    if name == "path":
        return (
            "the sink has no path: call save() or start() without one, and give the option 'topic'"
        )
    near = (
        f"{PREFIX}{name}"
        if name in _KAFKAS
        else nearest(name, (*OPTIONS, *(f"{PREFIX}{one}" for one in _KAFKAS)))
    )
    if near is None:
        return f"unknown option {name!r}: the options are {', '.join(OPTIONS)}, and Kafka's, which begin with {PREFIX}"
    return f"unknown option {name!r}; did you mean {near!r}?"


# Options of Kafka without their prefix.
_KAFKAS: Final = (
    "acks",
    "batch.size",
    "bootstrap.servers",
    "compression.type",
    "linger.ms",
    "sasl.jaas.config",
    "sasl.mechanism",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "ssl.keystore.location",
    "ssl.truststore.location",
    "transactional.id",
)
