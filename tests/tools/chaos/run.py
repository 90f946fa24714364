"""Runs the faults until the time is over, ends all programs, reads their records back and judges them."""

from __future__ import annotations

import asyncio
import itertools
import random
import shlex
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .faults import FAULTS
from .gaps import gaps
from .history import acknowledged, read_copied, read_sent
from .judge import judge_copied, judge_sent, kinds
from .logs import broken_sequences, read_topic
from .program import ProgramFailed
from .report import Judged, Report, figures_of
from .stage import COPIED, SENT, Settings, now, staged

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator, Sequence

    from .faults import Fault
    from .history import Told
    from .judge import Read, Reads
    from .program import Program
    from .stage import Stage

__all__ = ["Chosen", "chaos"]

_QUIET: Final = 4.0  # seconds before the first fault and between two
_NOTHING: Final = lambda _: None  # noqa: E731


@dataclass(frozen=True)
class Chosen:
    """Holds the options of a run.

    `faults`: as many of these as there is time for, in a random order; `once`: each fault once, even if the time is over.
    """

    minutes: float = 20.0
    faults: Sequence[Fault] = FAULTS
    seed: int = 1
    once: bool = False
    settings: Settings = field(default_factory=Settings)

    @property
    def command(self) -> str:
        """Return the command that repeats the run, as far as a run can be the same."""
        only = [word for fault in self.faults for word in ("--only", fault.name)] if len(self.faults) < len(FAULTS) else []
        words = ["--minutes", f"{self.minutes:g}", "--seed", str(self.seed), *only]
        told = (("--kafka", "version"), ("--transactions", "transactions"), ("--throughput", "throughput"), ("--options", "options"))
        for word, name in told:
            if (value := getattr(self.settings, name)) != getattr(Settings, name):
                words += [word, str(value)]
        words += [] if self.settings.is_copying else ["--no-copy"]
        return shlex.join(["python", "-m", "tests.tools.chaos", *words])


async def chaos(chosen: Chosen, folder: pathlib.Path, tell: Callable[[str], object] = _NOTHING) -> Report:
    """Run the faults and judge the records. `tell` gets a line now and then, and the programs' lines stay in `folder`.

    Raises:
        ProgramFailed: a program does not even start.
        KafkaServerFailed: a node does not.
    Cancellation: every process is ended.
    """
    tell("starting three nodes")
    async with staged(chosen.settings, folder, random.Random(chosen.seed)) as stage:
        start = now()
        await _strike_on(stage, chosen, tell)
        tell("the programs end what they began")
        await stage.end()
        return await _judged(stage, chosen, start, tell)


async def _strike_on(stage: Stage, chosen: Chosen, tell: Callable[[str], object]) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + chosen.minutes * 60
    counts: Counter[str] = Counter()
    for fault in _turns(chosen, stage.random):
        await asyncio.sleep(_QUIET)
        if loop.time() >= end and not chosen.once:
            return
        try:
            mark = await stage.strike(fault.name, fault.play)
        except (ProgramFailed, TimeoutError) as error:  # judged all the same
            stage.complain("programs", f"never ended: {fault.name}: {error!r}")
            return
        counts[fault.name] += 1
        flow = ", ".join(f"{program.acked.total():,} acknowledged, {program.failed} failed" for program in stage.programs)
        tell(f"{fault.name} ({counts[fault.name]}): {(mark.end - mark.start) / 1000:.0f} s, {mark.failed} failed; in all {flow}")


def _turns(chosen: Chosen, chance: random.Random) -> Iterator[Fault]:
    """Yield each fault once, in a random order, and again in another order."""
    able = [fault for fault in chosen.faults if chosen.settings.is_copying or not fault.copies]
    for _ in range(1) if chosen.once else itertools.count():
        yield from chance.sample(able, len(able))


async def _judged(stage: Stage, chosen: Chosen, start: int, tell: Callable[[str], object]) -> Report:
    seconds = (now() - start) / 1000
    partitions = len(await stage.admin.partitions(SENT))
    source = await _read(stage, SENT, partitions, tell)
    tell(f"judging topic {SENT}")
    judged = [await asyncio.to_thread(_of_sent, stage, source)]
    if stage.copier is not None:
        everything = await _read(stage, COPIED, partitions, tell, "read_uncommitted")
        copied = await _read(stage, COPIED, partitions, tell)
        tell(f"judging topic {COPIED}")
        judged.append(await asyncio.to_thread(_of_copied, stage, stage.copier, source, everything, copied))
        judged[-1].complaints += [f"undecided: a transaction in partition {one}" for one in await stage.admin.open_ends(COPIED)]
    for one in judged:
        await _look_at_segments(stage, one, partitions, tell)
    judged += [Judged(name, dict(kinds(found)), found) for name, found in stage.complaints.items()]
    may_fail = chosen.settings.options != Settings.options
    return Report(chosen.command, chosen.settings.version, start, seconds, judged, stage.marks, may_fail=may_fail)


async def _read(
    stage: Stage, topic: str, partitions: int, tell: Callable[[str], object], isolation: str = "read_committed"
) -> dict[int, list[Read]]:
    tell(f"reading topic {topic}, {isolation}")
    return await asyncio.to_thread(read_topic, stage.cluster.bootstrap_servers, topic, partitions, isolation=isolation)


def _of_sent(stage: Stage, reads: Reads) -> Judged:
    told = read_sent(stage.sender.files, SENT)
    gaps(stage.marks, SENT, acknowledged(told.history))
    return _of(SENT, told, reads, judge_sent(told, SENT, reads, stage.settings.promise))


def _of_copied(stage: Stage, copier: Program, source: Reads, everything: Reads, reads: Reads) -> Judged:
    told = read_copied(copier.files, COPIED)
    gaps(stage.marks, COPIED, acknowledged(told.history))
    return _of(COPIED, told, reads, judge_copied(told, COPIED, source, everything, reads, stage.settings.promise))


def _of(name: str, told: Told, reads: Reads, complaints: list[str]) -> Judged:
    return Judged(name, figures_of(told, reads, complaints), complaints, told.failures)


async def _look_at_segments(stage: Stage, judged: Judged, partitions: int, tell: Callable[[str], object]) -> None:
    """Check the sequences in the leader's copy of each partition."""
    tell(f"reading the segments of {judged.name}")
    folders = []
    for number in range(partitions):
        data = stage.cluster.data(await stage.cluster.leader(judged.name, number))
        folders.append(data / f"{judged.name}-{number}")
    batches, found = await asyncio.to_thread(broken_sequences, folders)
    broken = [f"broken sequences: {what}" for what in found]
    judged.figures |= {"batches on disk": batches, "broken sequences": len(broken)}
    judged.complaints += broken
