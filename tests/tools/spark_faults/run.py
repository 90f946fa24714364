"""Runs a case: starts its query again until all input is through, kills what the case names, and counts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
import re
import signal
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioproducer.errors import BrokerError, TransportError
from tests.tools.spark_faults import processes
from tests.tools.spark_faults.case import Result
from tests.tools.spark_faults.count import count
from tests.tools.spark_faults.faults import struck
from tests.tools.spark_faults.job import DIED, Driver, Job, Outcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.tools.spark_faults.case import Case, Kills, Kind, Run
    from tests.tools.spark_faults.stage import Stage

__all__ = ["CaseRun"]

ROOT: Final = Path(__file__).parents[3]
_PARTITIONS: Final = 6
_POLL_SECONDS: Final = 0.05
_MOST_RUNS: Final = 80
_START_SECONDS: Final = 60.0
_SAID: Final = 400
_LEFT: Final = (0.0, 0.3, 2.0)  # seconds in which the processes of a killed driver live on


class CaseRun:
    """Runs one case.

    Args:
        case: the case.
        stage: Kafka and Spark.
        folder: for the query's files.
        tell: shows a line of progress.
    """

    def __init__(self, case: Case, stage: Stage, folder: Path, tell: Callable[[str], None]) -> None:
        self._case = case
        self._stage = stage
        self._folder = folder
        self._tell = tell
        self._sink = f"{case.name}-{uuid.uuid4().hex[:8]}"
        self._random = random.Random(case.kills.seed if case.kills else 0)
        self._killed: Counter[str] = Counter()
        self._complaints: list[str] = []
        self._errors: list[str] = []
        self._runs = 0
        self._left = 0.0

    async def run(self) -> Result:
        """Return what the case came to."""
        began = time.monotonic()
        await self._stage.create_topic(self._sink, _PARTITIONS)
        stopped: list[tuple[Run, asyncio.subprocess.Process]] = []
        for run in self._case.runs[:-1]:
            await asyncio.sleep(run.after)
            if run.is_stopped:
                stopped.append((run, await self._start_and_stop(run)))
            else:
                self._judge(run, await self._once(run))
        await self._until_through(self._case.runs[-1])
        for run, process in stopped:
            await self._wake(run, process)
        await self._stage.settle()
        # in a thread: the consumer blocks, and the brokers' owner is in this loop
        counted = await asyncio.to_thread(
            count, self._stage.bootstrap_servers, self._sink, self._case.rows
        )
        faults = Counter(one.do for one in struck(self._folder)) + self._killed
        seconds = time.monotonic() - began
        return Result(
            case=self._case,
            struck=dict(faults),
            runs=self._runs,
            counted=counted,
            seconds=seconds,
            complaints=tuple(self._complaints),
            errors=tuple(self._errors),
        )

    # --- runs

    async def _until_through(self, run: Run) -> None:
        await asyncio.sleep(run.after)
        while self._runs < _MOST_RUNS:
            outcome = await self._once(run, self._case.again)
            if not outcome.error:
                return
        self._complaints.append(f"not through after {_MOST_RUNS} runs")

    def _judge(self, run: Run, outcome: Outcome) -> None:
        """Note a complaint if a run ended in another way than the case says."""
        error = outcome.error
        if bool(error) != run.dies:
            self._complaints.append(
                f"run {self._runs} {'ended well' if run.dies else error[:_SAID]}"
            )
        elif not re.search(run.says, error, re.DOTALL):
            self._complaints.append(
                f"run {self._runs} did not say {run.says!r} but: {error[:_SAID]}"
            )

    async def _once(self, run: Run, again: int = 0) -> Outcome:
        """Run a driver, which starts its query so often again when that fails. Returns how the last one ended."""
        async with self._process(run, again) as process:
            await self._watch(process)
            # what a killed driver leaves may write on for a moment, as it does on other machines
            await asyncio.sleep(self._left)
            self._left = 0.0
        if Driver.read(self._folder) is None:
            log = (self._folder / "job.log").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(
                f"run {self._runs} of {self._case.name} had no driver:\n{log[-_SAID * 5 :]}"
            )
        outcomes = Outcome.read(self._folder) or [Outcome(DIED)]
        self._runs += len(outcomes) - 1
        self._errors += [
            _gist(outcome.error) for outcome in outcomes if outcome.error not in {"", DIED}
        ]
        how = _gist(outcomes[-1].error)[:120] or "through"
        self._tell(
            f"{self._case.name}: run {self._runs}: {how}; {sum(self._killed.values()) + len(struck(self._folder))} faults"
        )
        return outcomes[-1]

    async def _start_and_stop(self, run: Run) -> asyncio.subprocess.Process:
        """Start a run, and stop all its processes when its fault has struck."""
        process = await self._start(run)
        try:
            async with asyncio.timeout(self._case.seconds + _START_SECONDS):
                while not struck(self._folder) and process.returncode is None:
                    await asyncio.sleep(_POLL_SECONDS)
        except BaseException:
            processes.end_session(process.pid)
            raise
        processes.send_to_session(process.pid, signal.SIGSTOP)
        self._tell(f"{self._case.name}: run {self._runs} stopped")
        return process

    async def _wake(self, run: Run, process: asyncio.subprocess.Process) -> None:
        """Let a stopped run go on to its end, and judge it."""
        Outcome.forget(self._folder)
        processes.send_to_session(process.pid, signal.SIGCONT)
        try:
            async with asyncio.timeout(self._case.seconds):
                await process.wait()
        finally:
            processes.end_session(process.pid)
        outcome = (Outcome.read(self._folder) or [Outcome(DIED)])[-1]
        self._errors.append(_gist(outcome.error))
        self._judge(run, outcome)

    async def _start(self, run: Run, again: int = 0) -> asyncio.subprocess.Process:
        Driver.forget(self._folder)
        Outcome.forget(self._folder)
        dataclasses.replace(self._job(run), again=again).write(self._folder)
        self._runs += 1
        env = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        with (self._folder / "job.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.tools.spark_faults.job", str(self._folder)),
                cwd=ROOT,
                env=env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @contextlib.asynccontextmanager
    async def _process(self, run: Run, again: int) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await self._start(run, again)
        try:
            yield process
        finally:
            processes.end_session(process.pid)
            await process.wait()

    def _job(self, run: Run) -> Job:
        case = self._case
        small = (
            {"spark.sql.execution.arrow.maxRecordsPerBatch": "100"}
            if case.slow or case.poison
            else {}
        )
        return Job(
            bootstrap_servers=self._stage.bootstrap_servers,
            source=self._stage.source(case.rows),
            sink=self._sink,
            per_batch=case.per_batch,
            format=case.format,
            options={**case.options, **run.options},
            source_options=run.source_options,
            master=case.master,
            conf=small | dict(case.conf),
            faults=run.faults,
            poison=case.poison,
            slow=case.slow,
            limit=case.seconds,
        )

    # --- kills

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Return when the run has ended; kill what the case names meanwhile."""
        kills = self._case.kills
        killing = asyncio.create_task(self._kill(kills)) if kills else None
        try:
            async with asyncio.timeout(self._case.seconds + _START_SECONDS):
                await process.wait()
        except TimeoutError:
            self._complaints.append(
                f"run {self._runs} had not ended after {self._case.seconds + _START_SECONDS:g} s"
            )
        finally:
            if killing:
                killing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await killing

    async def _kill(self, kills: Kills) -> None:
        while sum(self._killed.values()) < kills.count:
            end = await self._end()
            while await self._end() <= end:
                await asyncio.sleep(_POLL_SECONDS)
            await asyncio.sleep(self._random.uniform(*kills.every))
            kind = self._random.choice(kills.kinds)
            if await self._kill_one(kind):
                self._killed[kind] += 1

    async def _end(self) -> int:
        """Return the sum of the end offsets of the sink's topic, once every partition has a leader."""
        while True:
            # a broker may be down, for some seconds: `_watch` has the deadline
            with contextlib.suppress(TransportError, BrokerError):
                return sum(await self._stage.end_offsets(self._sink))
            await asyncio.sleep(_POLL_SECONDS)

    async def _kill_one(self, kind: Kind) -> bool:
        """Kill a process of this kind. Returns whether there was one."""
        driver = Driver.read(self._folder)
        if kind == "broker":
            return await self._stage.kill_a_broker(self._random)
        if driver is None:
            return False
        roots = [driver.python]
        match kind:
            case "driver":
                self._left = self._random.choice(_LEFT)
                os.kill(driver.jvm, signal.SIGKILL)
                return True
            case "worker":
                found = processes.workers(roots)
            case "executor":
                found = processes.executors(roots)
        if not found:
            return False
        self._random.choice(found).kill()
        return True


def _gist(error: str) -> str:
    """Return the line of an error that says most: that of the Python error within it, if there is one."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    python = [
        line
        for line in lines
        if re.match(
            r"^[\w.]+(Error|Lost|Committed|Fenced|TooOld|AnotherDriver|Injected|Exception|Failed|Timeout)\b.*: ",
            line,
        )
    ]
    said = python[-1] if python else lines[0] if lines else ""
    # with the ids of query and run, no two failures would say the same
    return said.rpartition("terminated with exception: ")[2][:_SAID]
