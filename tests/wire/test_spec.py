"""The text of the messages, as it is read."""

from __future__ import annotations

import pytest

from aioproducer.wire.spec import ZERO_ID, default_source, parse

_TEXT = """
Greet.request 0-5 flexible 3
  words [] 2+
    text str?4+
    when i64 1-3 =-1
  loudness i8
  ids [i32]?
  who {} tag2
    id uuid
  polite bool 2 =true
Greet.response 0-5 flexible 3
  back bytes?
"""


def test_a_text_is_read_as_messages() -> None:
    """Names, order, nesting and paths."""
    specs = parse(_TEXT)
    assert list(specs) == ["Greet.request", "Greet.response"]
    request = specs["Greet.request"]
    assert (request.versions, request.flexible) == (range(6), 3)
    assert [field.name for field in request.fields] == ["words", "loudness", "ids", "who", "polite"]
    assert [field.path for field in request.fields[0].fields] == ["Greet.request.words.text", "Greet.request.words.when"]


def test_each_word_of_a_line_has_its_meaning() -> None:
    """Types, arrays, versions, nulls, tags, defaults."""
    words, loudness, ids, who, polite = parse(_TEXT)["Greet.request"].fields
    text, when = words.fields
    assert (words.kind, words.is_array, 1 in words.versions, 2 in words.versions) == ("struct", True, False, True)
    assert (text.kind, 3 in text.null_versions, 4 in text.null_versions, text.default) == ("str", False, True, "")
    assert (list(when.versions), when.default) == ([1, 2, 3], -1)
    assert (loudness.default, 0 in loudness.null_versions, 5 in loudness.versions) == (0, False, True)
    assert (ids.kind, ids.is_array, 0 in ids.null_versions, ids.default) == ("i32", True, True, ())
    assert (who.kind, who.is_array, who.tag, who.fields[0].default) == ("struct", False, 2, ZERO_ID)
    assert (list(polite.versions), polite.default) == ([2], True)


def test_fixed_fields_are_told_from_others() -> None:
    """Numbers, booleans and ids have one size; arrays of them, text and structures have not."""
    words, loudness, ids, who, polite = parse(_TEXT)["Greet.request"].fields
    assert [field.is_fixed for field in (words, loudness, ids, who, who.fields[0], polite)] == [False, True, False, False, True, True]


def test_defaults_as_expressions() -> None:
    """The source of a default is the expression that generated code writes for an absent field."""
    words, loudness, _, who, polite = parse(_TEXT)["Greet.request"].fields
    assert [default_source(field) for field in (words, loudness, who, who.fields[0], polite)] == ["()", "0", "None", "ZERO_ID", "True"]


@pytest.mark.parametrize(
    "line",
    ["x", "x i33", "x {", "x [i32", "x str??", "x i8 3..5", "x i8 =yes", "x bytes tag1", "x [bytes]", "x [uuid]", "x i8 tagged", "x ?"],
)
def test_a_line_that_makes_no_sense_is_named(line: str) -> None:
    """A slip in the text is found when the message's fields are first read, and the error quotes it."""
    spec = parse(f"Greet.request 0-1 flexible 1\n  {line}\n")["Greet.request"]
    with pytest.raises(ValueError, match="'  x"):
        _ = spec.fields
