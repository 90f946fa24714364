"""Plays every row with every client it can be put to, and writes docs/topics/faults.md.

python -m tests.tools.faults                      all
python -m tests.tools.faults 22 27                rows of these numbers, told on the terminal; the page is not touched
python -m tests.tools.faults --write 22 27        rows of these numbers; on the page the others stay as they are
python -m tests.tools.faults --one FILE CLIENT    one row, one other client: what did not hold, as JSON
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from .clients import make
from .coded import coded_rows
from .elsewhere import ELSEWHERE
from .judge import complaints
from .ours import complaints_of_ours
from .page import PAGE, Line, page
from .row import CLIENTS, rows
from .stage import play

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .coded import Coded
    from .row import Row

_PATIENCE = 20.0  # seconds that other clients' deliveries may take after the last step of a row, and each call of a transaction
_BEYOND = 5.0  # seconds, where the row limits their time
_LONGEST = 120.0  # seconds of a whole process
_AT_ONCE = 4


def main(words: Sequence[str]) -> None:
    """Run what the command line asks for."""
    if words and words[0] == "--one":
        _one(*words[1:])
        return
    is_part = bool(words) and words[0] == "--write"
    numbers = {int(word) for word in words[is_part:]}
    chosen = [row for row in rows() if not numbers or row.number in numbers]
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # the other clients first: most of their time is waiting
        others = {(row.file, client): pool.submit(_other, row, client) for row in chosen for client in row.clients if client != CLIENTS[0]}
        lines = [_coded_line(coded) for coded in coded_rows() if not numbers or coded.number in numbers]
        for row in chosen:
            results = {CLIENTS[0]: complaints_of_ours(row)} if CLIENTS[0] in row.clients else {}
            results |= {client: others[row.file, client].result() for client in row.clients if client != CLIENTS[0]}
            lines.append(Line(row.number, row.name, row.case, row.expected, results))
    lines += [
        Line(one.number, one.name, one.case, one.expected, {}, one.where) for one in ELSEWHERE if not numbers or one.number in numbers
    ]
    lines.sort(key=lambda line: line.number)
    for line in lines:
        print(line.number, line.title, dict(line.results) or line.shown, flush=True)
    if is_part or not numbers:
        PAGE.write_text(page(lines, PAGE.read_text(encoding="utf-8") if is_part else ""), encoding="utf-8")


def _coded_line(coded: Coded) -> Line:
    return Line(coded.number, coded.name, coded.case, coded.expected, {client: _complaints(coded, client) for client in coded.clients})


def _complaints(coded: Coded, client: str) -> list[str]:
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return coded.run(client)
    except AssertionError as error:
        return [str(error).splitlines()[0] if str(error) else "it does not hold"]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def _other(row: Row, client: str) -> list[str]:
    """Play a row with another client in a process of its own. The process is killed if it does not end."""
    command = [sys.executable, "-m", "tests.tools.faults", "--one", row.file, client]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return [f"its process had not ended after {_LONGEST:g} s"]
    if done.returncode < 0:
        return [f"its process was ended by {signal.Signals(-done.returncode).name}"]
    if done.returncode:
        return [f"its process ended with {done.returncode}: {(done.stderr.splitlines() or [''])[-1]}"]
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def _one(file: str, client: str) -> None:
    row = next(row for row in rows() if row.file == file)

    patience = _PATIENCE if row.holds.within is None else row.holds.within[1] + _BEYOND

    async def played() -> list[str]:
        return complaints(await play(row, make(client), memory=False, patience=patience), is_ours=client == CLIENTS[0])

    print(json.dumps(asyncio.run(played())), flush=True)
    os._exit(0)  # although threads of the client may still run


if __name__ == "__main__":
    main(sys.argv[1:])
