"""The list of mutants is true: each would change something, and names tests that are there. `nox -s mutants` runs them."""

from __future__ import annotations

import pathlib

import pytest

from tests.tools.mutants.listed import MUTANTS, Mutant
from tests.tools.mutants.security import SECURITY
from tests.tools.mutants.simulated import SIMULATED
from tests.tools.mutants.sink import SINK

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize("mutant", [*MUTANTS, *SECURITY, *SINK, *SIMULATED], ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made(mutant: Mutant) -> None:
    """Its text is once in its file, so code that moves takes its mutants along."""
    text = (ROOT / "aioproducer" / mutant.file).read_text()
    assert mutant.applied(text) != text
    assert all((ROOT / test.partition("::")[0]).exists() for test in mutant.tests)


def test_names_are_unique() -> None:
    """`python -m tests.tools.mutants NAME` runs one."""
    listed = [*MUTANTS, *SECURITY, *SINK, *SIMULATED]
    assert len({mutant.name for mutant in listed}) == len(listed)
