"""Shows four bars while the pipeline runs, and takes the samples that the picture is drawn from."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path

    from rich.console import Console

    from aioproducer import Producer

    from .landing import Landing
    from .sending import Account

_TICK_SECONDS: Final = 0.1
_MIB: Final = 1 << 20


class Sample(NamedTuple):
    """Holds all counts at one time, in seconds after the start."""

    at: float
    sent: int
    acknowledged: int
    written: int
    aggregates: int


class Bars:
    """Shows the bars: the counts of `account`, `producer` and `landing`, ten times a second."""

    def __init__(
        self, console: Console, account: Account, landing: Landing, *, records: int, rows: int
    ) -> None:
        self.samples: list[Sample] = []
        self.producer: Producer[bytes, bytes] | None = None
        self._account = account
        self._landing = landing
        self._started_at = perf_counter()
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description:<16}"),
            BarColumn(bar_width=36),
            TextColumn("{task.fields[shown]}", justify="right"),
            TimeElapsedColumn(),
            console=console,
        )
        self._sent = self._progress.add_task("sent", total=records, shown="")
        self._acknowledged = self._progress.add_task("acknowledged", total=records, shown="")
        self._buffer = self._progress.add_task("buffer in use", total=None, shown="")
        self._rows = self._progress.add_task("rows in Parquet", total=rows, shown="")

    def expect(self, *, records: int, rows: int) -> None:
        """Set new ends of the bars, for more records."""
        for bar, total in (
            (self._sent, records),
            (self._acknowledged, records),
            (self._rows, rows),
        ):
            self._progress.update(bar, total=total)

    @contextlib.asynccontextmanager
    async def shown(self) -> AsyncGenerator[None]:
        """Update the bars while the block runs."""
        with self._progress:
            ticking = asyncio.create_task(self._tick())
            try:
                yield
            finally:
                ticking.cancel()
                await asyncio.wait([ticking])
                self._look()

    async def _tick(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(_TICK_SECONDS)

    def _look(self) -> None:
        account, landing = self._account, self._landing
        now = Sample(
            perf_counter() - self._started_at,
            account.sent,
            account.acknowledged,
            landing.written,
            landing.aggregates,
        )
        self.samples.append(now)
        for bar, count in (
            (self._sent, now.sent),
            (self._acknowledged, now.acknowledged),
            (self._rows, now.written),
        ):
            self._progress.update(bar, completed=count, shown=f"{count:,}")
        if self.producer is not None:
            memory = int(self.producer.config.buffer_memory)
            used = memory - self.producer.buffer_available
            self._progress.update(
                self._buffer,
                total=memory,
                completed=used,
                shown=f"{used / _MIB:.1f} of {memory / _MIB:.0f} MiB",
            )


@contextlib.contextmanager
def children_write_to(path: Path) -> Generator[None]:
    """Redirect the standard error of child processes to a file, away from the bars. That of this program stays as it was."""
    ours, log = os.dup(2), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    python_stderr = sys.stderr
    sys.stderr = os.fdopen(ours, "w", buffering=1, closefd=False)
    os.dup2(log, 2)
    os.close(log)
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = python_stderr
        os.dup2(ours, 2)
        os.close(ours)
