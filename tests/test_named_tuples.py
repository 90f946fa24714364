"""Named tuples without `typing.NamedTuple`: what they have is the same."""

from __future__ import annotations

import inspect
import pickle
import typing
from typing import Any

import pytest

from aioproducer import named_tuples

OURS: Any = named_tuples.NamedTuple


class Place(OURS):  # type: ignore[misc]
    """Holds a place."""

    topic: str
    partition: int | None = None

    def shown(self) -> str:
        """Return the place as text."""
        return f"{self.topic}-{self.partition}"


class Standard(typing.NamedTuple):
    """Holds a place."""

    topic: str
    partition: int | None = None


def test_a_named_tuple_is_as_that_of_typing() -> None:
    """But for the annotations of the methods that a named tuple brings."""
    place: Any = Place("t", 1)
    assert place == ("t", 1) == Standard("t", 1)
    assert (place.topic, place.partition, place.shown(), Place("t").shown()) == ("t", 1, "t-1", "t-None")
    assert (Place._fields, Place._field_defaults, Place.__match_args__) == (
        Standard._fields,
        Standard._field_defaults,
        Standard.__match_args__,
    )
    assert inspect.signature(Place).parameters.keys() == inspect.signature(Standard).parameters.keys()
    assert typing.get_type_hints(Place) == typing.get_type_hints(Standard) == {"topic": str, "partition": int | None}
    assert (Place.__doc__, Place.__module__, Place.__qualname__) == ("Holds a place.", __name__, "Place")
    assert repr(place) == "Place(topic='t', partition=1)"
    assert place._replace(partition=2)._asdict() == {"topic": "t", "partition": 2}
    assert pickle.loads(pickle.dumps(place)) == place
    assert type(pickle.loads(pickle.dumps(place))) is Place
    assert Place._make(["t", 1]) == place
    assert not hasattr(place, "__dict__")


class Nothing(OURS):  # type: ignore[misc]
    """Holds nothing."""


def test_a_named_tuple_without_fields() -> None:
    assert (Nothing(), Nothing._fields, repr(Nothing())) == ((), (), "Nothing()")


@pytest.mark.parametrize("arguments", [(), ("t", 1, 2)])
def test_a_wrong_number_of_values(arguments: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match="__new__"):
        Place(*arguments)
