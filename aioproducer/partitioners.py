"""Holds partitioners other than Kafka's own, which is built in, and calls the partitioner that the user gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from aioproducer.errors import UsageError
from aioproducer.interfaces import USER_FAILURES, Partitioner
from aioproducer.model import exact_int

__all__ = ["Choose", "RoundRobinPartitioner", "adapt", "choose", "forgetter"]

Choose: TypeAlias = "Callable[[str, bytes | None, bytes | None, int, Sequence[int]], Any]"
# Number of parameters of (key, partitions), of (key, all_partitions, available_partitions) in aiokafka and kafka-python, and of all.
_OF_KEY: Final = 2
_OF_AIOKAFKA: Final = 3
_OF_ALL: Final = 5


class RoundRobinPartitioner:
    """Chooses each topic's partitions one after the other, regardless of keys (Java's class of the same name).

    It chooses among the partitions that have a leader, or among all if none has one.
    """

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: int,
        available: Sequence[int],
    ) -> int:
        """Return the next partition (an `interfaces.Partitioner`)."""
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        return available[turn % len(available)] if available else turn % partitions

    def forget(self, topic: str) -> None:
        """Forget a topic that the producer has forgotten (`metadata_max_idle_ms`). The topic starts again at its first partition."""
        self._next.pop(topic, None)


def adapt(partitioner: Partitioner | Callable[..., Any] | type[Any] | None) -> Choose | None:
    """Return the user's partitioner as a function of all five arguments.

    Args:
        partitioner: an object with a method `partition`, its class, a function of (topic, key, value, partitions, available), or
            one of (key, partitions); None stays None.

    Raises:
        UsageError: it is none of these, or its class cannot be called without arguments. For a function of aiokafka's arguments, the text
            has the adapter.
    """
    if partitioner is None:
        return None
    if isinstance(partitioner, type):
        kind = partitioner
        try:
            partitioner = kind()
        except TypeError as error:
            raise UsageError(
                f"the partitioner class {kind.__name__} cannot be made without arguments: give an object of it"
            ) from error
    function: Any = getattr(partitioner, "partition", partitioner)
    if not callable(function):
        raise UsageError(
            f"a partitioner is a function, or an object with a method `partition`, not {type(partitioner).__name__}"
        )
    if _takes(function, _OF_KEY):
        return lambda _topic, key, _value, partitions, _available: function(key, partitions)
    if not _takes(function, _OF_ALL):
        raise UsageError(_wrong_arguments(function))
    return function  # type: ignore[no-any-return]


def _wrong_arguments(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None) or type(function).__name__
    text = f"a partitioner is called with (key, partitions), or with (topic, key, value, partitions, available), and {name} takes neither"
    if _takes(function, _OF_AIOKAFKA):
        text += ". If it is one of aiokafka's: lambda topic, key, value, partitions, available: yours(key, range(partitions), available)"
    return text


def forgetter(partitioner: Choose | None) -> Callable[[str], object]:
    """Return a function that passes a forgotten topic to the partitioner's method `forget`. Without that method it does nothing."""
    forget: Callable[[str], object] | None = getattr(
        getattr(partitioner, "__self__", None), "forget", None
    )
    return forget if callable(forget) else lambda _topic: None


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether `function` accepts `count` positional arguments. True for built-in functions without a signature."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def choose(
    function: Choose,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    partitions: int,
    available: Sequence[int],
) -> int:
    """Return the partition that the user's partitioner chooses.

    Raises:
        UsageError: it raised, or did not choose a partition of the topic. The text has neither key nor value.
    """
    try:
        chosen = function(topic, key, value, partitions, available)
        # The call of exact_int takes 0.1 us, a twentieth of such a send.
        partition = chosen if type(chosen) is int else exact_int(chosen)
    except USER_FAILURES as error:
        raise UsageError(f"the partitioner raised {type(error).__name__} for {topic!r}") from error
    if partition is None or not 0 <= partition < partitions:
        if inspect.iscoroutine(chosen):
            chosen.close()
        advice = ": it must be a plain function" if inspect.isawaitable(chosen) else ""
        what = (
            chosen
            if isinstance(chosen, bool)
            else type(chosen).__name__
            if partition is None
            else partition
        )
        raise UsageError(
            f"the partitioner chose {what} for {topic!r}, which has partitions 0 to {partitions - 1}{advice}"
        )
    return partition
