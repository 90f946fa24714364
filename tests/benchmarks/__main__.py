"""The bench: one real Kafka, each round every client on every workload in a fresh process, A B then B A.

    python -m tests.benchmarks [--rounds 7] [--workloads stream_keys herd ...] [--clients ...] [--records N] [--json PATH]

Exit status 1 when a bar is not met or a run lost or doubled a record. Knows nothing of what a workload does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import sys
from typing import TYPE_CHECKING, cast

from rich.console import Console

from tests.benchmarks import report
from tests.benchmarks.broker import Broker, real_broker
from tests.benchmarks.clients import CLIENTS, OURS, PEER
from tests.benchmarks.processes import RunFailed
from tests.benchmarks.runs import run
from tests.benchmarks.task import WARM_UP, Measure, Task
from tests.benchmarks.workloads import PARTITIONS, WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LIMIT = 600.0
"""Seconds of one run."""


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Ours and aiokafka on one real Kafka.")
    parser.add_argument("--rounds", type=int, default=7, help="each round runs every client on every workload (default: %(default)s)")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), metavar="NAME", help=", ".join(WORKLOADS))
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=[OURS, PEER], metavar="NAME", help=", ".join(CLIENTS))
    parser.add_argument("--records", type=int, help="of each run, instead of the workload's own number")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="write everything measured there")
    return parser.parse_args(words)


def turns(rounds: int, workloads: Sequence[str], clients: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(workload, client) of every run, in order: whoever went first in one round goes last in the next."""
    for number in range(rounds):
        order = clients if number % 2 == 0 else clients[::-1]
        yield from ((workload, client) for workload in workloads for client in order)


def topic_of(workload: str, client: str) -> str:
    return f"bench-{workload}-{client}".replace("_", "-")


async def run_client(client: str, workload: str, broker: Broker, records: int) -> Measure:
    """One fresh process, one measure."""
    wanted = WORKLOADS[workload]
    task = Task(
        client=client,
        way=wanted.way,
        bootstrap_servers=broker.bootstrap_servers_at(wanted.rtt_ms),
        topics=[topic_of(workload, client)],
        partitions=PARTITIONS,
        records=records,
        warm_up=min(WARM_UP, records // 5),
        keys=wanted.keys,
    )
    try:
        return await run(workload, task, broker, LIMIT)
    except RunFailed as error:
        raise SystemExit(f"{client} failed on {workload}: {error}") from None


async def measure(chosen: argparse.Namespace, console: Console) -> report.Rounds:
    """All rounds, each run's figures printed as it ends."""
    rounds: report.Rounds = {workload: {client: [] for client in chosen.clients} for workload in chosen.workloads}
    rtts_ms = sorted({WORKLOADS[workload].rtt_ms for workload in chosen.workloads} - {0})
    async with real_broker(rtts_ms=rtts_ms) as broker:
        for workload in chosen.workloads:
            for client in chosen.clients:
                await broker.create_topic(topic_of(workload, client), PARTITIONS)
        for workload, client in turns(chosen.rounds, chosen.workloads, chosen.clients):
            one = await run_client(client, workload, broker, chosen.records or WORKLOADS[workload].records)
            rounds[workload][client].append(one)
            number = len(rounds[workload][client])
            console.print(f"round {number} {workload:13} {client:11} {one.cpu_us:8.2f} us/record {one.rate / 1e3:8.1f} k/s")
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
