"""Hypothesis fails no test because a machine is busy (tests/conftest.py)."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@settings(max_examples=1)
@given(st.none())
def test_an_example_may_take_any_time(nothing: None) -> None:
    """Also where a test has settings of its own."""
    inner = test_an_example_may_take_any_time._hypothesis_internal_use_settings  # type: ignore[attr-defined]
    for in_force in (settings.default, inner):
        assert in_force is not None
        assert in_force.deadline is None
        assert HealthCheck.too_slow in in_force.suppress_health_check
