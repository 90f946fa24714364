"""Runs all rounds of a report: every client of every case, forwards in one round and backwards in the next."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from tests.tools.benchmarks.broker import real_broker
from tests.tools.benchmarks.peers.clients import CALLBACK, SILENT
from tests.tools.benchmarks.peers.plan import LIMIT, PARTS, Case, topics
from tests.tools.benchmarks.processes import RunFailed
from tests.tools.benchmarks.runs import run
from tests.tools.benchmarks.task import Measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tests.tools.benchmarks.broker import Broker
    from tests.tools.benchmarks.peers.plan import Part
    from tests.tools.benchmarks.report import Rounds

SETTLED_SECONDS = 2.0
"""The wait after a client was killed, until its records are in the log, so that they do not count for the next client."""
WARM_UPS = 3
WARM_UP = Case(name="warm-up", way="many", clients=(SILENT,), records=1_000_000)
"""The work that lets a new broker compile."""
FILLING_SECONDS = 300.0
"""The limit for the first records of many topics. The broker creates files and metrics for them, which no client's rate includes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Holds one run: its measure, or the reason why there is none."""

    part: str
    case: str
    client: str
    round: int
    measure: Measure | None = None
    failure: str = ""


@dataclasses.dataclass(slots=True, kw_only=True)
class Found:
    """Holds all results of one report.

    Attributes:
        left_out: the clients that were not run, with the reason.
    """

    command: str
    machine: Mapping[str, Any]
    date: str
    rounds: int
    other_rounds: int
    minutes: float = 0.0
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)
    runs: list[Ran] = dataclasses.field(default_factory=list)

    @property
    def parts(self) -> list[str]:
        """Return the parts that were run, in the plan's order."""
        run = {one.part for one in self.runs}
        return [name for name in PARTS if name in run]

    def rounds_of(self, part: str) -> Rounds:
        """Return a mapping of case to client to its measures, in the order of the rounds."""
        rounds: Rounds = {}
        for one in self.runs:
            if one.part == part:
                measures = rounds.setdefault(one.case, {}).setdefault(one.client, [])
                if one.measure is not None:
                    measures.append(one.measure)
        return rounds

    def rounds_run(self, part: str) -> str:
        """Return the number of rounds of this part: "7", or "3 to 7" if its cases differ."""
        last: dict[str, int] = {}
        for one in self.runs:
            if one.part == part:
                last[one.case] = max(one.round, last.get(one.case, 0))
        least, most = min(last.values(), default=0), max(last.values(), default=0)
        return f"{most}" if least == most else f"{least} to {most}"

    def failure(self, part: str, case: str, client: str) -> str:
        """Return why this client has no more measures of the case, or an empty text."""
        return next((one.failure for one in self.runs if (one.part, one.case, one.client) == (part, case, client) and one.failure), "")

    def builds(self) -> dict[str, str]:
        """Return the build that each client reported."""
        return {one.client: one.measure.build for one in self.runs if one.measure is not None}

    def unsound(self) -> list[Ran]:
        return [one for one in self.runs if one.measure is not None and not one.measure.is_sound]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Found:
        fields = json.loads(text)
        runs = [Ran(**one | {"measure": one["measure"] and Measure(**one["measure"])}) for one in fields.pop("runs")]
        return cls(**fields, runs=runs)


def merged(several: Sequence[Found]) -> Found:
    """Merge several reports: each case has the runs of the last report that has the case."""
    last = {(one.part, one.case): found for found in several for one in found.runs}
    runs = [one for (part, case), found in last.items() for one in found.runs if (one.part, one.case) == (part, case)]
    used = [found for found in several if any(found is other for other in last.values())]
    commands = dict.fromkeys(found.command for found in used)
    return dataclasses.replace(
        used[-1],
        command="\n    ".join(commands),
        minutes=sum(found.minutes for found in used),
        runs=runs,
    )


def turns(rounds: int, cases: Sequence[Case], left_out: Iterable[str] = ()) -> Iterator[tuple[int, Case, str]]:
    """Yield (round, case, client) of every run, in order. The client that is first in one round is last in the next."""
    for number in range(1, rounds + 1):
        for case in cases:
            clients = [client for client in case.clients if client not in left_out]
            yield from ((number, case, client) for client in (clients if number % 2 else clients[::-1]))


@dataclasses.dataclass(slots=True, kw_only=True)
class Bench:
    """Runs parts, and notes each run in `found`.

    Attributes:
        scale: the factor of every number of records.
        told: gets each run, as it ends.
    """

    found: Found
    scale: float = 1.0
    told: Callable[[Ran], None] = lambda _: None

    async def run(self, parts: Mapping[str, Part]) -> None:
        """Run the parts: on one shared broker, or on a broker of their own where the plan says so."""
        together = {name: part for name, part in parts.items() if not part.is_apart}
        for group in filter(None, ({**together}, *({name: part} for name, part in parts.items() if part.is_apart))):
            await self._on_one_broker(group)

    def rounds_of(self, part: Part) -> int:
        return self.found.rounds if part.is_promised else self.found.other_rounds

    async def _on_one_broker(self, parts: Mapping[str, Part]) -> None:
        cases = [case for part in parts.values() for case in part.cases]
        async with real_broker(rtts_ms=sorted({case.rtt_ms for case in cases} - {0}), is_server=True) as broker:
            await _create_topics(broker, [WARM_UP, *cases])
            for _ in range(WARM_UPS):
                await run(WARM_UP.name, WARM_UP.task(SILENT, broker.bootstrap_servers, self.scale), broker, LIMIT)
            widest = max(cases, key=lambda case: case.topics)
            if widest.topics > 1:
                await run(widest.name, widest.task(CALLBACK, broker.bootstrap_servers, self.scale), broker, FILLING_SECONDS)
            for name, part in parts.items():
                for number, case, client in turns(self.rounds_of(part), part.cases, self.found.left_out):
                    if not self.found.failure(name, case.name, client):
                        await self._one(broker, name, number, case, client)

    async def _one(self, broker: Broker, part: str, number: int, case: Case, client: str) -> None:
        task = case.task(client, broker.bootstrap_servers_at(case.rtt_ms), self.scale)
        try:
            measure, failure = await run(case.name, task, broker, case.limit), ""
        except RunFailed as error:
            measure, failure = None, str(error)
            await asyncio.sleep(SETTLED_SECONDS)
        ran = Ran(part=part, case=case.name, client=client, round=number, measure=measure, failure=failure)
        self.found.runs.append(ran)
        self.told(ran)


async def _create_topics(broker: Broker, cases: Sequence[Case]) -> None:
    """Create the topics for each number of partitions, as many as the case with most topics needs."""
    for partitions in sorted({case.partitions for case in cases if case.topics == 1}):
        await broker.create_topic(f"p{partitions}", partitions)
    widest = max(cases, key=lambda case: case.topics)
    if widest.topics > 1:
        await broker.create_topics(topics(widest))
