"""Converts values that callers may give for a number into the number itself.

Data frames hold numbers of their own types: numpy's integers have `__index__` and are no `int`. They are accepted wherever an `int` is. A
bool is no number here, nor is numpy's bool: `True` as a number is a mistake. No function here imports numpy.
"""

from __future__ import annotations

from operator import index
from typing import Any

from aioproducer.user_functions import USER_FAILURES

__all__ = ["exact_int", "is_number", "is_numpy_bool", "shown"]


def exact_int(value: Any) -> int | None:
    """Return the `int` of an integer of any type that has `__index__`; None if `value` is no integer, or a bool."""
    if type(value) is int:
        return value
    # A subclass may compute differently, or have an __index__ of its own.
    if isinstance(value, int):
        return None if isinstance(value, bool) else int.__int__(value)
    if is_numpy_bool(value):
        return None
    try:
        return int.__int__(index(value))
    # TypeError, or what the __index__ of the caller's class raises.
    except USER_FAILURES:
        return None


def is_number(value: Any) -> bool:
    """Return whether `value` is accepted as a float: int, float, Decimal, Fraction, and numpy's integers and floats; no bool."""
    if isinstance(value, (int, float)):
        return not isinstance(value, bool)
    # Imported for other types.
    from numbers import Number

    return isinstance(value, Number) and not isinstance(value, complex)


def is_numpy_bool(value: Any) -> bool:
    """Return whether `value` is numpy's True or False: `numpy.bool`, which has the name `bool_` before numpy 2."""
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ in {"bool", "bool_"}


def shown(value: Any) -> object:
    """Return the part of a value that an error's text may show: a number, else the type, as the value may be a misplaced key."""
    number = exact_int(value)
    if number is not None:
        return number
    if not isinstance(value, bool) and not is_number(value):
        return type(value).__name__
    # The text of a Decimal or a Fraction may be that of an integer, which would be right.
    return repr(value) if str(value).removeprefix("-").isdecimal() else value
