"""Runs the faults until the time is over, ends all programs, reads their records back and judges them."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .faults import COPIERS, FAULTS
from .history import read_copied, read_sent
from .judge import judge_copied, judge_sent
from .logs import broken_sequences, read_topic
from .program import ProgramFailed
from .stage import COPIED, SENT, staged

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator, Sequence

    from .history import Told
    from .judge import Reads
    from .stage import Stage

__all__ = ["Report", "chaos"]

_QUIET: Final = 4.0  # seconds before the first fault and between two


@dataclass
class Report:
    """Holds the results of a run: figures by topic, and complaints in words."""

    struck: Counter[str]
    figures: dict[str, Counter[str]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


async def chaos(
    names: Sequence[str],
    folder: pathlib.Path,
    *,
    minutes: float = 0.0,
    seed: int = 1,
    throughput: int = 2_000,
    is_copying: bool = True,
    options: str = "{}",
    tell: Callable[[str], object] = lambda _: None,
) -> Report:
    """Run each of these faults once, then again in another order while there is time, and judge the records.

    `tell` gets a line now and then, and the programs' lines stay in `folder`.

    Raises:
        ProgramFailed: a program does not even start.
        KafkaServerFailed: a node does not.
    Cancellation: every process is ended.
    """
    tell("starting three nodes")
    async with staged(
        folder, random.Random(seed), throughput=throughput, is_copying=is_copying, options=options
    ) as stage:
        able = [name for name in names if is_copying or name not in COPIERS]
        struck = await _strike_on(
            stage, _turns(able, stage.random, is_once=not minutes), minutes, tell
        )
        tell("the programs end what they began")
        await stage.end()
        report = Report(struck)
        await _judge(stage, report, tell)
        return report


async def _strike_on(
    stage: Stage, names: Iterator[str], minutes: float, tell: Callable[[str], object]
) -> Counter[str]:
    loop = asyncio.get_running_loop()
    end = loop.time() + minutes * 60
    counts: Counter[str] = Counter()
    for name in names:
        await asyncio.sleep(_QUIET)
        if minutes and loop.time() >= end:
            break
        try:
            await stage.strike(FAULTS[name])
        except (ProgramFailed, TimeoutError) as error:  # judged all the same
            stage.complaints.append(f"never ended: {name}: {error!r}")
            break
        counts[name] += 1
        flow = ", ".join(
            f"{program.acked.total():,} acknowledged, {program.failed} failed"
            for program in stage.programs
        )
        tell(f"{name} ({counts[name]}): {flow}")
    return counts


def _turns(names: Sequence[str], chance: random.Random, *, is_once: bool) -> Iterator[str]:
    """Yield each fault once, in a random order, and again in another order."""
    for _ in range(1) if is_once else itertools.count():
        yield from chance.sample(names, len(names))


async def _judge(stage: Stage, report: Report, tell: Callable[[str], object]) -> None:
    partitions = len(await stage.admin.partitions(SENT))

    async def read(topic: str, isolation: str = "read_committed") -> Reads:
        tell(f"reading topic {topic}, {isolation}")
        return await asyncio.to_thread(
            read_topic, stage.cluster.bootstrap_servers, topic, partitions, isolation=isolation
        )

    source = await read(SENT)
    told = read_sent(stage.sender.files, SENT)
    await _add(
        stage, report, SENT, told, source, await asyncio.to_thread(judge_sent, told, SENT, source)
    )
    report.complaints += [
        f"a record failed: {failure}" for failure in told.failures
    ]  # they live longer than any fault
    if stage.copier is not None:
        everything, copied = await read(COPIED, "read_uncommitted"), await read(COPIED)
        told = read_copied(stage.copier.files, COPIED)
        found = await asyncio.to_thread(judge_copied, told, COPIED, source, everything, copied)
        found += [
            f"undecided: a transaction in partition {one}"
            for one in await stage.admin.open_ends(COPIED)
        ]
        await _add(stage, report, COPIED, told, copied, found)
    report.complaints += stage.complaints


async def _add(
    stage: Stage, report: Report, topic: str, told: Told, reads: Reads, complaints: list[str]
) -> None:
    """Add a topic's figures and complaints, and check the sequences in the leader's copy of each partition."""
    folders = [
        stage.cluster.data(await stage.cluster.leader(topic, number)) / f"{topic}-{number}"
        for number in reads
    ]
    batches, broken = await asyncio.to_thread(broken_sequences, folders)
    figures = report.figures[topic] = Counter(
        f"transactions {one.fate}" for one in told.history.transactions
    )
    figures["records sent"] = sum(one.queued_at is not None for one in told.history.sent)
    figures["acknowledged"] = sum(one.is_acknowledged for one in told.history.sent)
    figures["read"] = sum(map(len, reads.values()))
    figures["batches on disk"] = batches
    report.complaints += [
        f"{topic}: {what}"
        for what in (*complaints, *(f"broken sequences: {one}" for one in broken))
    ]
