"""The cases, as data."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from tests.tools.spark_faults.case import EXACTLY_ONCE, OURS, THEIRS, Case, Kills, Run
from tests.tools.spark_faults.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.tools.spark_faults.faults import Deed

__all__ = ["CASES", "MERGED", "case_named"]

_MORE: Final = 240_000
"""Rows of the cases in which tasks must be long, so that most kills find them writing."""
_TIMEOUT: Final = "kafka.transaction.timeout.ms"
_SHORT: Final = {_TIMEOUT: "12000"}
_LONG: Final = {_TIMEOUT: "60000"}
_UNTIL_EXPIRED: Final = 24.0  # the brokers look for expired transactions every 10 s
_TWELVE: Final = {"minPartitions": "12"}
_SINKS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "": (OURS, EXACTLY_ONCE),
    "-alo": (OURS, {}),
    "-jvm": (THEIRS, {}),
}
"""The sinks that meet the same random kills, by the end of the case's name."""


def at(step: str, batch: int, do: Deed, *, seconds: float = 0.0, **where: int) -> Fault:
    return Fault(step, batch, do, where, seconds)


TASKS: Final = (
    at("start", 4, "kill", partition=3, attempt=0),
    at("rows", 1, "raise", partition=0, attempt=0),
    at("rows", 5, "kill", partition=4, attempt=0),
    at("written", 2, "kill", partition=1, attempt=0),
    at("written", 7, "raise", partition=1, attempt=0),
    at("written", 7, "kill", partition=1, attempt=1),
    at("prepared", 3, "kill", partition=2, attempt=0),
    at("prepared", 6, "raise", partition=5, attempt=0),
    at("prepared", 6, "kill", partition=0, attempt=0),
    at("rows", 8, "raise", partition=2, attempt=0),
    at("prepared", 8, "kill", partition=2, attempt=1),
    at("written", 9, "kill", partition=5, attempt=0),
)
DRIVER: Final = (
    at("prepared", 0, "driver", partition=4),
    at("commit", 1, "driver"),
    at("undecided", 2, "driver"),
    at("decided", 3, "driver"),
    at("ended", 4, "driver", number=1),
    at("ended", 5, "driver", number=3),
    at("ended", 6, "driver", number=5),
    at("committed", 7, "driver"),
    at("rows", 8, "driver", partition=1),
    at("written", 9, "driver", partition=5),
)
COMMIT: Final = (
    at("commit", 1, "raise"),
    at("undecided", 2, "raise"),
    at("decided", 3, "raise"),
    at("ended", 4, "raise", number=1),
    at("ended", 5, "kill", number=3),
    at("decided", 6, "kill"),
    at("committed", 7, "raise"),
    at("commit", 8, "kill"),
    at("undecided", 9, "kill"),
)
EXHAUST: Final = (
    *(at("prepared", 2, "raise", partition=0, attempt=attempt) for attempt in range(3)),
    *(at("rows", 4, "kill", partition=3, attempt=attempt) for attempt in range(3)),
    *(at("written", 6, "raise", partition=5, attempt=attempt) for attempt in range(3)),
)
_ONE_ENDED: Final = Run(options=_SHORT, faults=(at("ended", 2, "driver", number=1),), dies=True)


