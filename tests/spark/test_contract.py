"""The table of columns, and the text for each mistake."""

from __future__ import annotations

import pytest

from aioproducer.spark.contract import COLUMNS, column_problems, nearest

HEADERS = "array<struct<key:string,value:binary>>"
LISTED = "The columns are value, key, topic, partition, headers"
TABLE = [
    ([("value", "binary")], []),
    (
        [
            ("value", "string"),
            ("key", "string"),
            ("headers", HEADERS),
            ("timestamp", "date"),
            ("partition", "int"),
            ("topic", "string"),
        ],
        [],
    ),
    # what Spark's source gives
    (
        [
            (n, k)
            for n, k in zip(
                ["key", "value", "topic", "partition"],
                ["binary", "binary", "string", "int"],
                strict=True,
            )
        ]
        + [
            ("offset", "bigint"),
            ("timestamp", "timestamp"),
            ("timestampType", "int"),
            ("headers", HEADERS),
        ],
        [],
    ),
    ([], ["there is no column 'value'"]),
    (
        [("Value", "binary")],
        [
            "there is no column 'value' ('Value' is another name: upper and lower case count)",
            "column 'Value' is not written: did you mean 'value'? Else drop it, or put it into value",
        ],
    ),
    (
        [("value", "binary"), ("keys", "binary")],
        ["column 'keys' is not written: did you mean 'key'? Else drop it, or put it into value"],
    ),
    (
        [("value", "binary"), ("id", "bigint")],
        [f"column 'id' is not written: drop it, or put it into value. {LISTED}"],
    ),
    ([("value", "binary"), ("value", "binary")], ["there are 2 columns 'value': keep one"]),
    (
        [("value", "int")],
        [
            "column 'value' is int, and it has to be binary or string (cast it: .cast('string'), or to_json)"
        ],
    ),
    (
        [("value", "struct<a:int>"), ("key", "bigint")],
        [
            "column 'value' is struct<a:int>, and it has to be binary or string (cast it: .cast('string'), or to_json)",
            "column 'key' is bigint, and it has to be binary or string (cast it: .cast('string'))",
        ],
    ),
    (
        [("value", "string"), ("topic", "binary")],
        ["column 'topic' is binary, and it has to be string (cast it: .cast('string'))"],
    ),
    (
        [("value", "string"), ("partition", "bigint")],
        ["column 'partition' is bigint, and it has to be int (cast it: .cast('int'))"],
    ),
    (
        [("value", "string"), ("headers", "map<string,binary>")],
        [
            f"column 'headers' is map<string,binary>, and it has to be {HEADERS} (names and order of the fields count)"
        ],
    ),
]


@pytest.mark.parametrize(("columns", "problems"), TABLE)
def test_texts(columns: list[tuple[str, str]], problems: list[str]) -> None:
    """Each mistake has its text, and all of them are told at once."""
    assert column_problems(columns, has_topic=True) == problems


@pytest.mark.parametrize(
    ("columns", "problems"),
    [
        ([("topic", "string")], []),
        ([], ["there is no topic: give the option 'topic', or a column 'topic'"]),
        (
            [("Topic", "string")],
            [
                "there is no topic: give the option 'topic', or a column 'topic' ('Topic' is another name: upper and lower case count)",
                "column 'Topic' is not written: did you mean 'topic'? Else drop it, or put it into value",
            ],
        ),
    ],
)
def test_a_topic_is_named_once_or_in_each_row(
    columns: list[tuple[str, str]], problems: list[str]
) -> None:
    assert column_problems([("value", "string"), *columns], has_topic=False) == problems


@pytest.mark.parametrize(
    ("columns", "problems"),
    [
        ([("at", "timestamp")], []),
        ([("timestamp", "timestamp"), ("at", "timestamp")], []),
        ([], ["option 'timestampColumn' names the column 'at', and there is none"]),
        (
            [("at", "date")],
            [
                "column 'at' is date, and option 'timestampColumn' needs timestamp (cast it: .cast('timestamp'))"
            ],
        ),
    ],
)
def test_the_times_of_records_are_a_column_that_is_named(
    columns: list[tuple[str, str]], problems: list[str]
) -> None:
    columns = [("value", "string"), *columns]
    assert column_problems(columns, has_topic=True, times="at") == problems


def test_near_names() -> None:
    """Upper and lower case do not matter; what resembles nothing gets no name."""
    assert nearest("HEADER", COLUMNS) == "headers"
    assert nearest("id", COLUMNS) is None
