"""Runs one task in a fresh process, and checks its result against the log."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from tests.tools.benchmarks.peers.outsiders import OUTSIDERS

from tests.tools.benchmarks.clients import CHOOSES_PURE
from tests.tools.benchmarks.peers.clients import CLIENTS
from tests.tools.benchmarks.processes import RunFailed, output
from tests.tools.benchmarks.task import Measure, Told, measure

if TYPE_CHECKING:
    from tests.tools.benchmarks.broker import Broker
    from tests.tools.benchmarks.task import Task


async def run(name: str, task: Task, broker: Broker, limit: float) -> Measure:
    """Run one task in a fresh process. Returns its measure. RunFailed: it failed, or took longer than `limit` seconds."""
    starts = await broker.ends(task.topics, task.partitions)
    try:
        async with asyncio.timeout(limit):
            told = await (OUTSIDERS[task.client](task) if task.client in OUTSIDERS else _of_python(task))
    except TimeoutError:
        raise RunFailed(f"not within {limit:g} s") from None
    return measure(name, task, told, starts, await broker.ends(task.topics, task.partitions))


async def _of_python(task: Task) -> Told:
    env = {name: value for name, value in os.environ.items() if name != CHOOSES_PURE} | CLIENTS[task.client].env
    return Told.from_json((await output(task.to_json(), sys.executable, "-m", "tests.tools.benchmarks.client", env=env)).splitlines()[-1])
