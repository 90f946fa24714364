"""The example of a spool: what a failed batch leaves in the file, and what the next start makes of it."""

from __future__ import annotations

import importlib
import pathlib
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer import DeliveryError, FailedRecord, MetadataTimeout, Persisted, Producer
from aioproducer.testing import FakeCluster
from aioproducer.testing.jumping import run_jumping

if TYPE_CHECKING:
    from types import ModuleType

ROOT = pathlib.Path(__file__).parents[1]
RECORDS = [
    FailedRecord("orders", b"\x00\xff\n", b"k", 1, 7, (("a", b""), ("a", None)), Persisted.NO),
    FailedRecord("orders", None, None, 0, 8, (), Persisted.NO),
    FailedRecord("orders", b"", b"", 1, 9, (), Persisted.MAYBE),
]
ERROR = DeliveryError("refused", "orders", 0, Persisted.NO, 0)


@pytest.fixture(name="example")
def _example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module("spool")


def test_the_program() -> None:
    """The broker dies half-way: each order is in Kafka once after the second start, and what could not be written is logged once."""
    command = [sys.executable, "-W", "error", "examples/spool.py"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, *spooled, half, again, whole = done.stdout.splitlines()
    assert (first, again) == ("0 records sent again", "100 records sent again")
    kept = [re.fullmatch(r"spooled (\d+) records: ABORTED, persisted=no", line) for line in spooled]
    assert sum(int(match[1]) for match in kept if match is not None) == 100
    assert half == "in Kafka: 100 of 200 orders"
    assert whole == "in Kafka: 200 records of 200 orders, 20 without a value"
    assert "Traceback" not in done.stderr


def test_records_keep_their_bytes(example: ModuleType, tmp_path: pathlib.Path) -> None:
    """None is not empty bytes. A line that was cut off is left out."""
    spool = example.Spool(tmp_path / "spool")
    spool.keep(ERROR, RECORDS[:2])
    spool.keep(ERROR, RECORDS[2:])
    with spool.path.open("ab") as file:
        file.write(example.line_of(RECORDS[0])[:-3])
    spool.path.rename(spool.replaying)
    assert list(spool.read()) == RECORDS


def replayed(spool: Any, **options: Any) -> list[Any]:
    """Replay on a new cluster. Returns the records of its log."""

    async def main() -> list[Any]:
        async with FakeCluster(memory=True, auto_create=False) as cluster:
            cluster.create_topic("orders", partitions=2)
            async with Producer(
                **cluster.client_options, on_failed=spool.keep, **options
            ) as producer:
                await spool.replay(producer)
            return cluster.records("orders")

    return run_jumping(main())


def test_what_may_be_in_the_log_is_marked(example: ModuleType, tmp_path: pathlib.Path) -> None:
    """Each record is sent with all that it had. The files are gone after that."""
    spool = example.Spool(tmp_path / "spool")
    spool.keep(ERROR, RECORDS)
    log = [
        (record.value, record.key, record.timestamp_ms, record.headers)
        for record in replayed(spool)
    ]
    assert log == [
        (None, None, 8, ()),
        (b"\x00\xff\n", b"k", 7, (("a", b""), ("a", None))),
        (b"", b"", 9, (("sent-before", b"maybe"),)),
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_replay_that_dies_is_begun_again(example: ModuleType, tmp_path: pathlib.Path) -> None:
    """The records of the interrupted replay come first, then those that failed since."""
    spool = example.Spool(tmp_path / "spool")
    spool.keep(ERROR, [RECORDS[1], RECORDS[1]._replace(topic="gone")])
    with pytest.raises(MetadataTimeout, match="gone"):
        replayed(spool, max_block_ms=1_000)
    assert len(list(spool.read())) == 2
    lines = spool.replaying.read_bytes().splitlines(keepends=True)
    spool.replaying.write_bytes(lines[0])
    spool.keep(ERROR, [RECORDS[1]._replace(value=b"later")])
    assert [record.value for record in replayed(spool)] == [None, b"later"]
    assert list(tmp_path.iterdir()) == []


def test_what_fails_again_is_kept_again(example: ModuleType, tmp_path: pathlib.Path) -> None:
    """A record that its broker refuses is in the new spool."""
    spool = example.Spool(tmp_path / "spool")
    spool.keep(ERROR, RECORDS[:1])

    async def main() -> None:
        async with FakeCluster(memory=True) as cluster:
            cluster.create_topic("orders", partitions=2)
            cluster.fail("Produce", "POLICY_VIOLATION", times=None)
            async with Producer(**cluster.client_options, on_failed=spool.keep) as producer:
                # The second pass sends what failed in the first.
                assert await spool.replay(producer) == 2

    run_jumping(main())
    assert not spool.replaying.exists()
    spool.path.rename(spool.replaying)
    assert list(spool.read()) == RECORDS[:1]
