"""The bench: one real Kafka, each round every client on every workload in a fresh process, A B then B A.

    python -m tests.tools.benchmarks [--rounds 7] [--workloads stream_keys herd ...] [--clients ...] [--records N] [--json PATH]

Exit status 1 when a bar is not met or a run lost or doubled a record. Knows nothing of what a workload does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import sys
from typing import TYPE_CHECKING, cast

from rich.console import Console

from tests.tools.benchmarks import report
from tests.tools.benchmarks.broker import Broker, real_broker
from tests.tools.benchmarks.clients import BASE_TREE, CLIENTS, OF_BASE, OURS, PEER
from tests.tools.benchmarks.processes import RunFailed
from tests.tools.benchmarks.runs import run
from tests.tools.benchmarks.task import WARM_UP, Measure, Task
from tests.tools.benchmarks.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LIMIT = 600.0
"""Seconds of one run."""


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.benchmarks", description="Ours and aiokafka on one real Kafka.")
    parser.add_argument("--rounds", type=int, default=7, help="each round runs every client on every workload (default: %(default)s)")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), metavar="NAME", help=", ".join(WORKLOADS))
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=[OURS, PEER], metavar="NAME", help=", ".join(CLIENTS))
    parser.add_argument("--base", type=pathlib.Path, metavar="PATH", help=f"another tree, for the clients {' and '.join(OF_BASE)}")
    parser.add_argument("--records", type=int, help="of each run, instead of the workload's own number")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="write everything measured there")
    chosen = parser.parse_args(words)
    if chosen.base is not None:
        os.environ[BASE_TREE] = str(chosen.base.resolve())
    elif OF_BASE & set(chosen.clients):
        parser.error("--base says where that client's tree is")
    return chosen


def turns(rounds: int, workloads: Sequence[str], clients: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (workload, client) of every run, in order. The client that is first in one round is last in the next."""
    for number in range(rounds):
        order = clients if number % 2 == 0 else clients[::-1]
        yield from ((workload, client) for workload in workloads for client in order)


def topics_of(workload: str, client: str) -> list[str]:
    """Return all topics of a run. Workloads with many topics use the same ones for every client, as a broker creates them slowly."""
    wanted = WORKLOADS[workload]
    if wanted.topics > 1:
        return [f"bench-{workload}-{number}" for number in range(wanted.topics)]
    return [f"bench-{workload}-{client}".replace("_", "-")]


async def run_client(client: str, workload: str, broker: Broker, records: int) -> Measure:
    """Run one client in a fresh process. Returns its measure."""
    wanted = WORKLOADS[workload]
    task = Task(
        client=client,
        way=wanted.way,
        bootstrap_servers=broker.bootstrap_servers_at(wanted.rtt_ms),
        topics=topics_of(workload, client),
        partitions=wanted.partitions,
        records=records,
        warm_up=min(WARM_UP, records // 5),
        keys=wanted.keys,
        value_bytes=wanted.value_bytes,
        tasks=wanted.tasks,
        text=wanted.text,
        load=wanted.load,
        settings=wanted.settings,
    )
    try:
        return await run(workload, task, broker, LIMIT)
    except RunFailed as error:
        raise SystemExit(f"{client} failed on {workload}: {error}") from None


async def measure(chosen: argparse.Namespace, console: Console) -> report.Rounds:
    """Run all rounds, and print each run's figures as it ends."""
    rounds: report.Rounds = {workload: {client: [] for client in chosen.clients} for workload in chosen.workloads}
    rtts_ms = sorted({WORKLOADS[workload].rtt_ms for workload in chosen.workloads} - {0})
    async with real_broker(rtts_ms=rtts_ms) as broker:
        for workload in chosen.workloads:
            if WORKLOADS[workload].topics > 1:
                await broker.create_topics(topics_of(workload, ""))
                continue
            for client in chosen.clients:
                await broker.create_topic(*topics_of(workload, client), WORKLOADS[workload].partitions)
        for workload in [name for name in chosen.workloads if WORKLOADS[name].topics > 1]:
            # A broker makes files for its first records: after a few of them, the client that came first had a tenth of its rate.
            await run_client(PEER, workload, broker, chosen.records or WORKLOADS[workload].records)
        for workload, client in turns(chosen.rounds, chosen.workloads, chosen.clients):
            one = await run_client(client, workload, broker, chosen.records or WORKLOADS[workload].records)
            rounds[workload][client].append(one)
            number = len(rounds[workload][client])
            latency = f"   p50 {one.p50_ms:8.2f} ms   p99 {one.p99_ms:8.2f} ms" if one.p50_ms else ""
            console.print(f"round {number} {workload:13} {client:16} {one.cpu_us:8.2f} us/record {one.rate / 1e3:8.1f} k/s{latency}")
    return rounds


def main() -> int:
    chosen, console = arguments(sys.argv[1:]), Console(highlight=False)
    console.width = max(console.width, report.WIDTH)  # a log has no width of its own
    rounds = asyncio.run(measure(chosen, console))
    found = report.verdicts(rounds)
    console.print(report.measures_table(rounds))
    if found:
        console.print(report.verdicts_table(found))
    if chosen.json:
        path = cast("pathlib.Path", chosen.json)
        path.write_text(json.dumps(report.as_json(rounds, found), indent=1) + "\n")
        console.print(f"everything measured: {path}")
    every = (one for by_client in rounds.values() for measures in by_client.values() for one in measures)
    return 0 if all(one.is_sound for one in every) and all(verdict.is_met for verdict in found) else 1


if __name__ == "__main__":
    sys.exit(main())
