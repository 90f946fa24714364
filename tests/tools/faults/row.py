"""Holds a row of the catalogue as data: the cluster's faults, the client's sends, the expected results.

    number = 22
    name = "NOT_LEADER_OR_FOLLOWER twice"
    expected = "metadata is refreshed, the records are sent again"     # in words
    case = ""                       # the subject of this file, where a row has several files
    brokers = 2                     # of the fake; topic orders, with its partitions led by the brokers alternately
    partitions = 2
    cluster = { version = "2.8" }   # arguments of FakeCluster
    security = { protocol = "SSL" } # of its listeners (`security` has the fields); the client's options fit it, but for those that `options` gives
    config = {}                     # of the topic
    options = { linger_ms = 5 }     # of the producer, which is idempotent unless they say otherwise
    before = [{ stop = 1 }]         # steps before the producer starts
    do = [{ fail = "Produce", error = "NOT_LEADER_OR_FOLLOWER", times = 2 }, { send = 10 }]
    after = []                      # steps once all deliveries have ended; their records must be acknowledged

The first name of a step is its verb (`stage` has them all). The calls of transactions are steps too. Each must succeed, unless the
step says that it fails and which error it raises. `by = 2` lets the second client make the call; `successor` starts that client:

    do = [{ begin = 1 }, { send = 5 }, { successor = 1 }, { commit = 1, by = 1, fails = "ProducerFenced" }]

After the last step of `do`, every delivery must end. `[holds]` says how:

    starts = true                   # or start fails
    acked = "all"                   # or "none", "any", or a number; of the records that `do` sent
    persisted = "no"                # the `persisted` of the failures
    error = "MESSAGE_TOO_LARGE"     # the name of an error, ours or Kafka's, among the causes of each failure
    says = ["9092"]                 # words of each failure's text and `explain()`, or of the failed start's
    starts_within = [0, 1.5]        # seconds that the start takes, also if it fails
    within = [0, 2.5]               # seconds from the last step of `do` to the end of the last delivery
    lasts = [0, 2.5]                # seconds that the steps of `do` take
    duplicates = false              # whether the log may hold a record twice
    in_order = true                 # whether the log has the records in the order in which they were sent
    requests = { Produce = [3, 3] } # how many requests the brokers took
    asks = { Metadata = 10 }        # at most this many requests since `do` began; of a start that fails, since its beginning
    dials = 3                       # at most this many connections since then
    epochs = 1                      # how many producer ids and epochs of them partition 0 has seen
    offsets = { group = 5 }         # the offsets that groups have committed for partition 0
    unreadable = false              # whether the brokers may get bytes that are no request
    fired = true                    # whether every fault must have affected a request or an answer

The judge always checks these rules:

1. No delivery ends later than `delivery_timeout_ms` and a second after it was sent.
2. An acknowledged record is in the log at its offset. A record that failed for certain is not in the log.
3. No broker saw a request that it could not read. No task or socket of the client is left. No error tells a secret, and no
   client that asks for TLS logs in to a listener without it.
4. If a transaction's commit succeeded, readers of committed records see all its acknowledged records. They see no
   record of any other transaction.
"""

from __future__ import annotations

import pathlib
import tomllib
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Holds", "Row", "rows"]

_FOLDER = pathlib.Path(__file__).parent / "rows"


@dataclass(frozen=True, kw_only=True)
class Holds:
    """Holds the expected results of one row."""

    starts: bool = True
    acked: str | int = "all"
    persisted: str | None = None
    error: str | None = None
    says: tuple[str, ...] = ()
    starts_within: tuple[float, float] | None = None
    within: tuple[float, float] | None = None
    lasts: tuple[float, float] | None = None
    duplicates: bool = False
    in_order: bool = True
    requests: dict[str, tuple[int, int]] = field(default_factory=dict)
    asks: dict[str, int] = field(default_factory=dict)
    dials: int | None = None
    epochs: int | None = None
    offsets: dict[str, int] = field(default_factory=dict)
    unreadable: bool = False
    fired: bool = True


@dataclass(frozen=True, kw_only=True)
class Row:
    """Holds one scenario."""

    number: int
    name: str
    expected: str
    case: str = ""
    brokers: int = 1
    partitions: int = 1
    cluster: dict[str, Any] = field(default_factory=dict)
    security: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    before: tuple[dict[str, Any], ...] = ()
    do: tuple[dict[str, Any], ...]
    after: tuple[dict[str, Any], ...] = ()
    holds: Holds = field(default_factory=Holds)
    file: str = ""


def rows() -> list[Row]:
    """Return all rows that are data, by number."""
    found = [_read(path) for path in sorted(_FOLDER.glob("*.toml"))]
    return sorted(found, key=lambda row: (row.number, row.file))


def _read(path: pathlib.Path) -> Row:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    holds = Holds(**data.pop("holds", {}))
    try:
        return Row(**data, holds=holds, file=path.stem)
    except TypeError as error:
        raise ValueError(f"{path.name}: {error}") from error
