"""The bench: one real Kafka; in each round every client runs every workload in a fresh process, in turn, and backwards in the next round.

    python -m tests.tools.benchmarks [WORKLOAD ...] [--clients ...] [--rounds 7] [--scale 1.0] [--base TREE] [--json PATH]
    python -m tests.tools.benchmarks heartbeat | spark     (each has a --help of its own)

Figures are medians of the rounds. Ratios are paired by round, over the client `--beside` (of plain Python: over its plain
Python, where that runs, too); the worst one is in brackets. `--base` is another
tree, with its compiled modules built in place, for the clients `base` and `base_pure`. A client that needs more than a minute is left out of
that workload. Exit status 1 when a run lost or doubled a record.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import importlib
import json
import os
import pathlib
import statistics
import sys

from rich.console import Console
from rich.table import Table

from tests.tools.benchmarks.broker import ROOT, Broker, real_broker
from tests.tools.benchmarks.clients import BASE_TREE, CLIENTS, OF_BASE, OURS, PEER
from tests.tools.benchmarks.task import WARM_UP, Measure, Settings, Task, Told, measure
from tests.tools.benchmarks.workloads import WORKLOADS

PROGRAMS = ("heartbeat", "spark")
LIMIT = 60.0
"""Seconds of one run."""
SETTLED_SECONDS = 2.0
"""The wait after a client was killed, until its records are in the log: they must not count for the next client."""
PEERS_PACE = 0.4
"""Records of the slower peer in a burst, as a part of the workload's: so that one run of each takes a few seconds."""
SHOWN = {
    "CPU us": "cpu_us",
    "k/s": "rate",
    "p50 ms": "p50_ms",
    "p99 ms": "p99_ms",
    "peak MiB": "peak_mib",
}

Found = dict[str, dict[str, list["Measure | None"]]]
"""The measures by workload and client; None stands for a round without one."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "workloads",
        nargs="*",
        metavar="WORKLOAD",
        help=f"all if none is given: {', '.join(WORKLOADS)}",
    )
    parser.add_argument(
        "--clients",
        nargs="+",
        choices=CLIENTS,
        default=[one for one in CLIENTS if one not in OF_BASE],
        metavar="NAME",
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="of each number of records")
    parser.add_argument(
        "--base",
        type=pathlib.Path,
        metavar="TREE",
        help=f"for the clients {' and '.join(sorted(OF_BASE))}",
    )
    parser.add_argument(
        "--beside",
        metavar="NAME",
        help="over which client ratios are: base where there is one, else aiokafka",
    )
    parser.add_argument(
        "--json", type=pathlib.Path, metavar="PATH", help="write everything measured there"
    )
    chosen = parser.parse_args()
    chosen.workloads = chosen.workloads or list(WORKLOADS)
    if unknown := set(chosen.workloads) - set(WORKLOADS):
        parser.error(f"no workload is called {', '.join(unknown)}: {', '.join(WORKLOADS)}")
    if chosen.base is not None:
        os.environ[BASE_TREE] = str(chosen.base.resolve())
        chosen.clients += [
            one
            for one in sorted(OF_BASE)
            if one not in chosen.clients and not OF_BASE & set(chosen.clients)
        ]
    elif OF_BASE & set(chosen.clients):
        parser.error("--base says where that client's tree is")
    chosen.beside = chosen.beside or next(
        one for one in ("base", PEER, *chosen.clients) if one in chosen.clients
    )
    return chosen


def task_of(workload: str, client: str, broker: Broker, scale: float) -> Task:
    wanted = WORKLOADS[workload]
    pace = PEERS_PACE if client == PEER and wanted.way in {"stream", "gather", "herd"} else 1.0
    records = max(
        int(wanted.records * pace * scale), 100, wanted.tasks if wanted.way == "herd" else 0
    )
    own = {}
    if (
        client == PEER and wanted.tasks > 2_000
    ):  # else some of its tasks fail while they wait for space in a batch
        own = {"request_timeout_ms": 600_000}
    return Task(
        client=client,
        way=wanted.way,
        bootstrap_servers=broker.bootstrap_servers_at(wanted.rtt_ms),
        topic=f"bench-{wanted.partitions}",
        partitions=wanted.partitions,
        records=records,
        warm_up=min(WARM_UP, records // 5),
        keys=wanted.keys,
        value_bytes=wanted.value_bytes,
        tasks=wanted.tasks,
        load=wanted.load,
        settings=Settings(linger_ms=wanted.linger_ms, own=own),
    )


async def run(workload: str, task: Task, broker: Broker) -> Measure | str:
    """Run one client in a fresh process. Returns its measure, or why it has none."""
    starts = await broker.ends(task.topic)
    env = {name: value for name, value in os.environ.items() if name != "AIOPRODUCER_PURE"}
    if CLIENTS[task.client].is_pure:
        env["AIOPRODUCER_PURE"] = "1"
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "tests.tools.benchmarks.client")
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(LIMIT):
            printed, complaints = await process.communicate(task.to_json().encode())
    except TimeoutError:
        return f"not within {LIMIT:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
            await asyncio.sleep(SETTLED_SECONDS)
    if process.returncode:
        return complaints.decode(errors="replace").strip().splitlines()[-1]
    return measure(
        workload,
        task,
        Told.from_json(printed.splitlines()[-1]),
        starts,
        await broker.ends(task.topic),
    )


async def rounds(chosen: argparse.Namespace, console: Console) -> Found:
    """Run all rounds, and print each run's figures as it ends."""
    found: Found = {}
    rtts_ms = sorted({WORKLOADS[workload].rtt_ms for workload in chosen.workloads} - {0})
    async with real_broker(rtts_ms=rtts_ms, is_server=True) as broker:
        for partitions in {
            WORKLOADS[workload].partitions for workload in [*chosen.workloads, "many"]
        }:
            await broker.create_topic(f"bench-{partitions}", partitions)
        await run(
            "warm-up", task_of("many", OURS, broker, chosen.scale), broker
        )  # in which a new broker compiles
        for number in range(chosen.rounds):
            for workload in chosen.workloads:
                for client in chosen.clients[:: -1 if number % 2 else 1]:
                    measures = found.setdefault(workload, {}).setdefault(client, [])
                    if WORKLOADS[workload].way not in CLIENTS[client].ways or None in measures:
                        continue
                    one = await run(
                        workload, task_of(workload, client, broker, chosen.scale), broker
                    )
                    where = f"round {number + 1} {workload:11} {client:17}"
                    if isinstance(one, str):
                        console.print(f"{where} left out: {one}", markup=False)
                        measures.append(None)
                        continue
                    measures.append(one)
                    sound = "" if one.is_sound else "   NOT SOUND: records are lost or doubled"
                    console.print(
                        f"{where} {one.cpu_us:9.2f} us/record {one.rate / 1e3:9.1f} k/s   p50 {one.p50_ms:8.2f} ms{sound}"
                    )
    return found


