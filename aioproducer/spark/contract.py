"""Checks the columns of a DataFrame against the table of columns and types that the sink writes: those of Spark's own Kafka sink.

A Python process that Spark starts for a step of a micro-batch imports this module before the step begins, so it imports nothing that is slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["COLUMNS", "IGNORED", "column_problems", "nearest"]

_HEADERS: Final = "array<struct<key:string,value:binary>>"
# The names of Spark's own sink, with the types as `DataType.simpleString` writes them.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": (_HEADERS,),
}
# Columns of Spark's Kafka source that its own sink ignores, too: what the source gives can be written as it is. A record with the time of the
# one that it was made from may be older than its new topic keeps records.
IGNORED: Final = ("offset", "timestamp", "timestampType")
_KNOWN: Final = (*COLUMNS, *IGNORED)
# How each column is made of another type.
_CASTS: Final[Mapping[str, str]] = {
    "value": "cast it: .cast('string'), or to_json",
    "key": "cast it: .cast('string')",
    "topic": "cast it: .cast('string')",
    "partition": "cast it: .cast('int')",
    "headers": "names and order of the fields count",
}


def column_problems(
    columns: Sequence[tuple[str, str]], *, has_topic: bool, times: str | None = None
) -> list[str]:
    """Return what is wrong with the columns, a text for each problem.

    Args:
        columns: the name and the type of each column, as `DataType.simpleString` writes it.
        has_topic: True if the option `topic` is given.
        times: the column that the option `timestampColumn` names.
    """
    names = [name for name, _ in columns]
    problems = []
    if "value" not in names:
        problems.append(f"there is no column 'value'{_written_otherwise('value', names)}")
    if not has_topic and "topic" not in names:
        problems.append(
            f"there is no topic: give the option 'topic', or a column 'topic'{_written_otherwise('topic', names)}"
        )
    problems += [
        f"there are {names.count(name)} columns {name!r}: keep one"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    if times is not None and times not in names:
        problems.append(f"option 'timestampColumn' names the column {times!r}, and there is none")
    for name, kind in columns:
        if name == times:
            if kind != "timestamp":
                problems.append(
                    f"column {name!r} is {kind}, and option 'timestampColumn' needs timestamp (cast it: .cast('timestamp'))"
                )
        elif name not in _KNOWN:
            problems.append(f"column {name!r} is not written: {_near(name)}")
        elif name in COLUMNS and kind not in COLUMNS[name]:
            problems.append(
                f"column {name!r} is {kind}, and it has to be {' or '.join(COLUMNS[name])} ({_CASTS[name]})"
            )
    return problems


def _written_otherwise(name: str, names: Sequence[str]) -> str:
    found = next((one for one in names if one.lower() == name), None)
    return "" if found is None else f" ({found!r} is another name: upper and lower case count)"


def _near(name: str) -> str:
    near = nearest(name, _KNOWN)
    advice = "drop it, or put it into value"
    return (
        f"{advice}. The columns are {', '.join(COLUMNS)}"
        if near is None
        else f"did you mean {near!r}? Else {advice}"
    )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a name resembles most; None: there is none."""
    # Each process that Spark starts imports this module, and only one that finds a mistake needs it.
    import difflib

    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, 1, 0.6)
    return by_lower[found[0]] if found else None
