"""The report's bench on a real Kafka: two clients of different faces, one workload and one point of a curve, proved and drawn."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tests.tools.benchmarks.clients import OURS
from tests.tools.benchmarks.peers import draw
from tests.tools.benchmarks.peers.clients import CALLBACK
from tests.tools.benchmarks.peers.plan import PARTS
from tests.tools.benchmarks.peers.rounds import Bench, Found, Ran
from tests.tools.benchmarks.peers.sheets import curve_sheets

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


@pytest.mark.asyncio
async def test_two_clients_are_measured_and_proved(tmp_path: Path) -> None:
    """Each in processes of its own, near and through the proxy; every run is told, sound, and in the tables and the pictures."""
    parts = {}
    for name, wanted in (("workloads", "stream"), ("rtt", "5")):
        [case] = [case for case in PARTS[name].cases if case.name == wanted]
        parts[name] = dataclasses.replace(PARTS[name], cases=[dataclasses.replace(case, clients=(OURS, CALLBACK))])
    told: list[Ran] = []
    found = Found(command="", machine={}, date="", rounds=1, other_rounds=1)
    await Bench(found=found, scale=0.002, told=told.append).run(parts)
    assert [(one.part, one.client, one.failure) for one in told] == [(name, client, "") for name in parts for client in (OURS, CALLBACK)]
    assert found.runs == told
    measures = [one.measure for one in told if one.measure is not None]
    assert len(measures) == 4
    assert all(one.is_sound and one.rate > 0 and one.cpu_us > 0 and one.peak_mib > 1 for one in measures)
    assert {row[0] for row in curve_sheets(found, "rtt")[0].rows} == {"aioproducer", "confluent Producer, callback"}
    for name in parts:
        draw.draw(tmp_path / f"{name}.png", found, name)
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
