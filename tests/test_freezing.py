"""Objects from before the first test stay frozen, as tests/conftest.py wants it, on a small suite of its own."""

from __future__ import annotations

import gc
import pathlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.pytester import Pytester

pytest_plugins = ("pytester",)

TESTS = """
    import gc

    def test_that_unfreezes():
        assert gc.get_freeze_count()
        gc.unfreeze()
        assert not gc.get_freeze_count()

    def test_behind_it():
        assert gc.get_freeze_count()
"""


def test_they_are_frozen_again_and_nobody_counts_them(pytester: Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a test that unfreezes they are frozen again. To count them visits each: only the tests themselves do."""
    count, counted = gc.get_freeze_count, []

    def get_freeze_count() -> int:
        counted.append(count())
        return counted[-1]

    monkeypatch.setattr(gc, "get_freeze_count", get_freeze_count)
    unfreeze = gc.unfreeze
    pytester.makeconftest((pathlib.Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-W", "ignore", "-p", "no:randomly")
    assert result.ret == pytest.ExitCode.OK
    assert [bool(number) for number in counted] == [True, False, True]
    assert gc.unfreeze is unfreeze
