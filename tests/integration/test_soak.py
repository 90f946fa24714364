"""A short soak on a real Kafka: some seconds, a few thousand records a second, several cuts."""

from __future__ import annotations

import asyncio

import pytest

from tests.tools.soak import __main__ as program
from tests.tools.soak.run import Chosen, soak

pytestmark = pytest.mark.integration


def test_a_quarter_of_a_minute() -> None:
    """Connections are cut, and every record is there once."""
    chosen = Chosen(minutes=0.25, rate=3_000, every=0.5, pause=(0.5, 1.5))
    soaked = asyncio.run(soak(chosen))
    assert soaked.wrong == []
    assert soaked.cuts > 4
    assert soaked.samples[-1].acked > 30_000
    assert program.progress(soaked).endswith("cuts  0 failed")
