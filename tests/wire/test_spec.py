"""The text of the messages, as it is read."""

from __future__ import annotations

import pytest

from aioproducer.wire.spec import parse


@pytest.mark.parametrize(
    "line",
    [
        "x",
        "x i33",
        "x {",
        "x [i32",
        "x str??",
        "x i8 3..5",
        "x i8 =yes",
        "x bytes tag1",
        "x [bytes]",
        "x [uuid]",
        "x i8 tagged",
        "x ?",
    ],
)
def test_a_line_that_makes_no_sense_is_named(line: str) -> None:
    """A slip in the text is found when the message's fields are first read, and the error quotes it."""
    spec = parse(f"Greet.request 0-1 flexible 1\n  {line}\n")["Greet.request"]
    with pytest.raises(ValueError, match="'  x"):
        _ = spec.fields
