"""The loop of a worker process, and the producers that its tasks share; on a fake cluster behind loopback sockets."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from in_thread import PATIENCE, ClusterInThread

from aioproducer.errors import BootstrapFailed, ConfigError, ProducerClosed
from aioproducer.spark.worker import Worker, WorkerFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def place() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def lend(place: Worker, options: dict[str, str]) -> Any:
    with place.lent(options) as producer:
        return producer


def test_tasks_share_a_producer(place: Worker, brokers: ClusterInThread) -> None:
    """One for each set of options, in any order; it writes."""
    options = {**brokers.options, "acks": "1"}
    with place.lent(options) as producer:
        deliveries = place.call(producer.send_many("orders", [b"a", b"b"]))
        place.call(deliveries.wait())
        assert lend(place, dict(reversed(options.items()))) is producer
        assert lend(place, brokers.options) is not producer
    assert sorted(brokers.cluster.values("orders")) == [b"a", b"b"]


@pytest.mark.parametrize("lent", [Worker.lent, Worker.lent_ledger_clients])
@pytest.mark.parametrize("reference", ["${env:NO_SUCH_VARIABLE}", "${file:/no/such/file}"])
def test_a_secret_that_is_not_there(
    place: Worker, lent: Callable[..., Any], reference: str
) -> None:
    """It is told at once: each attempt of a task would else wait for a broker that takes it."""
    options = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
    }
    with (
        pytest.raises(ConfigError, match=re.escape(reference)),
        lent(place, {**options, "sasl.password": reference}),
    ):
        pass


def test_few_are_kept(place: Worker, brokers: ClusterInThread) -> None:
    """Of many sets of options the oldest ones' producers are stopped; never one that is lent."""
    many = [{**brokers.options, "client.id": f"c{number}"} for number in range(6)]
    with place.lent(many[0]) as lent:
        made = [lend(place, options) for options in many[1:]]
        assert lend(place, many[0]) is lent
    with pytest.raises(ProducerClosed):
        place.call(made[0].send("orders", b"x"))
    assert lend(place, many[-1]) is made[-1]
    assert lend(place, many[1]) is not made[0]


def test_one_that_has_ended_is_replaced(place: Worker, brokers: ClusterInThread) -> None:
    first = lend(place, brokers.options)
    place.call(first.stop())
    second = lend(place, brokers.options)
    assert second is not first
    assert place.call(second.partitions_for("orders")) == {0, 1}


def test_a_start_that_fails_is_tried_again(place: Worker, brokers: ClusterInThread) -> None:
    """The next task finds the brokers."""
    options = {**brokers.options, "max.block.ms": "300", "reconnect.backoff.ms": "1000"}
    brokers.cluster.fail("ApiVersions", disconnect="before", times=1)
    with pytest.raises(BootstrapFailed):
        lend(place, options)
    assert place.call(lend(place, options).partitions_for("orders")) == {0, 1}


def test_no_thread_and_no_socket_is_left(place: Worker, brokers: ClusterInThread) -> None:
    """Task after task has the threads and connections of the first."""

    def used() -> tuple[int, int]:
        return threading.active_count(), len(psutil.Process().net_connections("tcp"))

    def task() -> None:
        with place.lent(brokers.options) as producer:
            place.call(place.call(producer.send_many("orders", [b"x"])).wait())

    task()
    task()
    before = used()
    for _ in range(100):
        task()
    assert used() == before


class Interrupted(BaseException):
    """Raised by a signal's handler, as Spark's own ends of a worker are."""


@contextlib.contextmanager
def interrupting() -> Iterator[None]:
    def handler(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_an_interrupted_wait_cancels(place: Worker) -> None:
    """What the task waited for ends, too."""
    cancelled = threading.Event()

    async def forever() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with interrupting(), pytest.raises(Interrupted):
        place.call(forever())
    assert cancelled.wait(PATIENCE)


def test_a_loop_that_has_ended_is_noticed() -> None:
    """No task waits for ever."""
    place = Worker()
    place.close()
    with pytest.raises(WorkerFailed):
        place.wait(concurrent.futures.Future())


FORKED = """
import os
from aioproducer.spark.worker import worker

first = worker()
assert worker() is first
child = os.fork()
if child == 0:
    async def answer():
        return os.getpid()
    assert worker() is not first
    os._exit(0 if worker().call(answer()) == os.getpid() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), worker() is first)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_child_makes_its_own() -> None:
    """The parent's thread is not in the child."""
    ran = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert ran.stdout.split() == ["0", "True"]
