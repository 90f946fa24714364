"""Tests that real nodes go and come while the others go on, and that nothing outlives its `async with`.

A test that needs a real Kafka is marked `integration`. A small script as `java` lets nodes fail to start.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import psutil
import pytest
import pytest_asyncio
from java_fakes import left_in, nodes_of

from aioproducer.errors import BrokerError, TransportError
from aioproducer.testing import KafkaCluster, kafka_cluster
from aioproducer.testing.client import WireClient
from aioproducer.testing.kafka_server import KafkaServerFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from aioproducer.testing.kafka_thread import ClusterThread


async def names_of(bootstrap_servers: str) -> set[int]:
    """Return the ids of the cluster's nodes, as told by the first broker that answers."""
    async with WireClient(bootstrap_servers, timeout=2.0) as client:
        return {broker.node_id for broker in (await client.metadata([])).brokers}


# real nodes


@pytest.mark.integration
def test_the_rest_go_on_without_a_node(kafka_cluster: ClusterThread) -> None:
    """Killed, its partitions are led by others within seconds, and topics can be made; started again, it has its data and its ports."""
    kafka_cluster.create_topic("going", partitions=3)
    leader = kafka_cluster.leader("going", 0)
    servers = kafka_cluster.bootstrap_servers
    kafka_cluster.kill(leader)
    assert leader not in kafka_cluster.answering
    assert kafka_cluster.leader("going", 0) != leader
    kafka_cluster.create_topic("made-by-two", replication_factor=2)
    kafka_cluster.start(leader)
    assert kafka_cluster.bootstrap_servers == servers
    assert kafka_cluster.end_offsets("going") == [0, 0, 0]
    assert sorted(kafka_cluster.answering) == [1, 2, 3]


@pytest.mark.integration
def test_a_stopped_and_a_paused_node(kafka_cluster: ClusterThread) -> None:
    """Stopped, it hands over first; paused, it is fenced after its session; `restore` brings both back, one after the other."""
    kafka_cluster.create_topic("pausing")
    first = kafka_cluster.leader("pausing")
    kafka_cluster.stop(first)
    second = kafka_cluster.leader("pausing")
    assert second != first
    kafka_cluster.restore()
    leader = kafka_cluster.leader("pausing")
    kafka_cluster.pause(leader)
    assert kafka_cluster.leader("pausing") != leader
    kafka_cluster.resume(leader)
    assert sorted(kafka_cluster.answering) == [1, 2, 3]


@pytest.mark.integration
def test_the_proxies_are_the_clients_way(kafka_cluster: ClusterThread) -> None:
    """Trouble at a proxy is a client's trouble: the nodes, and the cluster's own questions, go past it."""
    assert asyncio.run(names_of(kafka_cluster.bootstrap_servers)) == {1, 2, 3}
    for node in (1, 2, 3):
        kafka_cluster.trouble(node, "cut")
    with pytest.raises(TransportError):
        asyncio.run(names_of(kafka_cluster.bootstrap_servers))
    kafka_cluster.create_topic("past-the-proxies")
    kafka_cluster.trouble(1, "heal")
    assert asyncio.run(names_of(kafka_cluster.bootstrap_servers)) == {1, 2, 3}


@pytest.mark.integration
def test_what_the_cluster_refuses(kafka_cluster: ClusterThread) -> None:
    """Its words, at once; and nodes that are not there, or are already as they should be."""
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
        kafka_cluster.create_topic("too-many", replication_factor=4)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        kafka_cluster.leader("absent")
    with pytest.raises(ValueError, match=r"there is no node 4; there are \[1, 2, 3\]"):
        kafka_cluster.kill(4)
    with pytest.raises(KafkaServerFailed, match="node 1 is running"):
        kafka_cluster.start(1)


def test_where_a_nodes_logs_are() -> None:
    """Only once there are any."""
    with pytest.raises(KafkaServerFailed, match="the cluster was not started"):
        KafkaCluster().data(1)
    with pytest.raises(ValueError, match="there is no node 4"):
        KafkaCluster().data(4)


# starting that fails: a `java` that is a script


@pytest_asyncio.fixture
async def nothing_left(own_folder: Path) -> AsyncIterator[None]:
    """No process, no folder, no task of it after the test."""
    before = asyncio.all_tasks()
    yield
    assert nodes_of(own_folder) == []
    assert left_in(own_folder) == []
    assert asyncio.all_tasks() <= before | {asyncio.current_task()}


