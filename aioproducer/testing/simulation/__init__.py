"""Simulation: the real producer and the fake cluster in one virtual-time loop; equal seeds give equal runs.

    report = simulate(42)
    assert not report.violations, report.trace

`python -m aioproducer.testing.simulation --seeds 1-1000` runs many. See docs/topics/simulation.md.
"""

from aioproducer.testing.simulation.client import Client
from aioproducer.testing.simulation.plan import ALL_FAULTS, PROFILES, Plan, Workload, draw
from aioproducer.testing.simulation.run import Report, simulate

__all__ = ["ALL_FAULTS", "PROFILES", "Client", "Plan", "Report", "Workload", "draw", "simulate"]
