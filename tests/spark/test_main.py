"""Tests of `python -m aioproducer.spark`: what it prints, and its exit status."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer import PreparedTransaction, TopicPartition, TransactionDescription
from aioproducer.spark import __main__ as command
from aioproducer.spark.ledger import Decision, Entry
from aioproducer.spark.resolving import Known, Resolution, judge
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

BEGAN = datetime(2026, 11, 26, 10, tzinfo=UTC)
NOW = datetime(2026, 11, 26, 12, 5, 7, tzinfo=UTC)
SECRET = "hunter2-canary"


def one(
    transactional_id: str,
    state: str = "Ongoing",
    topics: Sequence[str] = ("orders",),
    known: Known | None = None,
) -> Any:
    partitions = tuple(TopicPartition(topic, 0) for topic in topics)
    described = TransactionDescription(transactional_id, 100, 3, state, BEGAN, 60_000, partitions)
    return judge(described, known or Known(), now=NOW, older_than=900)


FOUND = Resolution(
    (
        one(
            "q-0",
            known=Known(Decision(7, (Entry(PreparedTransaction("q-0", 100, 3, 2), 1, 2, 3),))),
        ),
        one("q-1", topics=("a", "b", "c", "d", "e")),
        one("q-2", known=Known(problem="its decision cannot be read: damaged")),
        one("q-driver", "CompleteCommit", topics=()),
    ),
    ("q: its last transaction began 6.0 days ago",),
)


def run(monkeypatch: pytest.MonkeyPatch, found: Resolution, *arguments: str) -> int:
    """Run the command with a result."""

    async def resolve(*_: Any, **__: Any) -> Resolution:
        return found

    monkeypatch.setattr(command, "resolve", resolve)
    return command.main(["resolve", "q", *arguments])


def test_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, FOUND) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "TRANSACTIONAL ID  STATE           AGE   DECISION   WITH --end                                  TOPICS",
        "q-0               Ongoing         2h5m  commit     commit                                      orders",
        "q-1               Ongoing         2h5m  undecided  abort                                       a,b,c and 2 more",
        "q-2               Ongoing         2h5m  unknown    left: its decision cannot be read: damaged  orders",
        "q-driver          CompleteCommit  2h5m  done       -                                           -",
        "4 transactions, 3 open",
    ]
    assert err == "warning: q: its last transaction began 6.0 days ago\n"


def test_ids_with_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any program may choose such an id. Neither the table nor a warning hands them to a terminal; JSON has its own way."""
    hostile = "q\x1b[31m\n\N{RIGHT-TO-LEFT OVERRIDE}\N{LATIN SMALL LETTER E WITH ACUTE}-0"
    found = Resolution((one(hostile),), (f"{hostile}: its last transaction began 6.0 days ago",))
    assert run(monkeypatch, found) == 1
    out, err = capsys.readouterr()
    shown = "q\\x1b[31m\\n\\u202e\N{LATIN SMALL LETTER E WITH ACUTE}-0"
    assert [line.split("  ")[0].strip() for line in out.splitlines()] == [
        "TRANSACTIONAL ID",
        shown,
        "1 transaction, 1 open",
    ]
    assert err == f"warning: {shown}: its last transaction began 6.0 days ago\n"
    run(monkeypatch, found, "--json")
    assert json.loads(capsys.readouterr().out)["transactions"][0]["transactional_id"] == hostile


