"""Tests that a real node lives as long as its `async with`, and never longer.

A test that needs a real Kafka is marked `integration`. A small script as `java` lets the node fail to start.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from java_fakes import left_alive, left_in, nodes_of

from aioproducer.errors import BrokerError, RequestTimedOut
from aioproducer.testing import jars, kafka_server
from aioproducer.testing.client import WireClient
from aioproducer.testing.kafka_server import KafkaServer, KafkaServerFailed
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aioproducer.testing.kafka_server import ServerThread

# a real node


@pytest.mark.integration
@pytest.mark.asyncio
async def test_topic_has_its_partitions_leaders_and_config(kafka_server: ServerThread) -> None:
    """`create_topic` returns when each partition has a leader; the options that were given hold."""
    kafka_server.create_topic("created", 3, {"retention.ms": -1, "compression.type": "zstd"})
    async with WireClient(kafka_server.bootstrap_servers) as client:
        topic = (await client.metadata(["created"])).topics[0]
        assert topic.error_code == 0
        assert [(p.partition_index, p.error_code, p.leader_id) for p in topic.partitions] == [
            (0, 0, 1),
            (1, 0, 1),
            (2, 0, 1),
        ]
        assert await client.end_offsets("created") == [0, 0, 0]
    described = await asyncio.to_thread(describe, kafka_server.bootstrap_servers, "created")
    assert described["retention.ms"] == "-1"
    assert described["compression.type"] == "zstd"


@pytest.mark.integration
def test_refusals_are_the_brokers_words(kafka_server: ServerThread) -> None:
    """A topic that exists, an option that does not, a topic that is not there: each is the broker's error, at once."""
    kafka_server.create_topic("once")
    with pytest.raises(BrokerError, match=r"TOPIC_ALREADY_EXISTS .*'once'"):
        kafka_server.create_topic("once")
    with pytest.raises(BrokerError, match=r"INVALID_CONFIG .*no\.such"):
        kafka_server.create_topic("other", config={"no.such": 1})
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        kafka_server.end_offsets("absent")


@pytest.mark.integration
@pytest.mark.asyncio
@pytest.mark.usefixtures("needs_java")
async def test_a_nodes_whole_life(own_folder: Path) -> None:
    """It starts; paused it answers nothing, resumed it answers again; killed it is gone, and stopping it then is quiet."""
    async with KafkaServer(properties={"num.partitions": 2}, heap="200m") as kafka:
        process = psutil.Process(kafka.pid)
        assert "-Xmx200m" in process.cmdline()
        assert repr(kafka) == f"<KafkaServer 4.3.1: {kafka.bootstrap_servers}, pid {kafka.pid}>"
        with pytest.raises(KafkaServerFailed, match="started already"):
            await kafka.start()
        kafka.pause()
        with pytest.raises(RequestTimedOut):
            async with WireClient(kafka.bootstrap_servers, timeout=0.2) as client:
                await client.metadata()
        kafka.resume()
        async with WireClient(kafka.bootstrap_servers) as client:
            assert (await client.metadata()).brokers[0].node_id == 1
        kafka.kill()
        await asyncio.to_thread(process.wait, 10)
        while kafka.is_running:
            await asyncio.sleep(0)
        with pytest.raises(KafkaServerFailed, match="not running"):
            kafka.resume()
    assert left_in(own_folder) == []
    assert repr(kafka) == "<KafkaServer 4.3.1: not running>"


