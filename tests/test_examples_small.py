"""The examples that need no Kafka: each does what it says; nothing warns, nothing is left open."""

from __future__ import annotations

import asyncio
import importlib
import pathlib
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from debug_mode import without_slow_steps

from aioproducer import DeliveryError, Producer, json_serializer, string_serializer
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from types import ModuleType

    from aioproducer.testing.kafka_server import ServerThread

ROOT = pathlib.Path(__file__).parents[1]


def run(example: str, *arguments: str, logged: str = "") -> list[str]:
    """Run the example with every warning an error. Returns the output, split. `logged`: a pattern of the only line that it logs."""
    command = [sys.executable, "-W", "error", f"examples/{example}", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(logged, without_slow_steps(done.stderr).removesuffix("\n")), (
        done.stdout + done.stderr
    )
    return done.stdout.splitlines()


def test_hello() -> None:
    """Both records of one key are in one partition, in the order of their calls."""
    first, second, log = run("hello.py")
    assert first.endswith("has it at offset 0")
    assert second == first[:-1] + "1"
    assert log == "the log: [b'hello', b'again']"


def test_json_orders() -> None:
    """Events of an order are in order, an order that is too large is refused with what to do, and a tombstone is in the log."""
    lines = run("json_orders.py")
    assert [line.partition(":")[0] for line in lines[:5]] == ["acknowledged"] * 4 + ["refused"]
    assert "max_request_size=1000. Raise it" in lines[4]
    log: dict[str, list[str]] = {"order-1": [], "order-2": []}
    for line in lines[5:]:
        record = re.match(r"\d b'(order-\d)' (?:None|.*\"status\":\"(\w+)\")", line)
        assert record is not None
        log[record[1]].append(record[2] or "tombstone")
    assert log == {"order-1": ["placed", "paid"], "order-2": ["placed", "tombstone"]}


def test_scram() -> None:
    """Sessions are renewed while orders are sent; a wrong password is refused in the broker's words, and is not shown."""
    sent, refused = run(
        "scram.py",
        logged=r"aioproducer-1: broker bootstrap at [\d.:]+ cannot be reached: .* SCRAM-SHA-512",
    )
    assert sent == "30 orders, sessions renewed: True"
    assert "refuses user 'alice' by SCRAM-SHA-512: SASL_AUTHENTICATION_FAILED (58)" in refused


def test_token_function() -> None:
    """Tokens and sessions are renewed while orders are sent; a function that fails is told by its type, without its text."""
    sent, failed = run("token_function.py")
    assert re.fullmatch(r"40 orders of orders-service, sessions renewed: True, tokens: [3-5]", sent)
    assert failed.startswith("no token: no broker let this client in.")
    assert failed.endswith("the token function raised ConnectionError")


def test_oidc() -> None:
    """Tokens of two seconds are refreshed while orders are sent; the endpoint refuses another secret in its words, which is not shown."""
    sent, refused = run("oidc.py")
    assert sent == "25 orders of orders-service, tokens refreshed: True"
    assert "answers 401: invalid_client (no such client, or another secret)" in refused
    assert "canary" not in refused


def test_mtls() -> None:
    """The second connection has the certificate that was written meanwhile."""
    assert run("mtls.py") == [
        "['with the first certificate', 'with the second certificate']",
        "known as orders-service, orders-service-2",
    ]


def test_proxy_dialer() -> None:
    """The record goes through a tunnel to the broker's name, which only the proxy can look up."""
    *asked, sent = run("proxy_dialer.py")
    assert set(asked) == {"the proxy is asked for kafka-1.example.com"}
    assert sent == "orders-0 has it at offset 0"


def test_backpressure() -> None:
    """Memory is filled and not exceeded by more than the overhead of a batch; each record is taken, and is in the log, or is refused."""
    waiting, refusing, log = run("backpressure.py")
    used = re.fullmatch(
        r"waiting: 5000 sent, 0 failed, the source was at most (\d+) KB ahead", waiting
    )
    assert used is not None
    assert 50 < int(used[1]) <= 120
    counts = re.fullmatch(r"refusing: (\d+) taken, (\d+) refused, 0 failed", refusing)
    assert counts is not None
    taken, refused = map(int, counts.groups())
    assert taken + refused == 5_000
    assert 0 < taken < 1_000
    assert log == f"the log has {5_000 + taken} records"


def test_transactions() -> None:
    """Records that the body, a broker or a second bank aborted are in the log, and no committed reader sees them."""
    *told, written, visible = run("transactions.py")
    assert [line.partition(":")[0] for line in told] == [
        "alice gave bob 70",
        "aborted",
        "aborted",
        "bob gave carol 20",
        "fenced",
    ]
    assert "alice has not enough" in told[1]
    assert "POLICY_VIOLATION" in told[2]
    assert visible == "read_committed: alice -70, bob +70, bob -20, carol +20"
    assert written == "read_uncommitted: alice -70, bob +70, alice -70, bob -20, carol +20"


def test_resume() -> None:
    """Each run continues behind the last commit, and no line is lost or doubled."""
    *deaths, start, end = run("resume.py")
    assert deaths == [f"died before the commit of line {line}" for line in (200, 450, 800)]
    assert start == "the last run began at line 750"
    assert end == "1000 lines in Kafka, 1000 different ones, 1000 in the source"


def test_prepared() -> None:
    """A report of several workers is visible as a whole, also after the coordinator's death, or not at all."""
    aborted, death, finished, last = run("prepared.py")
    assert aborted == "report 1 is aborted: worker 2 has bad data (0 rows are visible)"
    assert death == "the coordinator dies after 1 of 4 commits (3 rows are visible)"
    assert finished == "report 2 is committed (12 rows are visible)"
    assert last == "report 3 is committed (24 rows are visible)"


def test_consume_transform_produce() -> None:
    """Two crashes: more invoices are in the log than are visible; of those one for each order."""
    *crashes, end = run("consume_transform_produce.py")
    assert crashes == ["crashed after 7 invoices", "crashed after 25 invoices"]
    written = re.fullmatch(r"(\d+) invoices were written, 60 are visible, 60 are different", end)
    assert written is not None
    assert int(written[1]) > 60


@pytest.mark.integration
@pytest.mark.asyncio
async def test_consume_transform_produce_on_a_real_kafka(
    kafka_server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same against real brokers; another library's consumer sees one invoice for each order."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example = importlib.import_module("consume_transform_produce")
    for topic in ("orders", "invoices"):
        kafka_server.create_topic(topic, 2)
    bootstrap = {"bootstrap_servers": kafka_server.bootstrap_servers}
    await example.order(bootstrap)
    await example.run(bootstrap, (25, None))
    consumer = AIOKafkaConsumer(
        "invoices", auto_offset_reset="earliest", isolation_level="read_committed", **bootstrap
    )
    await consumer.start()
    try:
        invoices: list[bytes] = []
        while batches := await consumer.getmany(timeout_ms=2_000):
            invoices += [record.value for records in batches.values() for record in records]
    finally:
        await consumer.stop()
    assert sorted(invoices) == sorted(b"invoice of order %d" % number for number in range(60))


def test_testing_with_fake_cluster() -> None:
    """A test file that others may begin with; our own settings of pytest do not help it."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        "/dev/null",
        "-p",
        "no:cacheprovider",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
        "-W",
        "error",
    ]
    done = subprocess.run(
        [*command, "examples/testing_with_fake_cluster.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


# The streaming job


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`examples/streaming_job.py` as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module("streaming_job")


def producer(cluster: FakeCluster, **options: Any) -> Producer[str, dict[str, object]]:
    return Producer(
        **cluster.client_options,
        key_serializer=string_serializer,
        value_serializer=json_serializer,
        **options,
    )


def test_the_streaming_job(tmp_path: pathlib.Path) -> None:
    """It copies all, and once more nothing."""
    assert run("streaming_job.py", str(tmp_path)) == [
        "from reading 0 on",
        "up to 20000; the log has 20000 more",
    ]
    assert run("streaming_job.py", str(tmp_path)) == [
        "from reading 20000 on",
        "up to 20000; the log has 0 more",
    ]


@pytest.mark.asyncio
async def test_the_streaming_job_is_held_back(
    job: ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the brokers are paused, the job asks the source for no more than memory holds."""
    taken = 0
    source = job.readings

    async def counted(start: int) -> Any:
        nonlocal taken
        async for reading in source(start):
            taken += 1
            yield reading

    monkeypatch.setattr(job, "readings", counted)
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("readings", partitions=6)
        hang = cluster.hang("Produce")
        async with producer(cluster, buffer_memory=100_000) as one:
            running = asyncio.create_task(job.Job(one, tmp_path / "position.txt").run())
            await cluster.seen("Produce", 1)
            for _ in range(1_000):
                await asyncio.sleep(0)
            assert 100 < taken < 2_000
            assert one.buffer_available < 20_000
            hang.release()
            await running
        assert taken == job.READINGS == len(cluster.values("readings"))


@pytest.mark.asyncio
async def test_the_streaming_job_goes_on_where_it_was(
    job: ModuleType, tmp_path: pathlib.Path
) -> None:
    """Cancelled, then refused a record, then left alone: no position is ahead of the log, and nothing is left out at the end."""
    checkpoint = tmp_path / "position.txt"
    positions = []
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("readings", partitions=6)
        for trouble in ("cancelled", "refused", "none"):
            async with producer(cluster, buffer_memory=200_000) as one:
                running = asyncio.create_task(job.Job(one, checkpoint).run())
                await cluster.seen("Produce", len(cluster.requests("Produce")) + 20)
                if trouble == "cancelled":
                    running.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await running
                elif trouble == "refused":
                    cluster.fail("Produce", "POLICY_VIOLATION")
                    with pytest.raises(DeliveryError, match="POLICY_VIOLATION"):
                        await running
                else:
                    await running
            logged = {
                int(re.search(rb'"number":(\d+)', value)[1]) for value in cluster.values("readings")
            }  # type: ignore[index, arg-type]
            positions.append(int(checkpoint.read_text()))
            assert logged >= set(range(positions[-1]))
    assert 0 < positions[0] < positions[1] < positions[2] == job.READINGS
