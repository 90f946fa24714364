"""The rule that tests/conftest.py keeps for passes of the collector: they visit no object from before the tests, on a small suite of its own."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _pytest.pytester import Pytester

pytest_plugins = ("pytester",)

TESTS = """
    import gc

    def test_at_first():
        assert gc.get_freeze_count() > 10_000

    def test_that_freezes_for_itself():
        gc.freeze()
        gc.unfreeze()

    def test_after_it():
        assert gc.get_freeze_count() > 10_000
"""


def test_what_was_there_before_stays_frozen(pytester: Pytester) -> None:
    """Also behind a test that unfreezes: a pass over the objects of the whole suite takes 0.3 s, and most scenarios make one."""
    pytester.makeconftest((pathlib.Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile(TESTS)
    pytester.runpytest_inprocess("-W", "ignore", "-p", "no:randomly").assert_outcomes(passed=3)