@pytest.mark.asyncio
@pytest.mark.usefixtures("nothing_left")
async def test_one_node_that_ends_fails_all(fake_java: Callable[[str], None]) -> None:
    """The other two are ended; the error has the words of the one."""
    fake_java("""\
        if main == 'kafka.Kafka':
            if 'node.id=2\\n' in open('server.properties').read(): sys.exit('the second disk is full')
            signal.pause()
        """)
    cluster = KafkaCluster()
    with pytest.raises(KafkaServerFailed, match=r"ended with status 1\nthe second disk is full"):
        await cluster.start_all()
    assert cluster.answering == []
    await cluster.end()


@pytest.mark.asyncio
@pytest.mark.usefixtures("nothing_left")
async def test_taken_ports_are_tried_again_on_others(fake_java: Callable[[str], None], tmp_path: Path) -> None:
    """Three attempts, each with new ports for all; then an error that says so."""
    fake_java("""\
        if main == 'kafka.Kafka':
            mine = [line for line in open('server.properties') if line.startswith('controller.quorum.voters')]
            open(os.environ['JAVA_HOME'] + '/attempts', 'a').write(mine[0])
            sys.exit('Socket server failed to bind to 127.0.0.1:1: Address already in use.')
        """)
    with pytest.raises(KafkaServerFailed, match="ports were taken 3 times in a row"):
        await KafkaCluster(proxied=True).start_all()
    attempts = (tmp_path / "attempts").read_text().splitlines()
    assert len(set(attempts)) == 3


@pytest.mark.asyncio
@pytest.mark.usefixtures("nothing_left")
async def test_nodes_that_are_never_ready(fake_java: Callable[[str], None]) -> None:
    """The nodes live and do not answer. The start fails after `start_timeout`, with the end of each node's log."""
    fake_java("""\
        if main == 'kafka.Kafka':
            print('thinking', flush=True)
            signal.pause()
        """)
    with pytest.raises(KafkaServerFailed, match=r"not ready within 2\.0 s\n--- node 1\nthinking\n--- node 2\nthinking"):
        await KafkaCluster(nodes=2, start_timeout=2.0).start_all()


@pytest.mark.asyncio
@pytest.mark.usefixtures("nothing_left")
async def test_cancelled_start_leaves_nothing_in_any_turn(fake_java: Callable[[str], None]) -> None:
    """The start is cancelled in each event-loop iteration, from the first to those in which processes live. The cluster can be started
    again.
    """
    fake_java("signal.pause()")
    cluster = KafkaCluster(nodes=2, proxied=True)
    turns = with_processes = 0
    while with_processes < 3:
        starting = asyncio.create_task(cluster.start_all())
        for _ in range(turns):
            await asyncio.sleep(0)
        with_processes += len(cluster.answering) == 2
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert cluster.answering == []
        turns += 2


@pytest.mark.asyncio
async def test_what_was_never_started() -> None:
    """A cluster that was never started can be ended. Its other methods say that it is not running."""
    cluster = KafkaCluster()
    await cluster.end()
    assert repr(cluster).startswith("<KafkaCluster 4.3.1: 0 of 3 nodes running")
    for method in (cluster.pause, cluster.resume):
        with pytest.raises(KafkaServerFailed, match="not running"):
            method(1)
    for call in (cluster.kill(1), cluster.stop(1)):
        with pytest.raises(KafkaServerFailed, match="not running"):
            await call
    with pytest.raises(KafkaServerFailed, match="was not started"):
        await cluster.start(1)
    with pytest.raises(ValueError, match="at least 1 node, not 0"):
        KafkaCluster(nodes=0)


def test_steady_ports_are_free_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Different from each other and from those in use; too few are an error."""
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", 0))
        taken = thief.getsockname()[1]
        monkeypatch.setattr(kafka_cluster, "_PORTS", range(taken, taken + 1))
        with pytest.raises(KafkaServerFailed, match="fewer than 1 ports"):
            kafka_cluster.steady_ports(1)
    assert psutil.Process().num_fds() > 0
    monkeypatch.undo()
    assert len(set(kafka_cluster.steady_ports(9))) == 9
