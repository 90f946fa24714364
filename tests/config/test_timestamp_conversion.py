"""Tests of `aioproducer.model`."""

from __future__ import annotations

import datetime as dt
from datetime import UTC, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from aioproducer.errors import UsageError
from aioproducer.model import seconds_of, timestamp_of

BERLIN = ZoneInfo("Europe/Berlin")


class Timestamp(dt.datetime):
    """Replaces `pandas.Timestamp`: its difference has nanoseconds, and is divided by floor."""

    nanosecond = 999


class NaT(dt.datetime):
    """Replaces `pandas.NaT`: a datetime that is not equal to itself, and has no time zone."""

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = dt.datetime.__hash__


class Broken(dt.tzinfo):
    """A time zone that raises."""

    def utcoffset(self, _moment: dt.datetime | None) -> timedelta:
        raise RuntimeError("canary")


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        (0, 0),
        (2**63 - 1, 2**63 - 1),
        (np.int64(1_700_000_000_000), 1_700_000_000_000),
        (dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), 1_700_000_000_000),
        (dt.datetime(2023, 11, 14, 22, 13, 20, 999, tzinfo=UTC), 1_700_000_000_000),
        (dt.datetime(2023, 11, 14, 22, 13, 20, 1999, tzinfo=UTC), 1_700_000_000_001),
        (dt.datetime(2023, 11, 14, 22, 13, 20, 999_999, tzinfo=UTC), 1_700_000_000_999),
        (dt.datetime(2023, 11, 14, 23, 13, 20, tzinfo=BERLIN), 1_700_000_000_000),
        (dt.datetime(2023, 10, 29, 2, 30, tzinfo=BERLIN, fold=0), 1_698_539_400_000),
        (dt.datetime(2023, 10, 29, 2, 30, tzinfo=BERLIN, fold=1), 1_698_543_000_000),
        (dt.datetime(1970, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))), 0),
        (dt.datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))), 253_402_343_999_999),
        (Timestamp(2023, 11, 14, 22, 13, 20, 1999, tzinfo=UTC), 1_700_000_000_001),
    ],
    ids=repr,
)
def test_milliseconds_since_1970(value: Any, moment: int) -> None:
    """Any value is converted exactly where a float of seconds would round, and to an int."""
    taken = timestamp_of("timestamp_ms", value)
    assert taken == moment
    assert type(taken) is int


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (
            -1,
            "t=-1 here: it is whole milliseconds since 1970, or a datetime with a time zone, or None",
        ),
        (2**63, f"t={2**63} here: it is whole milliseconds"),
        (True, "t=True here: it is whole milliseconds"),
        (np.True_, "t=bool here: it is whole milliseconds"),
        (1.5, "t=1.5 here: it is whole milliseconds"),
        (np.float64(1e12), "t=1000000000000.0 here: it is whole milliseconds"),
        ("canary", "t=str here: it is whole milliseconds"),
        (dt.date(2023, 1, 1), "t=date here: it is whole milliseconds"),
        (np.datetime64("2023-01-01"), "t=datetime64 here: it is whole milliseconds"),
        (
            dt.datetime(2023, 1, 1, 12, tzinfo=UTC).replace(tzinfo=None),
            "t=2023-01-01 12:00:00 here: it has no time zone. Give a datetime with one",
        ),
        (
            dt.datetime(1969, 12, 31, tzinfo=UTC),
            "t=1969-12-31 00:00:00+00:00 here: it is whole milliseconds since 1970",
        ),
        (
            dt.datetime(2023, 1, 1, tzinfo=Broken()),
            "t=datetime here: its time zone raised RuntimeError",
        ),
        (
            NaT(1, 1, 1),
            "t=0001-01-01 00:00:00 here: a missing time is none. Leave the record out, or give a time",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_time(value: Any, told: str) -> None:
    """The words fit what was given, and show nothing that is no number or time."""
    with pytest.raises(UsageError) as caught:
        timestamp_of("t", value, " here")
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (0, 0.0),
        (1.5, 1.5),
        (np.float32(0.5), 0.5),
        (timedelta(milliseconds=1500), 1.5),
        (timedelta(0), 0.0),
    ],
)
def test_seconds(value: Any, seconds: float | None) -> None:
    """A number of seconds of any type, or a timedelta."""
    assert seconds_of("timeout", value) == seconds


@pytest.mark.parametrize(
    "value", [-1, timedelta(microseconds=-1), "5", True, float("nan"), dt.time(0, 1)]
)
def test_what_are_no_seconds(value: Any) -> None:
    """The text names the argument, and what it takes."""
    with pytest.raises(
        UsageError, match=r"timeout=.*: it is seconds, from 0 on, or a timedelta, or None"
    ):
        seconds_of("timeout", value)