@pytest.mark.integration
@pytest.mark.asyncio
@pytest.mark.parametrize("taken", [0, 1], ids=["broker", "controller"])
@pytest.mark.usefixtures("needs_java")
async def test_taken_port_is_retried(
    taken: int, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process binds a port between choosing and starting. The node starts on other ports."""
    choose = kafka_server.free_ports
    chosen: list[tuple[int, ...]] = []
    with socket.socket() as thief:

        def choose_and_lose_one(count: int) -> tuple[int, ...]:
            chosen.append(choose(count))
            if len(chosen) == 2:  # 1: for the format; 2: for the first start
                thief.bind(("127.0.0.1", chosen[-1][taken]))
                thief.listen()
            return chosen[-1]

        monkeypatch.setattr(kafka_server, "free_ports", choose_and_lose_one)
        async with KafkaServer() as kafka:
            assert len(chosen) == 3
            assert kafka.bootstrap_servers == f"127.0.0.1:{chosen[-1][0]}"
            await kafka.create_topic("works")
    assert left_in(own_folder) == []


@pytest.mark.integration
@pytest.mark.asyncio
@pytest.mark.usefixtures("needs_java", "own_folder")
async def test_kafka_3_9_takes_old_requests() -> None:
    """`version="3.9.2"` is the newest Kafka that takes Produce versions 0 to 2, in which old message formats travel."""
    async with KafkaServer(version="3.9.2") as kafka:
        assert repr(kafka).startswith("<KafkaServer 3.9.2: 127.0.0.1:")
        await kafka.create_topic("old", 2)
        assert await kafka.end_offsets("old") == [0, 0]
        async with WireClient(kafka.bootstrap_servers) as client:
            versions = {
                api.api_key: (api.min_version, api.max_version)
                for api in (await client.ask(ApiKey.API_VERSIONS, version=0)).api_keys
            }
        assert versions[ApiKey.PRODUCE] == (0, 11)


PARENT = """
import asyncio
from aioproducer.testing.kafka_server import KafkaServer
async def main():
    async with KafkaServer() as kafka:
        print(kafka.pid, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.integration
@pytest.mark.usefixtures("needs_java")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_node_ends_with_its_parent(ending: signal.Signals, tmp_path: Path) -> None:
    """Killed or interrupted, the parent takes the node with it; interrupted, it also removes the node's folder."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as parent:
        assert parent.stdout is not None
        node = psutil.Process(int(parent.stdout.readline()))
        assert node.name() == "java"
        parent.send_signal(ending)
        node.wait(10)
        parent.communicate(timeout=10)
    assert ending == signal.SIGKILL or list(tmp_path.glob("aioproducer-kafka-*")) == []


# the guard, without Java

GUARDED = """
import os, subprocess, sys
sleeper = [sys.executable, "-c", "import os, signal; print(os.getpid(), flush=True); signal.pause()"]
child = subprocess.Popen([sys.executable, "-IS", "-c", sys.argv[1], str(os.getpid()), sys.argv[2], *sleeper], stdin=subprocess.PIPE)
child.wait()
"""


@pytest.mark.parametrize("how", ["prctl", "pipe"] if sys.platform == "linux" else ["pipe"])
def test_guard(how: str) -> None:
    """A process behind the guard ends when its parent is killed, with Linux's mechanism and with the portable one."""
    with subprocess.Popen(
        [sys.executable, "-c", GUARDED, kafka_server._GUARD, how], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        watchers = child.children()
        parent.kill()
        child.wait(10)
        psutil.wait_procs(watchers, 10)
    assert len(watchers) == (how == "pipe")
    assert not any(watcher.is_running() for watcher in watchers)


def test_guard_of_a_child_that_ended_kills_nobody() -> None:
    """The portable guard's watcher ends by itself when what it guards has ended, and leaves the number of that process alone."""
    with subprocess.Popen(
        [sys.executable, "-c", GUARDED, kafka_server._GUARD, "pipe"], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        (watcher,) = child.children()
        child.kill()
        watcher.wait(10)
        assert parent.wait(10) == 0


# starting that fails: a `java` that is a script


@pytest.mark.asyncio
async def test_node_that_ends_shows_its_log(
    fake_java: Callable[[str], None], own_folder: Path
) -> None:
    """A node that does not start fails at once, with its status and the end of its log. Nothing of it stays."""
    fake_java("if main == 'kafka.Kafka': sys.exit('FATAL: the disk is made of cheese')")
    with pytest.raises(
        KafkaServerFailed, match=r"Kafka 4\.3\.1 ended with status 1\n.*made of cheese"
    ):
        await KafkaServer().start()
    assert left_in(own_folder) == []


@pytest.mark.asyncio
async def test_folder_that_cannot_be_prepared_shows_the_log(
    fake_java: Callable[[str], None], own_folder: Path
) -> None:
    """The step before the node's start fails in the same manner."""
    fake_java("sys.exit('Unknown property')")
    with pytest.raises(KafkaServerFailed, match=r"could not prepare its folder\nUnknown property"):
        await KafkaServer().start()
    assert left_in(own_folder) == []


@pytest.mark.asyncio
async def test_ports_taken_every_time(fake_java: Callable[[str], None], own_folder: Path) -> None:
    """Three attempts, then an error that says so."""
    fake_java("""\
        if main == 'kafka.Kafka':
            open(os.environ['JAVA_HOME'] + '/attempts', 'a').write('x')
            sys.exit('Socket server failed to bind to 127.0.0.1:1: Address already in use.')
        """)
    with pytest.raises(KafkaServerFailed, match="ports were taken 3 times in a row"):
        await KafkaServer().start()
    assert (own_folder.parent / "attempts").read_text() == "xxx"
    assert left_in(own_folder) == []


@pytest.mark.asyncio
async def test_node_that_is_never_ready(fake_java: Callable[[str], None], own_folder: Path) -> None:
    """A node that lives and answers nothing fails after `start_timeout`, with its log; nothing of it stays."""
    fake_java("""\
        if main == 'kafka.Kafka':
            print('thinking', flush=True)
            signal.pause()
        """)
    with pytest.raises(KafkaServerFailed, match=r"not ready within 1\.0 s\nthinking"):
        await KafkaServer(start_timeout=1.0).start()
    assert nodes_of(own_folder) == []
    assert left_in(own_folder) == []


@pytest.mark.asyncio
async def test_port_of_another_kafka_is_not_ours(
    fake_java: Callable[[str], None], own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Kafka that took the port answers Metadata; it is not taken for the node that was started."""
    from aioproducer.testing import FakeCluster

    fake_java("if main == 'kafka.Kafka': signal.pause()")
    async with FakeCluster() as other:
        port = int(other.bootstrap_servers.rpartition(":")[2])
        monkeypatch.setattr(kafka_server, "free_ports", lambda count: (port,) * count)
        with pytest.raises(KafkaServerFailed, match="not ready"):
            await KafkaServer(start_timeout=1.0).start()
        assert other.requests(ApiKey.METADATA.name.capitalize())
    assert left_in(own_folder) == []


@pytest.mark.asyncio
@pytest.mark.parametrize("at", ["kafka.tools.StorageTool", "kafka.Kafka"])
async def test_cancelled_start_leaves_nothing(
    at: str, fake_java: Callable[[str], None], own_folder: Path
) -> None:
    """Cancelled while it prepares or while it waits for the node: no process, no folder; and it can be started again."""
    pipe = own_folder.parent / "pipe"
    os.mkfifo(pipe)
    fake_java(f"""\
        if main == {at!r}:
            open({str(pipe)!r}, 'w').close()
            signal.pause()
        """)
    kafka = KafkaServer()
    for _ in range(2):
        starting = asyncio.create_task(kafka.start())
        await asyncio.to_thread(pipe.read_text)
        assert len(nodes_of(own_folder)) == 1
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert left_alive(own_folder) == []
        assert left_in(own_folder) == []


@pytest.mark.asyncio
async def test_cancelled_start_leaves_nothing_in_any_turn(
    fake_java: Callable[[str], None], own_folder: Path
) -> None:
    """The start is cancelled in each event-loop iteration, from the first to those in which the process exists. Nothing stays."""
    fake_java("signal.pause()")
    # `java` is remembered from here on, so that most iterations are those of the process
    jars.java()
    turns = after_process = 0
    while after_process < 5:
        kafka = KafkaServer()
        starting = asyncio.create_task(kafka.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        after_process += kafka.is_running
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert left_alive(own_folder) == []
        assert left_in(own_folder) == []
        turns += 1


@pytest.mark.asyncio
async def test_cancelled_while_jars_are_fetched(
    fake_java: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled while Maven is at work: Maven is ended."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    fake_java("")
    maven = tmp_path / "bin" / "mvn"
    maven.write_text(
        f"#!{sys.executable} -IS\nimport signal\nfile = open({str(pipe)!r}, 'w')\nfile.write('x')\nfile.flush()\nsignal.pause()\n"
    )
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "cache" / "jars" / "kafka-4.3.1").rmdir()
    starting = asyncio.create_task(KafkaServer().start())
    with await asyncio.to_thread(pipe.open, "rb", 0) as reader:
        assert await asyncio.to_thread(reader.read, 1) == b"x"
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert await asyncio.to_thread(reader.read) == b""  # its only writer has ended


@pytest.mark.asyncio
async def test_java_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Java the error is the one that says what to install, before anything is fetched."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("AIOPRODUCER_CACHE", str(tmp_path / "cache"))
    with pytest.raises(jars.JavaMissing):
        await KafkaServer().start()
    assert not (tmp_path / "cache").exists()


@pytest.mark.asyncio
async def test_what_was_never_started() -> None:
    """A node that was never started can be stopped. Its other methods say that it is not running."""
    kafka = KafkaServer()
    await kafka.stop()
    for method in (kafka.kill, kafka.pause, kafka.resume):
        with pytest.raises(KafkaServerFailed, match="not running"):
            method()
    assert kafka.log_tail() == "(it has no log: it was not started)"


def describe(bootstrap_servers: str, topic: str) -> dict[str, str]:
    admin = pytest.importorskip("confluent_kafka.admin")
    resource = admin.ConfigResource("topic", topic)
    client = admin.AdminClient({"bootstrap.servers": bootstrap_servers})
    answers = client.describe_configs([resource])
    return {name: entry.value for name, entry in answers[resource].result(30).items()}
