"""Runs Java's own producer with Kafka's ProducerPerformance from the jars, in a process of its own.

The system reports the CPU of that process. Java's tool sends values without keys, and reads each result in a callback. Its warm-up is
long, as Java compiles while it runs. The figures are those of its steady state: rate and latencies as it prints them, CPU between the
first and the last of its progress lines there.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psutil

from aioproducer import jars
from aioproducer.testing.kafka_node import fetched
from tests.tools.benchmarks.processes import RunFailed
from tests.tools.benchmarks.task import Told
from tests.tools.benchmarks.workloads import text_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.tools.benchmarks.task import Task

WAYS: Final = ("stream", "mixed")
MAIN: Final = "org.apache.kafka.tools.ProducerPerformance"
WINDOW_MS: Final = 100
"""Between two progress lines."""
SENT: Final = re.compile(rb"^(\d+) records sent, ")
STEADY: Final = re.compile(
    rb"^(\d+) steady state records sent, ([\d.]+) records/sec .* ([\d.]+) ms avg latency, .* (\d+) ms 50th, .* (\d+) ms 99th"
)


class Glance(NamedTuple):
    """Holds the system's figures of the process after so many records."""

    sent: int
    cpu_seconds: float
    rss: int


def config(task: Task) -> dict[str, Any]:
    """Return the settings by Java's names."""
    settings = task.settings
    return {
        "acks": "all",
        "enable.idempotence": "true",
        "linger.ms": settings.linger_ms,
        "batch.size": settings.batch_size,
        "compression.type": settings.compression,
        **settings.own,
    }


async def run(task: Task) -> Told:
    """Run one process. RunFailed: its output lacks the expected lines."""
    tools = await fetched(jars.KAFKA_VERSION)
    with tempfile.NamedTemporaryFile(suffix=".txt") as payloads:
        if task.text:
            payloads.write(b"\n".join(text_values(task.value_bytes)))
            payloads.flush()
        what = ("--payload-file", payloads.name) if task.text else ("--record-size", str(task.value_bytes))
        command = (
            *(str(tools.java), "-cp", f"{tools.library}/*", MAIN, "--bootstrap-server", task.bootstrap_servers),
            *("--topic", task.topics[0], "--num-records", str(task.warm_up + task.records), *what, "--throughput", "-1"),
            *("--warmup-records", str(task.warm_up), "--reporting-interval", str(WINDOW_MS)),
            *("--command-property", *(f"{name}={value}" for name, value in config(task).items())),
        )
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        try:
            glances, lines = await _watch(process)
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if status:
        raise RunFailed(f"status {status}: {b' '.join(lines[-5:]).decode(errors='replace')}")
    return told(task, glances, lines)


async def _watch(process: asyncio.subprocess.Process) -> tuple[list[Glance], list[bytes]]:
    """Return a glance at each of its progress lines, and its whole output."""
    assert process.stdout is not None
    glances, lines, sent = [], [], 0
    watched = psutil.Process(process.pid)
    async for line in process.stdout:
        lines.append(line)
        if b"50th" not in line and (found := SENT.match(line)):
            sent += int(found[1])
            with contextlib.suppress(psutil.Error):  # the process may have ended by now
                times, memory = watched.cpu_times(), watched.memory_info()
                glances.append(Glance(sent, times.user + times.system, memory.rss))
    return glances, lines


def told(task: Task, glances: Sequence[Glance], lines: Sequence[bytes]) -> Told:
    """Return the figures of the steady state. RunFailed: it was too short for two glances, or its output line is missing."""
    steady = [glance for glance in glances if glance.sent > task.warm_up]
    summary = next((found for line in lines if (found := STEADY.match(line))), None)
    if summary is None or len(steady) < 2 or steady[-1].sent == steady[0].sent:
        raise RunFailed(f"no steady state within {task.records:,} records: {b' '.join(lines[-2:]).decode(errors='replace')}")
    records, rate, p50_ms, p99_ms = int(summary[1]), float(summary[2]), float(summary[4]), float(summary[5])
    cpu_a_record = (steady[-1].cpu_seconds - steady[0].cpu_seconds) / (steady[-1].sent - steady[0].sent)
    peak = max(glance.rss for glance in glances)
    return Told(
        records=records,
        seconds=records / rate,
        cpu_seconds=cpu_a_record * records,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        peak_mib=peak / 2**20,
        growth_mib=(peak - steady[0].rss) / 2**20,
        build=f"kafka-clients {jars.KAFKA_VERSION}",
    )
