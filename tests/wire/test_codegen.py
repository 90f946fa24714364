"""Source that is written by a program."""

from __future__ import annotations

import traceback

import pytest

from aioproducer.wire.codegen import Source


def _division() -> Source:
    source = Source("division", {"refused": ZeroDivisionError})
    with source.block("def divide(a, b):"):
        result = source.variable()
        with source.block("if b == 0:"):
            source.line("raise refused('by nought')")
        source.line(f"{result} = a / b")
        source.line(f"return {result}")
    return source


def test_blocks_are_indented_and_names_are_found() -> None:
    """The generated code compiles, and runs with the names that it was given."""
    divide = _division().compile("divide")
    assert divide(6, 3) == 2
    with pytest.raises(ZeroDivisionError):
        divide(1, 0)


def test_a_traceback_shows_the_line() -> None:
    """A traceback shows the line of generated code that fails, under a file name that names its generator."""
    with pytest.raises(ZeroDivisionError) as raised:
        _division().compile("divide")(1, 0)
    shown = "".join(traceback.format_exception(raised.value))
    assert 'File "<aioproducer division>", line 3' in shown
    assert "raise refused('by nought')" in shown


def test_variables_and_layouts() -> None:
    """Variables are fresh; a layout is one name for one method of one struct."""
    source = Source("x", {})
    assert source.variable() != source.variable()
    name = source.layout("h?", "pack")
    assert source.layout("h?", "pack") == name
    assert name.isidentifier()
    assert source.names[name](1, True) == b"\0\x01\x01"
    assert source.layout("h?", "unpack_from") != name
