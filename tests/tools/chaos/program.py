"""Runs one program under chaos: holds its process, and the files of its lines."""

from __future__ import annotations

import asyncio
import pathlib
import re
import signal
import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Iterable

__all__ = ["Program", "ProgramFailed"]

_ROOT: Final = pathlib.Path(__file__).parents[3]
_STOP_SECONDS: Final = 240.0  # the program flushes, at most as long as a record may live, and a copier copies to the end
_FLOW_SECONDS: Final = 120.0
_POLL: Final = 0.2
_ACKED: Final = re.compile(rb'"name":"producer_send_success".*?"partition":(\d+),"offset"')
_FAILED: Final = (b'"name":"producer_send_error"', b'"name":"producer_send_refused"')


class ProgramFailed(Exception):
    """The program ended too early, or does not work; the text holds the end of its stderr."""


class Program:
    """Runs a module of this folder with Python, and starts it again when needed.

    Args:
        module: such as "verifiable".
        words: its arguments.
        folder: gets a file of lines for each start.
        name: of these files.

    Attributes:
        files: its lines so far, in the order of the starts.
        acked: the number of acknowledged records, by partition, at the last `look`.
        failed: the number of failed records.
    """

    def __init__(self, module: str, words: Iterable[str], folder: pathlib.Path, name: str) -> None:
        self.files: list[pathlib.Path] = []
        self.acked: Counter[int] = Counter()
        self.failed = 0
        self._command = (sys.executable, "-m", f"tests.tools.chaos.{module}", *words)
        self._folder = folder
        self._name = name
        self._process: Process | None = None
        self._zombies: list[Process] = []
        self._read: Counter[pathlib.Path] = Counter()

    async def start(self) -> None:
        """Start the program. It ends when this process does, as its stdin then ends."""
        self.files.append(self._folder / f"{self._name}-{len(self.files)}.jsonl")
        with self.files[-1].open("wb") as lines, self._errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=_ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=lines,
                stderr=errors,
            )

    async def kill(self) -> None:
        """Kill the process (SIGKILL), and all paused ones."""
        processes = [*self._zombies, *([self._process] if self._process is not None else [])]
        self._process = None
        self._zombies.clear()
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def pause(self) -> None:
        """Stop the process as a debugger would (SIGSTOP), and set it aside: the program can be started again."""
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        self._zombies.append(process)

    async def wake(self) -> None:
        """Continue the process that was paused last (SIGCONT), and wait until it ends, as it must. ProgramFailed: it does not."""
        process = self._zombies.pop()
        process.send_signal(signal.SIGCONT)
        try:
            async with asyncio.timeout(_FLOW_SECONDS):
                status = await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise ProgramFailed(f"{self} went on, although it was replaced") from None
        if status:
            raise ProgramFailed(f"{self} ended with {status}\n{self.last_words()}")

    async def stop(self) -> None:
        """Close stdin and wait for the program's regular end. ProgramFailed: it does not end, or ended with an error."""
        process = self._process
        if process is None or process.stdin is None:
            raise ProgramFailed(f"{self} does not run")
        process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                status = await process.wait()
        except TimeoutError:
            await self.kill()
            raise ProgramFailed(f"{self} did not end within {_STOP_SECONDS} s") from None
        self.look()
        if status:
            raise ProgramFailed(f"{self} ended with {status}\n{self.last_words()}")

    def look(self) -> None:
        """Read the new lines: count acknowledged records, by partition, and failed records."""
        for path in self.files:
            with path.open("rb") as file:
                file.seek(self._read[path])
                text = file.read()
            whole = text.rfind(b"\n") + 1
            self._read[path] += whole
            self.acked.update(int(number) for number in _ACKED.findall(text[:whole]))
            self.failed += sum(text[:whole].count(name) for name in _FAILED)

    async def until_flowing(self, partitions: Iterable[int]) -> None:
        """Wait until each of these partitions has acknowledgements again. ProgramFailed: one has none."""
        self.look()
        before, wanted = Counter(self.acked), tuple(partitions)
        try:
            async with asyncio.timeout(_FLOW_SECONDS):
                while any(self.acked[number] <= before[number] for number in wanted):
                    if self._process is None or self._process.returncode is not None:
                        raise ProgramFailed(f"{self} ended by itself\n{self.last_words()}")
                    await asyncio.sleep(_POLL)
                    self.look()
        except TimeoutError:
            silent = [number for number in wanted if self.acked[number] <= before[number]]
            raise ProgramFailed(
                f"{self}: {_FLOW_SECONDS} s without an acknowledgement of partitions {silent}"
            ) from None

    def last_words(self) -> str:
        """Return the end of the program's stderr."""
        return (
            self._errors.read_text(encoding="utf-8", errors="replace")[-4_000:]
            if self._errors.exists()
            else ""
        )

    @property
    def _errors(self) -> pathlib.Path:
        return self._folder / f"{self._name}.stderr"

    def __str__(self) -> str:
        return " ".join(self._command[2:])
