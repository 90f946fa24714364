"""What callers may give for a record's time, made milliseconds since 1970.

An integer of any type is taken, and a `datetime` with a time zone, of which `pandas.Timestamp` is one. No function here imports pandas.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from aioproducer.errors import UsageError
from aioproducer.number_conversion import exact_int, shown

__all__ = ["timestamp_of"]

_MAX_TIMESTAMP_MS: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class _NotATime(Exception):
    """The reason why a value is no record's time."""


def timestamp_of(name: str, value: Any, where: str = "") -> int:
    """Milliseconds since 1970 of an integer, or of a datetime with a time zone, of which parts of a millisecond are cut off.

    Args:
        name: of the argument, for the error.
        value: what was given; the error shows it if it is a number or a time, else its type.
        where: stands behind it in the error.

    Raises:
        UsageError: it is neither, or not between 0 and 2**63 - 1. The text says what to give.
    """
    try:
        moment = _milliseconds_of(value) if isinstance(value, datetime) else exact_int(value)
        if moment is None or not 0 <= moment <= _MAX_TIMESTAMP_MS:
            raise _NotATime("it is whole milliseconds since 1970, or a datetime with a time zone")
    except _NotATime as reason:
        # a time zone that raises does so here, too
        told = value if isinstance(value, datetime) and reason.__cause__ is None else shown(value)
        raise UsageError(f"{name}={told}{where}: {reason}, or None") from reason.__cause__
    return moment


def _milliseconds_of(moment: datetime) -> int:
    # pandas.NaT is a datetime, and not equal to itself
    if moment != moment:  # noqa: PLR0124
        raise _NotATime("a missing time is none. Leave the record out, or give a time")
    try:
        offset = moment.utcoffset()
        since_epoch = None if offset is None else int((moment - _EPOCH) // _MILLISECOND)
    except Exception as error:  # what a tzinfo of the caller's raises
        raise _NotATime(f"its time zone raised {type(error).__name__}. Give whole milliseconds since 1970") from error
    if since_epoch is None:
        raise _NotATime("it has no time zone. Give a datetime with one, as datetime.now(UTC) is, whole milliseconds since 1970")
    return since_epoch
