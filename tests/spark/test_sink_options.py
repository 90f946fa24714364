"""The sink's own options, and the text for each mistake."""

from __future__ import annotations

import pytest

from aioproducer.spark.ledger import QueryName
from aioproducer.spark.sink_options import MAX_NAME_BYTES, OPTIONS, SinkOptions, option_problems

ONCE = {"delivery": "exactly_once", "topic": "t"}
LISTED = f"the options are {', '.join(OPTIONS)}, and Kafka's, which begin with kafka."
TABLE = [
    ({}, []),
    ({"topic": "t", "kafka.linger.ms": "x", "checkpointLocation": "c", "queryName": "q"}, []),
    ({**ONCE, "transactionalidprefix": "p-", "transactionalid": "w", "LedgerTopic": "l"}, []),
    ({"delivery": " Exactly_Once ", "topic": "t"}, []),
    ({"topic": "t", "timestampcolumn": "at"}, []),
    ({"timestampColumn": " "}, ["option 'timestampColumn' is empty: leave it out"]),
    ({"topc": "t"}, ["unknown option 'topc'; did you mean 'topic'?"]),
    ({"acks": "1"}, ["unknown option 'acks'; did you mean 'kafka.acks'?"]),
    ({"sasl.passwrd": "x"}, ["unknown option 'sasl.passwrd'; did you mean 'kafka.sasl.password'?"]),
    ({"subscribe": "x"}, [f"unknown option 'subscribe': {LISTED}"]),
    (
        {"path": "/x"},
        ["the sink has no path: call save() or start() without one, and give the option 'topic'"],
    ),
    ({"topic": " "}, ["option 'topic' is empty: leave it out"]),
    (
        {"topic": "a b"},
        ["option 'topic' is 'a b', which names no topic: up to 249 of a-z A-Z 0-9 . _ - do"],
    ),
    (
        {"topic": ".."},
        ["option 'topic' is '..', which names no topic: up to 249 of a-z A-Z 0-9 . _ - do"],
    ),
    ({"topic": "..."}, []),
    (
        {**ONCE, "ledgerTopic": "x" * 250},
        [
            f"option 'ledgerTopic' is {'x' * 40!r}, which names no topic: up to 249 of a-z A-Z 0-9 . _ - do"
        ],
    ),
    (
        {"delivery": "at_most_once"},
        ["delivery='at_most_once': it is at_least_once or exactly_once"],
    ),
    (
        {"topic": "t", "transactionalIdPrefix": "p", "ledgerTopic": "l"},
        [
            "option 'transactionalIdPrefix' is for delivery=exactly_once: give that, too, or leave it out",
            "option 'ledgerTopic' is for delivery=exactly_once: give that, too, or leave it out",
        ],
    ),
    (
        {"delivery": "exactly_once"},
        [
            (
                "option 'ledgerTopic' is missing: with delivery=exactly_once and topics from a column, name the topic whose partition 0 keys "
                "the marks of transactions"
            )
        ],
    ),
]


@pytest.mark.parametrize(("options", "problems"), TABLE)
def test_texts(options: dict[str, str], problems: list[str]) -> None:
    assert option_problems(options, is_stream=False) == problems


def test_a_query_names_its_transactions_itself() -> None:
    assert option_problems({**ONCE, "transactionalId": "w"}, is_stream=True) == [
        "option 'transactionalId' is for a batch: a query's transactions have its own id. Give transactionalIdPrefix"
    ]


@pytest.mark.parametrize(
    ("options", "is_stream", "limit"),
    [
        ({"transactionalIdPrefix": "p"}, True, 32_715),
        ({"transactionalIdPrefix": "p"}, False, 32_719),
        (
            {
                "transactionalIdPrefix": "\N{LATIN SMALL LETTER E WITH ACUTE}",
                "transactionalId": "x" * 32_731,
            },
            False,
            20,
        ),
    ],
)
def test_names_are_bounded(options: dict[str, str], is_stream: bool, limit: int) -> None:
    """The longest id of a driver or a task still has a length that Kafka can write down; bytes count, not characters."""
    one = options["transactionalIdPrefix"]
    size = len(one.encode())
    assert (
        option_problems(
            {**ONCE, **options, "transactionalIdPrefix": one * (limit // size)}, is_stream=is_stream
        )
        == []
    )
    (problem,) = option_problems(
        {**ONCE, **options, "transactionalIdPrefix": one * (limit // size + 1)}, is_stream=is_stream
    )
    named = (
        "options 'transactionalIdPrefix' and 'transactionalId' have"
        if "transactionalId" in options
        else "option 'transactionalIdPrefix' has"
    )
    most = 32_751 if "transactionalId" in options else limit
    assert problem == (
        f"{named} {most + size:,} bytes: at most {most:,} are possible, as the sink adds to it, and Kafka reads 32,767 bytes"
    )


def test_the_longest_ids() -> None:
    """They are those of the last task that Spark can have, and of the last group of a decision of as many tasks."""
    rest = QueryName("")
    tasks = 2**31 - 1
    added = max(len(rest.transactional_id(tasks)), len(rest.decision_group(tasks // 100)))
    assert 2**15 - 1 - added == MAX_NAME_BYTES


def test_case_does_not_matter() -> None:
    """Spark lower-cases names; another caller need not."""
    made = SinkOptions.of(
        {
            "TOPIC": "T",
            "Kafka.Linger.ms": "5",
            "transactionalIdPrefix": "P-",
            "delivery": "Exactly_once",
        },
        is_stream=True,
    )
    assert made == SinkOptions(
        {"linger.ms": "5"}, True, topic="T", delivery="exactly_once", prefix="P-", ledger_topic="T"
    )
