"""Tests of `aioproducer.model`."""

from __future__ import annotations

import enum
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from aioproducer.model import exact_int, is_number, is_numpy_bool, shown


class Indexed:
    """An integer that is no `int`."""

    def __index__(self) -> int:
        return 7


class Odd(int):
    """An `int` with its own conversions."""

    def __index__(self) -> int:
        return 0

    def __int__(self) -> int:
        return 0


class Broken:
    """No integer after all."""

    def __index__(self) -> int:
        raise RuntimeError("canary")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        (Odd(7), 7),
        (enum.IntEnum("Seven", {"A": 7}).A, 7),
        (Indexed(), 7),
        (np.int64(7), 7),
        (np.uint8(7), 7),
        (np.array(7), 7),
    ],
    ids=repr,
)
def test_an_integer_of_any_type(value: Any, number: int) -> None:
    """An exact `int`, which arithmetic and `is` treat alike."""
    assert exact_int(value) == number
    assert type(exact_int(value)) is int


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        np.True_,
        np.False_,
        1.0,
        np.float64(1),
        "1",
        b"1",
        Decimal(1),
        Fraction(1),
        Broken(),
        np.array([1, 2]),
        [],
        np.array(True),
    ],
    ids=repr,
)
def test_what_is_no_integer(value: Any) -> None:
    """True and numpy's True among them."""
    assert exact_int(value) is None


@pytest.mark.parametrize(
    "value",
    [1, 1.5, np.int64(1), np.float64(1), np.float32(1), Decimal("1.5"), Fraction(1, 2)],
    ids=repr,
)
def test_a_number_where_a_float_is_taken(value: Any) -> None:
    assert is_number(value)


@pytest.mark.parametrize(
    "value", [True, np.True_, 1j, np.complex128(1), "1", None, np.array([1.0])], ids=repr
)
def test_what_is_no_number(value: Any) -> None:
    assert not is_number(value)


def test_numpys_bool() -> None:
    assert is_numpy_bool(np.True_)
    assert is_numpy_bool(np.False_)
    assert not is_numpy_bool(True)
    assert not is_numpy_bool(np.int8(1))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "-1"),
        (np.int64(-1), "-1"),
        (1.5, "1.5"),
        (np.float32(1.5), "1.5"),
        (Decimal(-1), "Decimal('-1')"),
        (True, "True"),
        ("canary", "str"),
        (b"canary", "bytes"),
    ],
    ids=repr,
)
def test_what_an_error_shows(value: Any, text: str) -> None:
    """Numbers; of anything else, which may be a key in the wrong place, its type."""
    assert str(shown(value)) == text