def _scripted() -> Iterator[Case]:
    yield Case(name="tasks", runs=(Run(faults=TASKS),))
    yield Case(name="driver", runs=(Run(faults=DRIVER),))
    yield Case(name="tasks-v1", runs=(Run(faults=TASKS),), kafka="version-1")
    yield Case(name="driver-v1", runs=(Run(faults=DRIVER),), kafka="version-1")
    yield Case(name="commit", runs=(Run(faults=COMMIT),), again=9)
    yield Case(name="exhaust", runs=(Run(faults=EXHAUST),), again=3)
    # the driver dies after one EndTxn of six, and the others time out before it is back: those tasks are written again
    yield Case(name="lost", runs=(_ONE_ENDED, Run(options=_LONG, after=_UNTIL_EXPIRED)))
    # the same, but the next run has twelve tasks: it is refused, in words, and the run with six goes on
    refused = Run(
        options=_LONG,
        source_options=_TWELVE,
        after=_UNTIL_EXPIRED,
        dies=True,
        says=r"half committed.* 12 tasks",
    )
    yield Case(name="layout", runs=(_ONE_ENDED, refused, Run(options=_LONG)))
    # in time, the decided transactions are committed for any number of tasks
    yield Case(
        name="layout_forward",
        runs=(
            dataclasses.replace(_ONE_ENDED, options=_LONG),
            Run(options=_LONG, source_options=_TWELVE),
        ),
    )
    # nothing of the batch was committed when all timed out: it is written again, in any layout
    decided = Run(options=_SHORT, faults=(at("decided", 2, "driver"),), dies=True)
    yield Case(
        name="late",
        runs=(decided, Run(options=_LONG, source_options=_TWELVE, after=_UNTIL_EXPIRED)),
    )
    slept = Run(
        options=_SHORT,
        faults=(at("prepared", 1, "sleep", partition=0, seconds=30.0),),
        dies=True,
        says="transaction.timeout.ms",
    )
    yield Case(name="expired", runs=(slept, Run()))
    stopped = Run(
        faults=(at("undecided", 2, "stop", seconds=5.0),),
        is_stopped=True,
        dies=True,
        says="AnotherDriver|[Ff]enced",
    )
    yield Case(name="zombie", runs=(stopped, Run()))


def _random() -> Iterator[Case]:
    """Yield the random cases: each for our sink exactly once and at least once, and for Spark's own."""
    for end, (name, options) in _SINKS.items():
        slow = Case(name="", format=name, options=options, slow=0.04, rows=_MORE, per_batch=24_000)
        long = dataclasses.replace(slow, poison=tuple(range(4_999, _MORE, 10_000)))
        yield dataclasses.replace(long, name=f"poison{end}")
        # some tasks meet more than one, and a query ends that meets three
        yield dataclasses.replace(
            long,
            name=f"poison2{end}",
            poison=tuple(range(2_499, _MORE, 5_000)),
            again=9,
            seconds=480.0,
        )
        for case, kinds, count, seed in (
            ("drivers", ("driver",), 12, 3),
            ("random", ("worker", "worker", "driver"), 25, 7),
            ("random2", ("worker", "driver", "driver"), 25, 8),
        ):
            yield dataclasses.replace(
                slow, name=f"{case}{end}", kills=Kills(kinds=kinds, count=count, seed=seed)
            )
        brokers = Kills(kinds=("broker",), count=8, every=(0.05, 4.0), seed=4)
        yield dataclasses.replace(
            slow,
            name=f"brokers{end}",
            kills=brokers,
            kafka="three",
            options={**options, **_LONG} if options else {},
        )
        executors = Kills(kinds=("executor", "worker", "executor"), count=10, seed=5)
        yield dataclasses.replace(
            slow, name=f"executors{end}", kills=executors, master="local-cluster[2,1,1024]"
        )


CASES: Final[Mapping[str, Case]] = {case.name: case for case in (*_scripted(), *_random())}

MERGED: Final = Case(
    name="merged",
    rows=12_000,
    per_batch=2_400,
    again=2,
    runs=(
        Run(
            faults=(
                at("rows", 0, "raise", partition=0, attempt=0),
                at("prepared", 0, "kill", partition=1, attempt=0),
                at("commit", 1, "raise"),
                at("written", 2, "kill", partition=2, attempt=0),
                at("undecided", 2, "driver"),
                at("decided", 3, "raise"),
                at("ended", 4, "driver", number=3),
                at("prepared", 4, "raise", partition=3, attempt=0),
            )
        ),
    ),
)
"""Eight faults of every kind in one query, for CI."""


def case_named(name: str) -> Case:
    """Return a case. KeyError: there is none of this name."""
    return MERGED if name == MERGED.name else CASES[name]