def test_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read the same."""
    assert run(monkeypatch, FOUND, "--json") == 1
    printed = json.loads(capsys.readouterr().out)
    assert (printed["open"], printed["warnings"]) == (
        3,
        ["q: its last transaction began 6.0 days ago"],
    )
    assert printed["transactions"][0] == {
        "transactional_id": "q-0",
        "state": "Ongoing",
        "started_at": "2026-11-26T10:00:00+00:00",
        "age_seconds": 7_507.0,
        "topics": ["orders"],
        "decision": "commit",
        "action": "commit",
        "reason": "",
        "outcome": "",
        "open": True,
    }


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.4, "0s"),
        (59, "59s"),
        (90, "1m30s"),
        (3_600, "1h0m"),
        (86_400 * 9 + 3_700, "9d1h"),
    ],
)
def test_an_age(seconds: float | None, text: str) -> None:
    assert command._age(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7_200), ("1d", 86_400), ("0", 0)],
)
def test_an_argument_of_age(text: str, seconds: float) -> None:
    assert (
        command._parser().parse_args(["resolve", "q", "--older-than", text]).older_than == seconds
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required"),
        (["resolve"], "PREFIX"),
        (["resolve", ""], "every transaction of the cluster"),
        (["resolve", "q", "--older-than", "1w"], "90s, 15m, 2h, 1d"),
        (["resolve", "q", "--older-than", "9" * 400], "90s, 15m, 2h, 1d"),
        (
            ["resolve", "q", "--ledger-topic", ""],
            "it names no topic: up to 249 of a-z A-Z 0-9 . _ - do",
        ),
        (["resolve", "q", "--ledger-topic", "a b"], "it names no topic"),
        (["resolve", "q", "--option", SECRET], "an option is NAME=VALUE"),
        (
            ["resolve", "q", f"--sasl-password={SECRET}", SECRET],
            "unknown arguments: --sasl-password, a value without an option",
        ),
    ],
)
def test_wrong_arguments(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They cost status 2, and are not printed: one of them may be a password."""
    with pytest.raises(SystemExit) as exited:
        command.main(arguments)
    assert exited.value.code == 2
    err = capsys.readouterr().err
    assert said in err
    assert SECRET not in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--option", f"sasl.passwordd={SECRET}"], "sasl.password"),
        (["--option", "transactional.id=t"], "transactional_id"),
        (["--config", "no-such-file"], "no-such-file cannot be read: No such file"),
        (["--bootstrap-servers", "127.0.0.1:1", "--option", "max.block.ms=50"], "127.0.0.1:1"),
    ],
)
def test_options_that_cannot_be(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong ones, and a cluster that does not answer, cost status 2."""
    assert command.main(["resolve", "q", *options]) == 2
    err = capsys.readouterr().err
    assert err.startswith("python -m aioproducer.spark resolve: ")
    assert said in err
    assert SECRET not in err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "client.properties",
            "# of a tool\nbootstrap.servers=a:1\nsecurity.protocol = SASL_PLAINTEXT\nsasl.mechanism: PLAIN\n",
        ),
        (
            "client.toml",
            'bootstrap_servers = "a:1"\nsecurity_protocol = "SASL_PLAINTEXT"\nsasl_mechanism = "PLAIN"\n',
        ),
    ],
)
def test_a_file_of_options(name: str, content: str, tmp_path: pathlib.Path) -> None:
    """Options of the command line take precedence over it."""
    path = tmp_path / name
    path.write_text(content)
    more = ("--option", "kafka.sasl.username=u", "--option", "sasl.password=${env:HOME}")
    asked = command._parser().parse_args(["resolve", "q", "--config", str(path), *more])
    assert tuple(command._config(asked).bootstrap_servers) == ("a:1",)
    assert command._config(asked).sasl_mechanism == "PLAIN"
    asked = command._parser().parse_args(
        ["resolve", "q", "--config", str(path), *more, "--bootstrap-servers", "b:2"]
    )
    assert tuple(command._config(asked).bootstrap_servers) == ("b:2",)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.toml", f"password = {SECRET}".encode()),
        ("x.properties", b"password=\xff" + SECRET.encode()),
    ],
)
def test_a_file_that_cannot_be_read(
    name: str, content: bytes, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error shows none of it."""
    path = tmp_path / name
    path.write_bytes(content)
    assert command.main(["resolve", "q", "--config", str(path)]) == 2
    err = capsys.readouterr().err
    assert "x." in err
    assert SECRET not in err


NO_PYSPARK = """
import importlib.abc, runpy, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "pyspark":
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

sys.meta_path.insert(0, Missing())
"""
RUN = NO_PYSPARK + "runpy.run_module('aioproducer.spark', run_name='__main__', alter_sys=True)"


@pytest.mark.asyncio
async def test_the_command_needs_no_pyspark() -> None:
    """A program that ends transactions need not have Spark."""
    async with FakeCluster() as cluster:
        arguments = (
            sys.executable,
            "-c",
            RUN,
            "resolve",
            "q",
            "--bootstrap-servers",
            cluster.bootstrap_servers,
        )
        done = await asyncio.to_thread(
            subprocess.run, arguments, capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "0 transactions, 0 open"


def test_a_name_of_the_package_without_pyspark() -> None:
    """The error says what to install."""
    program = NO_PYSPARK + "from aioproducer.spark import ingest"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "aioproducer.spark needs PySpark: pip install 'aioproducer[spark]'" in done.stderr
