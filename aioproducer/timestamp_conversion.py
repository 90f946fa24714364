"""Converts values that callers may give for a record's time into milliseconds since 1970, and for a duration into seconds.

An integer of any type is accepted, and a `datetime` with a time zone. A `pandas.Timestamp` is such a `datetime`. No function here imports
pandas.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from aioproducer.errors import UsageError
from aioproducer.number_conversion import exact_int, is_number, shown
from aioproducer.user_functions import USER_FAILURES

__all__ = ["seconds_of", "timestamp_of"]

_MAX_TIMESTAMP_MS: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class _NotATime(Exception):
    """Holds the reason why a value is no record's time."""


def timestamp_of(name: str, value: Any, where: str = "") -> int:
    """Return the milliseconds since 1970 of an integer, or of a datetime with a time zone. Parts of a millisecond are cut off.

    Args:
        name: the name of the argument, for the error.
        value: the given value; the error shows it if it is a number or a time, else its type.
        where: the text after the value in the error.

    Raises:
        UsageError: the value is neither, or not between 0 and 2**63 - 1. The text names the accepted values.
    """
    try:
        moment = _milliseconds_of(value) if isinstance(value, datetime) else exact_int(value)
        if moment is None or not 0 <= moment <= _MAX_TIMESTAMP_MS:
            raise _NotATime("it is whole milliseconds since 1970, or a datetime with a time zone")
    except _NotATime as reason:
        # A time zone that raises also does so when the text shows the datetime.
        told = value if isinstance(value, datetime) and reason.__cause__ is None else shown(value)
        raise UsageError(f"{name}={told}{where}: {reason}, or None") from reason.__cause__
    return moment


def _milliseconds_of(moment: datetime) -> int:
    # pandas.NaT is a datetime, and not equal to itself.
    if moment != moment:
        raise _NotATime("a missing time is none. Leave the record out, or give a time")
    try:
        offset = moment.utcoffset()
        since_epoch = None if offset is None else int((moment - _EPOCH) // _MILLISECOND)
    # A tzinfo of the caller may raise any error.
    except USER_FAILURES as error:
        raise _NotATime(f"its time zone raised {type(error).__name__}. Give whole milliseconds since 1970") from error
    if since_epoch is None:
        raise _NotATime("it has no time zone. Give a datetime with one, as datetime.now(UTC) is, whole milliseconds since 1970")
    return since_epoch


def seconds_of(name: str, value: Any) -> float | None:
    """Return the seconds of a number of seconds, or of a timedelta; None for None.

    Raises:
        UsageError: the value is neither, or negative.
    """
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not (is_number(seconds) and seconds >= 0):
        raise UsageError(f"{name}={value!r}: it is seconds, from 0 on, or a timedelta, or None")
    return float(seconds)
