"""Tests of `loops`: the list of what is not run on a loop."""

from __future__ import annotations

import ast
import pathlib

import pytest
from loops import LEFT_OUT

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize("loop", LEFT_OUT)
def test_what_is_left_out_is_there(loop: str) -> None:
    """A test that was renamed, or is no more, leaves the list; and each has its reason."""
    for node, reason in LEFT_OUT[loop].items():
        file, _, name = node.partition("[")[0].partition("::")
        functions = [each.name for each in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(each, "name")]
        assert name in functions, node
        assert reason
