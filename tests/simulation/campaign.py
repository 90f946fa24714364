"""Runs many seeds over several processes, and adds up their results."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulation.plan import PROFILES, kinds_of
from tests.simulation.run import Report, simulate
from tests.simulation.systems import SYSTEMS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

__all__ = ["Failing", "Tally", "run_seeds"]

_CHUNK: Final = 50  # seeds per task of a process


class Failing(NamedTuple):
    """Holds a failed seed: its violations and the command that replays it."""

    seed: int
    command: str
    violations: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """Holds the summed results of some seeds.

    Attributes:
        fates: numbers of transactions, by fate.
        runs: number of runs of each profile.
        runs_with: number of runs in which each class of fault happened, by profile and class.
        runs_at_work: number of runs in which each of the producer's own systems acted, by profile and system.
        cpu: seconds of processor time.
    """

    seeds: int = 0
    records: int = 0
    acknowledged: int = 0
    failed: int = 0
    simulated: float = 0.0
    cpu: float = 0.0
    fates: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    runs_with: Counter[tuple[str, str]] = field(default_factory=Counter)
    runs_at_work: Counter[tuple[str, str]] = field(default_factory=Counter)
    failing: list[Failing] = field(default_factory=list)

    def take(self, report: Report) -> None:
        """Add one run."""
        self.seeds += 1
        self.records += report.records
        self.acknowledged += report.acknowledged
        self.failed += report.failed
        self.simulated += report.seconds
        self.fates.update(report.fates)
        self.runs[report.profile] += 1
        self.runs_with.update(
            (report.profile, kind) for kind, times in report.fired.items() if times
        )
        self.runs_at_work.update((report.profile, system) for system in report.worked)
        if report.violations:
            self.failing.append(Failing(report.seed, report.command, tuple(report.violations)))

    def add(self, other: Tally) -> None:
        """Add the results of another process."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def shares(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield each class of fault with the share of runs in which it happened, for each profile that may have it."""
        for kind in sorted(
            {kind for _, kind in self.runs_with}
            | {kind for profile in self.runs for kind in kinds_of(profile)}
        ):
            yield (
                kind,
                {
                    profile: self.runs_with[profile, kind] / self.runs[profile]
                    for profile in PROFILES
                    if self.runs[profile]
                    and (kind in kinds_of(profile) or self.runs_with[profile, kind])
                },
            )

    def shares_at_work(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield each of the producer's own systems with the share of runs in which it acted, by profile."""
        for system in SYSTEMS:
            yield (
                system,
                {
                    profile: self.runs_at_work[profile, system] / self.runs[profile]
                    for profile in PROFILES
                    if self.runs[profile]
                },
            )


def run_seeds(
    seeds: range,
    *,
    profile: str | None = None,
    faults: Collection[str] | None = None,
    jobs: int = 1,
    on_progress: Callable[[Tally], object] = lambda _tally: None,
    most: int | None = None,
) -> Tally:
    """Run all seeds, or until `most` have failed. Returns the summed results.

    Args:
        seeds: the seeds.
        profile: as of `simulate`.
        faults: as of `simulate`.
        jobs: number of processes; 1: this one alone.
        on_progress: called from time to time with the results so far.
        most: number of failed seeds that ends the run.
    """
    tally = Tally()
    chunks = (seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK))
    parts = (
        (_run(chunk, profile, faults) for chunk in chunks)
        if jobs == 1
        else _elsewhere(chunks, profile, faults, jobs)
    )
    for part in parts:
        tally.add(part)
        on_progress(tally)
        if most is not None and len(tally.failing) >= most:
            break
    tally.failing.sort()
    return tally


def _elsewhere(
    chunks: Iterator[range], profile: str | None, faults: Collection[str] | None, jobs: int
) -> Iterator[Tally]:
    """Run the seeds in spawned processes. Spawned, not forked, so that they share no state."""
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        pending = {pool.submit(_run, chunk, profile, faults) for chunk in islice(chunks, 2 * jobs)}
        try:
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    pending |= {
                        pool.submit(_run, chunk, profile, faults) for chunk in islice(chunks, 1)
                    }
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _run(seeds: range, profile: str | None, faults: Collection[str] | None) -> Tally:
    tally, began = Tally(), time.process_time()
    for seed in seeds:
        tally.take(simulate(seed, profile=profile, faults=faults))
    tally.cpu = time.process_time() - began
    return tally
