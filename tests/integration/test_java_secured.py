"""Java's own clients with our options as properties: Kafka's console programs write and read what ours reads and writes."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest
from secured import JAVA_WAYS, Way, java_properties, read_by_confluent

from aioproducer import Producer
from aioproducer.testing import jars

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka_security import DelegationToken, SecuredServerThread

pytestmark = pytest.mark.integration

TOKEN = Way("SASL_SSL", "SCRAM-SHA-256", is_token=True)


def console(main: str, *arguments: str, said: str = "") -> str:
    """Run a console program of Kafka with `said` as its input; return what it printed."""
    command = (
        str(jars.java()),
        "-Xmx96m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{jars.kafka()}/*",
        main,
    )
    ended = subprocess.run(
        [*command, *arguments], input=said, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("way", [*JAVA_WAYS, TOKEN], ids=str)
def test_console_programs_take_our_options(
    secure_server: SecuredServerThread, delegation_token: DelegationToken, way: Way, tmp_path: Path
) -> None:
    """What ours writes the console consumer reads, and what the console producer writes is behind it."""
    topic = f"java-{uuid.uuid4().hex[:8]}"
    secure_server.create_topic(topic)
    options = way.ours(secure_server, delegation_token)

    async def write() -> None:
        async with Producer(**options) as producer:
            await producer.send_and_wait(topic, b"ours")

    asyncio.run(write())
    properties = tmp_path / "client.properties"
    properties.write_text(
        "".join(f"{name}={value}\n" for name, value in java_properties(options).items())
    )
    words = (
        "--bootstrap-server",
        options["bootstrap_servers"],
        "--topic",
        topic,
        "--command-config",
        str(properties),
    )
    console("org.apache.kafka.tools.ConsoleProducer", *words, said="theirs\n")
    read = console(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *words,
        "--from-beginning",
        "--max-messages",
        "2",
        "--timeout-ms",
        "30000",
    )
    assert read.split() == ["ours", "theirs"]
    assert read_by_confluent(secure_server, way.of_a_reader(), topic, 2) == [b"ours", b"theirs"]
