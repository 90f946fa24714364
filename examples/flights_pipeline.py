"""From `await producer.send()` on a real Kafka to rows that Spark wrote, and back; with proof that none is missing and none is twice.

    nox -s demo                                    # or: python examples/flights_pipeline.py
    python examples/flights_pipeline.py --second-ingest
    python examples/flights_pipeline.py --rows 3000 --out out/small

1. A Kafka broker and Spark's JVM start. As soon as the broker is there, 336,776 flights are sent to it; 1 % are sent twice, and
   500 malformed values are mixed in.
2. Spark takes the topic to Parquet: bad records to a folder of their own, each flight once, by the month of its departure.
3. Spark aggregates the flights by carrier and day, and writes the aggregates to another topic, exactly once: the write is run twice.
4. Every count, and the sums per carrier, are compared with the source. They are equal, or the exit code is 1.

Ctrl-C ends it at any stage, says what was delivered, and leaves no process behind (exit code 130).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import signal
import sys
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from flights import source
from flights.landing import Landing
from flights.plot import draw
from flights.report import Expected, Findings, Round, WrittenBack
from flights.screen import Bars, children_write_to
from flights.sending import Account, send_all
from rich.console import Console

from aioproducer import KafkaError, Producer
from aioproducer.testing import KafkaServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

_TOPIC: Final = "flights"
_BY_DAY: Final = "flights-by-day"
_INTERRUPTED: Final = 130
_CLOSE_TIMEOUT_MS: Final = 5_000  # after Ctrl-C, the producer has so long to deliver queued records


def main() -> int:
    """Run the pipeline. Returns the exit code: 0 when all figures are equal, 1 when not or on a Kafka error, 130 after Ctrl-C."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 120)
    pipeline = Pipeline(options, console)
    try:
        return asyncio.run(pipeline.run())
    except (asyncio.CancelledError, KeyboardInterrupt):
        console.print(
            f"[yellow]Interrupted.[/] {pipeline.account}; Spark wrote {pipeline.landing.written:,} rows",
            highlight=False,
        )
        return _INTERRUPTED
    except KafkaError as error:
        console.print(
            f"{type(error).__name__}: {error}\n{pipeline.account}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return 1


class Pipeline:
    """Holds one run: its options, and its counts so far."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.account = Account()
        self.landing = Landing(options.out)
        self._folder: Path = options.out
        self._keep: bool = options.keep
        self._again: bool = options.second_ingest
        self._rows: int = options.rows
        self._plan = source.Plan.of(
            self._rows - source.SECOND_EVENTS if self._again else self._rows
        )
        self._console = console
        self._bars = Bars(
            console, self.account, self.landing, records=self._plan.records, rows=self._plan.rows
        )
        self._findings = Findings()
        self._by_carrier: dict[str, source.Totals] = {}

    async def run(self) -> int:
        """Run all stages. Returns the exit code."""
        _cancel_on_ctrl_c()
        self._folder.mkdir(parents=True)
        with self._stage("all"):
            with children_write_to(self._folder / "spark.log"):
                await self._send_and_land()
            with self._stage("picture is drawn"):
                picture = await self._draw()
        findings = self._findings
        (self._folder / "report.json").write_text(json.dumps(findings.as_json(), indent=2) + "\n")
        if not self._keep and not findings.faults:
            self._remove_scaffolding()
        self._console.print(
            findings.balance(), findings.speed(), findings.verdict(), sep="\n\n", highlight=False
        )
        self._console.print(
            f"\npicture: {picture}\nfolder:  {self._folder}", soft_wrap=True, highlight=False
        )
        return 1 if findings.faults else 0

    async def _send_and_land(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.landing.close)
            spark = asyncio.create_task(self._start_spark())
            stack.push_async_callback(_end, spark)
            await stack.enter_async_context(self._bars.shown())
            with self._stage("Kafka starts"):
                kafka = await stack.enter_async_context(KafkaServer())
                for topic in (_TOPIC, _BY_DAY):
                    await kafka.create_topic(topic, partitions=6, config={"retention.ms": -1})
            plan = self._plan
            expected = Expected(
                sent=plan.records,
                bad=source.MALFORMED,
                duplicates=len(plan.replayed),
                rows=plan.rows,
            )
            events, bad = await self._round(kafka, source.first_sending(plan), expected, spark)
            if self._again:
                replays = min(source.SECOND_REPLAYS, plan.rows)
                expected = Expected(
                    sent=source.SECOND_EVENTS + replays,
                    bad=0,
                    duplicates=replays,
                    rows=source.SECOND_EVENTS,
                )
                self._bars.expect(records=plan.records + expected.sent, rows=self._rows)
                await self._round(kafka, source.second_sending(plan), expected, spark)
            with self._stage("sums are compared", self._rows):
                await self._compare(events, bad)
            await self._write_back(kafka, events)

    async def _start_spark(self) -> None:
        with self._stage("Spark starts (meanwhile)"):
            await self.landing.start()

    async def _round(
        self,
        kafka: KafkaServer,
        records: AsyncIterator[source.Outgoing],
        expected: Expected,
        spark: asyncio.Task[None],
    ) -> tuple[str, str]:
        """Send, then ingest. Returns the folders of the good and of the bad records."""
        account, in_topic = self.account, sum(await kafka.end_offsets(_TOPIC))
        sent, acknowledged = account.sent, account.acknowledged
        with self._stage("flights are sent", expected.sent):
            producer = Producer(
                bootstrap_servers=kafka.bootstrap_servers,
                compression_type="zstd",
                close_timeout_ms=_CLOSE_TIMEOUT_MS,
            )
            async with producer as self._bars.producer:
                await send_all(producer, _TOPIC, records, account)
        in_topic = sum(await kafka.end_offsets(_TOPIC)) - in_topic
        with self._stage("Spark is waited for"):
            await spark
        with self._stage("Spark ingests", expected.sent):
            report = await self.landing.ingest(kafka.bootstrap_servers, _TOPIC)
        self._findings.add(
            Round(
                account.sent - sent, account.acknowledged - acknowledged, in_topic, report, expected
            )
        )
        return report.events_path, report.bad_path

    async def _compare(self, events: str, bad: str) -> None:
        """Compare the files with the source, which is read again for that."""
        expected = asyncio.to_thread(source.totals, self._rows)
        found, totals, reasons = await asyncio.gather(
            self.landing.totals(events), expected, self.landing.reasons(bad)
        )
        self._findings.compare("carrier", found, totals)
        self._findings.compare("bad records,", reasons, source.reasons())

    async def _write_back(self, kafka: KafkaServer, events: str) -> None:
        """Write the aggregates twice. The second write has the name of the first one, and writes nothing."""
        servers = kafka.bootstrap_servers
        expected = asyncio.create_task(
            asyncio.to_thread(lambda: (source.days(self._rows), source.totals(self._rows)))
        )
        try:
            counts: list[int] = []
            for name in ("aggregates are written to Kafka", "aggregates are written again"):
                with self._stage(name):
                    await self.landing.write_back(servers, _BY_DAY, events)
                with self._stage("aggregates are read"):
                    count, self._by_carrier = await self.landing.written_back(servers, _BY_DAY)
                counts.append(count)
            days, totals = await expected
        finally:
            await _end(expected)
        self._findings.add_written_back(WrittenBack(counts[0], counts[1], days))
        self._findings.compare("carrier", self._by_carrier, totals, "the topic of aggregates")

    async def _draw(self) -> Path:
        path = self._folder / "flights.png"
        title = f"{self._rows:,} flights: await producer.send() → Kafka → Spark → Parquet → Spark → Kafka"
        flights = {carrier: totals.flights for carrier, totals in self._by_carrier.items()}
        await asyncio.to_thread(
            draw, path, self._bars.samples, self.account.latencies, flights, title=title
        )
        return path

    def _remove_scaffolding(self) -> None:
        """Remove the files that are useless without the run's Kafka."""
        shutil.rmtree(self._folder / "checkpoint")
        (self._folder / "spark.log").unlink()

    @contextlib.contextmanager
    def _stage(self, name: str, records: int = 0) -> Generator[None]:
        started_at = perf_counter()
        yield
        seconds = perf_counter() - started_at
        self._findings.stage(name, seconds, records)
        self._console.print(f"[dim]{name}: {seconds:.1f} s[/]", highlight=False)


def _cancel_on_ctrl_c() -> None:
    """Let Ctrl-C cancel this task once. The clean-up that follows is bounded, and another Ctrl-C does not stop it."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def cancel() -> None:
        loop.add_signal_handler(signal.SIGINT, lambda: None)
        task.cancel()

    with contextlib.suppress(NotImplementedError):  # Windows: asyncio's own handler cancels as well
        loop.add_signal_handler(signal.SIGINT, cancel)


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel the task and wait for its end. The code that awaited the task has its error."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=source.FLIGHTS, metavar="N", help="only the first N flights"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where the files go; must not exist (default: out/flights-<time>)",
    )
    parser.add_argument(
        "--second-ingest",
        action="store_true",
        help="hold the last 100 flights back; after the first ingest, send them with 1,000 replays, ingest again: exactly 100 rows more",
    )
    parser.add_argument("--keep", action="store_true", help="keep Spark's checkpoint and log too")
    options = parser.parse_args()
    if not source.SECOND_EVENTS < options.rows <= source.FLIGHTS:
        parser.error(f"--rows: more than {source.SECOND_EVENTS}, at most {source.FLIGHTS}")
    options.out = options.out or Path("out", f"flights-{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    if options.out.exists():
        parser.error(f"--out: {options.out} exists")
    return options


if __name__ == "__main__":
    sys.exit(main())
