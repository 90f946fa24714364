"""The rule about skips that tests/conftest.py keeps, on a small suite of its own."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.pytester import Pytester

pytest_plugins = ("pytester",)

TESTS = """
    import pytest

    def test_that_runs(): pass

    @pytest.mark.skip(reason="no such machine")
    def test_with_a_reason(): pass

    @pytest.mark.skip
    def test_without(): pass
"""


@pytest.mark.parametrize(
    ("is_ci", "chosen", "passes"),
    [
        (False, "runs or with_a_reason", True),
        (False, "runs or without", False),
        (True, "runs or with_a_reason", False),
        (True, "runs", True),
    ],
)
def test_no_skip_without_a_reason_and_none_in_ci(
    pytester: Pytester, monkeypatch: pytest.MonkeyPatch, *, is_ci: bool, chosen: str, passes: bool
) -> None:
    """A skip must say why; in CI a skipped test fails the run and is named at its end."""
    monkeypatch.setenv("CI", "true") if is_ci else monkeypatch.delenv("CI", raising=False)
    pytester.makeconftest((pathlib.Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-k", chosen, "-W", "ignore", "-p", "no:randomly")
    assert result.ret == (pytest.ExitCode.OK if passes else pytest.ExitCode.TESTS_FAILED)
    assert ("skipped where no skip is allowed" in result.stdout.str()) is not passes
