"""Tests of `aioproducer.partitioners`: users' partitioners of all shapes, and the round-robin one."""

from __future__ import annotations

import pathlib
import re
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.errors import UsageError
from aioproducer.interfaces import Partitioner
from aioproducer.partitioners import Choose, RoundRobinPartitioner, adapt, choose

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CANARY = b"CANARY-4711"


class Last:
    """The last partition that has a leader."""

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: int,
        available: Sequence[int],
    ) -> int:
        assert (topic, key, value, partitions) == ("t", b"k", b"v", 4)
        return available[-1]


class Called:
    """A callable object of the short kind."""

    def __call__(self, key: bytes | None, partitions: int) -> int:
        return len(key or b"") % partitions


def last(
    topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int]
) -> int:
    """A function of the long kind."""
    return Last().partition(topic, key, value, partitions, available)


class Number:
    """An object that another library uses as a number."""

    def __index__(self) -> int:
        return 2


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        (Last(), 2),
        (Last, 2),
        (last, 2),
        (Called(), 1),
        (lambda key, partitions: partitions - len(key), 3),
        (lambda *_arguments: 0, 0),
        (lambda _key, _partitions: Number(), 2),
        (lambda _key, _partitions, _more=None: 3, 3),
    ],
    ids=[
        "object",
        "class",
        "function of five",
        "callable object",
        "function of two",
        "of any",
        "index",
        "of two and a default",
    ],
)
def test_a_partitioner_may_have_any_of_these_shapes(given: Any, chosen: int) -> None:
    """The adapter accepts all of these shapes, and each of them chooses the same partition."""
    function = adapt(given)
    assert function is not None
    assert choose(function, "t", b"k", b"v", 4, (0, 2)) == chosen


def test_no_partitioner() -> None:
    """Kafka's own."""
    assert adapt(None) is None


class Demanding(Last):
    """Cannot be made without arguments."""

    def __init__(self, seed: int) -> None:
        self.seed = seed


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Demanding, "class Demanding cannot be made without arguments"),
        (7, "not int"),
        (object(), "not object"),
    ],
    ids=["class", "number", "object"],
)
def test_what_is_no_partitioner(given: Any, text: str) -> None:
    """Told when it is given, not at the first record."""
    with pytest.raises(UsageError, match=text):
        adapt(given)


def of_aiokafka(key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
    """A partitioner as aiokafka and kafka-python call it."""
    return all_partitions[len(key or b"")] if available else all_partitions[0]


class OfFour:
    def partition(
        self, _topic: str, _key: bytes | None, _value: bytes | None, _partitions: int
    ) -> int:
        raise AssertionError


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (of_aiokafka, "of_aiokafka"),
        (OfFour(), "partition"),
        (lambda: 0, "<lambda>"),
        (lambda _key: 0, "<lambda>"),
    ],
    ids=["aiokafka's", "method of four", "of none", "of the key"],
)
def test_a_partitioner_of_other_arguments(given: Any, name: str) -> None:
    """The error comes when it is given, not at the first record, and says what it is called with."""
    text = rf"called with \(key, partitions\), or with \(topic, key, value, partitions, available\), and {name} takes neither"
    with pytest.raises(UsageError, match=text) as raised:
        adapt(given)
    assert ("aiokafka" in str(raised.value).partition("neither")[2]) == (given is of_aiokafka)


def test_the_adapter_of_a_partitioner_of_aiokafkas() -> None:
    """The error has it, and docs/topics/porting.md."""
    with pytest.raises(UsageError) as raised:
        adapt(of_aiokafka)
    [adapter] = re.findall(r"lambda topic.*", str(raised.value))
    function = adapt(eval(adapter, {"yours": of_aiokafka}))  # our own text
    assert function is not None
    assert [
        choose(function, "t", key, b"v", 4, available)
        for key, available in ((b"k", (0, 2)), (b"kk", (1,)), (b"k", ()))
    ] == [1, 2, 0]
    page = (pathlib.Path(__file__).parents[1] / "docs/topics/porting.md").read_text(
        encoding="utf-8"
    )
    assert adapter.replace("partitions", "count") in page


def raises(*_arguments: Any) -> int:
    raise ValueError(CANARY)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (raises, "raised ValueError for 't'"),
        (lambda *_: 4, "chose 4 for 't', which has partitions 0 to 3"),
        (lambda *_: 1.0, "chose float"),
        (lambda *_: CANARY, "chose bytes"),
        (lambda *_: 10**30, "chose 1000"),
    ],
    ids=["raises", "too large", "float", "the key", "huge"],
)
def test_what_must_not_be_chosen(function: Choose, text: str) -> None:
    """Java checks only for negative ones, and leaves the record to its time-out (SND-13)."""
    with pytest.raises(UsageError, match=text) as raised:
        choose(function, "t", CANARY, CANARY, 4, (0, 1, 2, 3))
    assert "CANARY" not in str(raised.value)


def test_round_robin() -> None:
    """The partitioner cycles for each topic through the partitions with a leader, for all keys.

    It uses all partitions if none has a leader.
    """
    goes_round = RoundRobinPartitioner()
    assert isinstance(goes_round, Partitioner)
    pick: Callable[..., int] = goes_round.partition
    assert [pick("a", b"same", None, 4, (0, 2, 3)) for _ in range(5)] == [0, 2, 3, 0, 2]
    assert [pick("b", None, None, 2, ()) for _ in range(3)] == [0, 1, 0]
    assert pick("a", b"same", None, 4, (0, 2, 3)) == 3
