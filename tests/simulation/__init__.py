"""Simulation: the real producer and the fake cluster in one virtual-time loop; equal seeds give equal runs.

    report = simulate(42)
    assert not report.violations, report.trace

`python -m tests.simulation --seeds 1-1000` runs many. See docs/topics/simulation.md.
"""

from tests.simulation.client import Client
from tests.simulation.plan import PROFILES, Plan, draw
from tests.simulation.run import Report, simulate

__all__ = ["PROFILES", "Client", "Plan", "Report", "draw", "simulate"]
