"""The demo, as a user starts it: it balances, and Ctrl-C ends it at any stage with a true word and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from without_java import skipped_without_java

from aioproducer.testing.jars import java

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.integration]

DEMO = Path(__file__).parent.parent / "examples" / "flights_pipeline.py"
GONE_SECONDS = 20


@pytest.fixture(autouse=True)
def _java() -> None:
    """Skipped without Java; in CI that is a failure."""
    with skipped_without_java():
        java()


class Demo:
    """The demo in a process group of its own, as a shell starts it."""

    def __init__(self, *arguments: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, str(DEMO), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            process_group=0,
        )

    def read_until(self, beginning: str) -> None:
        """Read the output until a text with this beginning."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith(beginning):
                return
        pytest.fail(f"no line began with {beginning!r}:\n{self.output}")

    def ctrl_c(self) -> list[psutil.Process]:
        """Send SIGINT to the whole foreground group, as a terminal does. Returns the children that the process had then."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        os.killpg(self.process.pid, signal.SIGINT)
        return children

    def end(self) -> int:
        """Read the output to its end. Returns the exit code."""
        assert self.process.stdout is not None
        self.lines += self.process.stdout
        return self.process.wait()

    @property
    def output(self) -> str:
        return "".join(self.lines)


@pytest.fixture
def demos() -> Iterator[list[Demo]]:
    """Yield the demos that a test starts. None outlives its test."""
    started: list[Demo] = []
    yield started
    for demo in started:
        if demo.process.poll() is None:
            demo.process.kill()
        demo.process.wait()
        assert demo.process.stdout is not None
        demo.process.stdout.close()


def test_the_demo_balances(demos: list[Demo], tmp_path: Path) -> None:
    """Two rounds on a part of the flights: every figure is the expected one, and the picture is there."""
    folder = tmp_path / "out"
    demos.append(demo := Demo("--rows", "3000", "--second-ingest", "--out", str(folder)))
    assert demo.end() == 0, demo.output
    report = json.loads((folder / "report.json").read_text())
    assert report["faults"] == []
    assert report["rounds"] == [
        {
            "sent": 3_429,
            "acknowledged": 3_429,
            "in topic": 3_429,
            "read by Spark": 3_429,
            "parsed": 2_929,
            "bad": 500,
            "duplicates dropped": 29,
            "dropped by watermark": 0,
            "rows added to Parquet": 2_900,
        },
        {
            "sent": 1_100,
            "acknowledged": 1_100,
            "in topic": 1_100,
            "read by Spark": 1_100,
            "parsed": 1_100,
            "bad": 0,
            "duplicates dropped": 1_000,
            "dropped by watermark": 0,
            "rows added to Parquet": 100,
        },
    ]
    assert report["written back"] == {"aggregates in topic": 57, "after the second write": 57}
    assert "It balances: 3,000 flights" in demo.output
    assert (folder / "flights.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in folder.iterdir()) == [
        "bad",
        "events",
        "flights.png",
        "report.json",
    ]


@pytest.mark.parametrize("after", ["Kafka starts", "flights are sent", "Spark is waited for"])
def test_ctrl_c(demos: list[Demo], tmp_path: Path, after: str) -> None:
    """While flights are sent, while Spark starts, while it ingests: what was sent is accounted for, and no process stays."""
    rows = "336776" if after == "Kafka starts" else "3000"
    demos.append(demo := Demo("--rows", rows, "--out", str(tmp_path / "out")))
    demo.read_until(after)
    children = demo.ctrl_c()
    assert children  # the broker and the JVM, or it would prove nothing
    assert demo.end() == 130, demo.output
    _, alive = psutil.wait_procs(children, timeout=GONE_SECONDS)
    assert alive == []
    told = re.search(
        r"^Interrupted\. ([\d,]+) sent, ([\d,]+) acknowledged, 0 failed, 0 unknown; Spark wrote ([\d,]+) rows$",
        demo.output,
        re.MULTILINE,
    )
    assert told is not None, demo.output
    sent, acknowledged, _ = (int(number.replace(",", "")) for number in told.groups())
    assert sent == acknowledged
    assert sent == 3_530 if rows == "3000" else sent < 340_643
    assert "Traceback" not in demo.output


def test_a_difference_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong sum, a missing carrier and a carrier that no source sent are each named with both figures."""
    monkeypatch.syspath_prepend(str(DEMO.parent))
    from flights.report import Findings, WrittenBack

    findings = Findings()
    findings.compare("carrier", {"AA": 1, "UA": 2, "ZZ": 3}, {"AA": 1, "UA": 4, "DL": 5})
    findings.add_written_back(WrittenBack(once=5, again=7, expected=5))
    assert findings.faults == [
        "carrier DL: Parquet has None, the source 5",
        "carrier UA: Parquet has 2, the source 4",
        "carrier ZZ: Parquet has 3, the source None",
        "after the second write: 7, expected 5",
    ]
    assert findings.verdict().startswith("[bold red]It does not balance")
