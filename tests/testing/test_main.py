"""`python -m aioproducer.testing`: a fake cluster that other processes use."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from aioproducer.testing.__main__ import main

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

GONE_SECONDS = 20

CLIENT = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition

servers, topic, count = sys.argv[1], sys.argv[2], 20
producer = Producer({"bootstrap.servers": servers})
for number in range(count):
    producer.produce(topic, b"%d" % number, key=b"k%d" % number)
assert producer.flush(30) == 0
consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
values = []
while len(values) < count:
    message = consumer.poll(30)
    assert message is not None and message.error() is None, message
    values.append(int(message.value()))
consumer.close()
print(len(partitions), sorted(values) == list(range(count)))
"""


@contextmanager
def served(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and where its cluster is."""
    command = [sys.executable, "-W", "error", "-m", "aioproducer.testing", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            where = re.fullmatch(r"bootstrap\.servers=(.+)\n", process.stdout.readline())
            assert where is not None, process.communicate()
            yield process, where[1]
        finally:
            process.kill()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_another_process_writes_and_reads(ending: signal.Signals) -> None:
    """confluent-kafka in a process of its own; a signal ends the cluster quietly, clients connected or not."""
    with served("--brokers", "3", "--topic", "orders:6", "--topic", "audit") as (process, servers):
        assert len(servers.split(",")) == 3
        assert process.stdout is not None
        assert re.search(r"\bMetadata 0-\d+, .*\bProduce \d+-\d+, ", process.stdout.readline())
        client = subprocess.run(
            [sys.executable, "-c", CLIENT, servers, "orders"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (client.stdout, client.returncode) == ("6 True\n", 0), client.stderr
        process.send_signal(ending)
        out, complaints = process.communicate(timeout=GONE_SECONDS)
        assert (out, complaints, process.returncode) == ("", "", 0)


def test_a_cluster_with_security(tmp_path: pathlib.Path) -> None:
    """confluent-kafka trusts the authority that the process wrote, and authenticates."""
    authority = tmp_path / "ca.pem"
    options = (
        "--security",
        "SASL_SSL",
        "--user",
        "alice:canary-alice",
        "--session-ms",
        "60000",
        "--authority",
        str(authority),
    )
    with served("--topic", "orders", *options) as (process, servers):
        peer: dict[str, Any] = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority),
        }
        producer = confluent_kafka.Producer(
            peer
            | {
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "alice",
                "sasl.password": "canary-alice",
            }
        )
        producer.produce("orders", b"v")
        assert producer.flush(30) == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(GONE_SECONDS) == 0


def test_what_no_broker_takes_is_told_at_the_end() -> None:
    """The run fails, as the app under test has a bug."""
    import socket

    with served() as (process, servers):
        host, port = servers.split(":")
        with socket.create_connection((host, int(port)), 10) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
            assert client.recv(100) == b""
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=GONE_SECONDS)
        assert process.returncode == 1
        assert complaints.startswith("broker 1, connection 1: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--brokers", "0"], "'0' is not a number from 1 on"),
        (["--brokers", "many"], "'many' is not a number from 1 on"),
        (["--topic", "orders:none"], "'none' is not a number from 1 on"),
        (["--topic", "no/such"], "no/such"),
        (["--topic", "a", "--topic", "a"], "'a'"),
        (["--version", "17"], "17"),
        (["--security", "TLS"], "TLS"),
        (["--user", "alice"], "a user is NAME:PASSWORD"),
        (["--authority", "ca.pem"], "--authority needs"),
    ],
)
def test_bad_arguments(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The program reports a bad argument before it listens."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
