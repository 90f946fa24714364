"""A row of the catalogue as data: what the fake is told to do, what is sent, what must hold.

    number = 22
    name = "NOT_LEADER_OR_FOLLOWER twice"
    expected = "metadata is refreshed, the records are sent again"     # for the page
    case = ""                       # what this file is about, where a row has several
    brokers = 2                     # of the fake; topic orders, whose partitions its brokers lead in turn
    partitions = 2
    cluster = { version = "2.8" }   # arguments of FakeCluster
    config = {}                     # of the topic
    options = { linger_ms = 5 }     # of the producer, by our names; other clients are given what they have of them; all are idempotent
    clients = ["aioproducer"]       # whom it can be put to; all three by default
    before = [{ stop = 1 }]         # steps before the producer starts
    do = [{ fail = "Produce", error = "NOT_LEADER_OR_FOLLOWER", times = 2 }, { send = 10 }]
    after = []                      # steps once all deliveries have ended; what they send must be acknowledged
    known = ""                      # why ours does not pass yet

The first name of a step is its verb (`stage` has them all). The calls of transactions are steps too, and each must succeed, unless it
says that it fails, and ours by which error; `by = 2` lets the second client do it, which `successor` starts:

    do = [{ begin = 1 }, { send = 5 }, { successor = 1 }, { commit = 1, by = 1, fails = "ProducerFenced" }]

After the last step of `do`, every delivery must end. `[holds]` says how:

    starts = true                   # or start fails
    acked = "all"                   # or "none", "any", or a number; of what `do` sent
    persisted = "no"                # what the failures of ours say of the log
    error = "MESSAGE_TOO_LARGE"     # the name of an error of ours, or of Kafka, among the causes of each failure
    says = ["9092"]                 # words of each failure's text and `explain()`, or of the failed start's
    within = [0, 2.5]               # seconds from the last step of `do` to the end of the last delivery
    lasts = [0, 2.5]                # seconds that the steps of `do` take
    duplicates = false              # whether the log may hold a record twice
    in_order = true                 # whether the log has the records in the order in which they were sent
    requests = { Produce = [3, 3] } # how many requests of ours the brokers took
    asks = { Metadata = 10 }        # at most so many requests of any client since `do` began
    epochs = 1                      # how many producer ids and epochs of them partition 0 of ours has seen
    offsets = { group = 5 }         # what groups have committed for partition 0
    fired = true                    # whether every fault must have fallen on something

Always: no delivery ends later than `delivery_timeout_ms` and a second after it was sent; what was acknowledged stands where its offset
says; what failed for certain does not stand in the log; no broker saw a request that it could not read; nothing is left running; of a
transaction whose commit succeeded all that was acknowledged is visible to who reads committed records, of any other nothing.
"""

from __future__ import annotations

import pathlib
import tomllib
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CLIENTS", "Holds", "Row", "rows"]

CLIENTS = ("aioproducer", "aiokafka", "confluent-kafka")
_FOLDER = pathlib.Path(__file__).parent / "rows"


@dataclass(frozen=True, kw_only=True)
class Holds:
    """What must hold of one row."""

    starts: bool = True
    acked: str | int = "all"
    persisted: str | None = None
    error: str | None = None
    says: tuple[str, ...] = ()
    within: tuple[float, float] | None = None
    lasts: tuple[float, float] | None = None
    duplicates: bool = False
    in_order: bool = True
    requests: dict[str, tuple[int, int]] = field(default_factory=dict)
    asks: dict[str, int] = field(default_factory=dict)
    epochs: int | None = None
    offsets: dict[str, int] = field(default_factory=dict)
    fired: bool = True


@dataclass(frozen=True, kw_only=True)
class Row:
    """One scenario."""

    number: int
    name: str
    expected: str
    case: str = ""
    brokers: int = 1
    partitions: int = 1
    cluster: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    clients: tuple[str, ...] = CLIENTS
    before: tuple[dict[str, Any], ...] = ()
    do: tuple[dict[str, Any], ...]
    after: tuple[dict[str, Any], ...] = ()
    known: str = ""
    holds: Holds = field(default_factory=Holds)
    file: str = ""


def rows() -> list[Row]:
    """All rows that are data, by number."""
    found = [_read(path) for path in sorted(_FOLDER.glob("*.toml"))]
    return sorted(found, key=lambda row: (row.number, row.file))


def _read(path: pathlib.Path) -> Row:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    holds = Holds(**data.pop("holds", {}))
    try:
        return Row(**data, holds=holds, file=path.stem)
    except TypeError as error:
        raise ValueError(f"{path.name}: {error}") from error