def table(workload: str, by_client: dict[str, list[Measure | None]], beside: str) -> Table:
    """Return the medians of each client, and its ratios to the one beside it."""
    shown = Table(title=workload, title_justify="left")
    shown.add_column("client")
    for heading in (*SHOWN, *(f"{name.split()[0]} / {beside}" for name in list(SHOWN)[:4])):
        shown.add_column(heading, justify="right")
    for client, all_rounds in by_client.items():
        measures = [one for one in all_rounds if one is not None]
        if not measures:
            continue
        row = [
            f"{statistics.median(getattr(one, name) for one in measures) / (1e3 if name == 'rate' else 1):.4g}"
            for name in SHOWN.values()
        ]
        other = (
            f"{beside}_pure"
            if client.endswith("_pure") and f"{beside}_pure" in by_client
            else beside
        )
        for name in list(SHOWN.values())[:4] if client != other else []:
            pairs = zip(all_rounds, by_client.get(other, []), strict=False)
            ratios = [
                getattr(a, name) / getattr(b, name)
                for a, b in pairs
                if a is not None and b is not None and getattr(b, name)
            ]
            worst = min if name == "rate" else max
            row.append(f"{statistics.median(ratios):.3g} ({worst(ratios):.3g})" if ratios else "")
        shown.add_row(client, *row)
    return shown


def main() -> int:
    if sys.argv[1:2] and sys.argv[1] in PROGRAMS:
        name = sys.argv.pop(1)
        status: int = importlib.import_module(f"tests.tools.benchmarks.{name}").main()
        return status
    chosen, console = arguments(), Console(highlight=False)
    console.width = max(console.width, 150)  # a log has no width of its own
    found = asyncio.run(rounds(chosen, console))
    for workload, by_client in found.items():
        console.print(table(workload, by_client, chosen.beside))
    measures = [
        one
        for by_client in found.values()
        for some in by_client.values()
        for one in some
        if one is not None
    ]
    for build in dict.fromkeys(f"{one.client}: {one.build}" for one in measures):
        console.print(build, markup=False)
    if chosen.json:
        chosen.json.write_text(
            json.dumps([dataclasses.asdict(one) for one in measures], indent=1) + "\n"
        )
    return 0 if all(one.is_sound for one in measures) else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
