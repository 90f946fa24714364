"""A real broker with every listener and mechanism: peers first, then our producer, read back by the peers over the same way.

One broker serves all of it (`secure_server` in conftest.py). Its ACLs allow alice everything, and bob nothing.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from certificates import write_encrypted
from secured import (
    PEERS_WAYS,
    WAYS,
    Way,
    read_by_aiokafka,
    read_by_confluent,
    write_by_aiokafka,
    write_by_confluent,
)

from aioproducer import BootstrapFailed, Producer
from aioproducer.errors import CredentialsRefused, KafkaError
from aioproducer.testing import unsecured_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.kafka_security import DelegationToken, SecuredServerThread

pytestmark = pytest.mark.integration

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
_FEW = 20


def fresh_topic(server: SecuredServerThread) -> str:
    topic = f"secured-{uuid.uuid4().hex[:8]}"
    server.create_topic(topic)
    return topic


def check_read(server: SecuredServerThread, way: Way, topic: str, values: list[bytes]) -> None:
    """See that both peers read exactly these, in this order."""
    reader = way.of_a_reader()
    assert read_by_aiokafka(server, reader, topic, len(values)) == values
    assert read_by_confluent(server, reader, topic, len(values)) == values


@pytest.mark.parametrize("way", PEERS_WAYS, ids=str)
def test_peers_write_and_read(secure_server: SecuredServerThread, way: Way) -> None:
    """The broker is what it says: aiokafka's records and confluent-kafka's go in and come out by this way."""
    topic = fresh_topic(secure_server)

    asyncio.run(write_by_aiokafka(secure_server, way, topic, [b"aiokafka"]))
    write_by_confluent(secure_server, way, topic, [b"confluent"])
    check_read(secure_server, way, topic, [b"aiokafka", b"confluent"])


async def write_plainly(options: dict[str, Any], topic: str, values: list[bytes]) -> None:
    async with Producer(**options) as producer:
        told = await asyncio.gather(*[await producer.send(topic, value) for value in values])
    assert [one.offset for one in told] == list(range(len(values)))


async def write_in_transactions(options: dict[str, Any], topic: str, values: list[bytes]) -> None:
    """One transaction is aborted, one committed."""
    async with Producer(**options, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted")
        await producer.abort_transaction()
        async with producer.transaction():
            await asyncio.gather(*[await producer.send(topic, value) for value in values])


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_ours_writes_and_peers_read(
    secure_server: SecuredServerThread,
    delegation_token: DelegationToken,
    way: Way,
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Idempotent, then in transactions; peers read both back by the same way, of delegation tokens by SCRAM."""
    topic = fresh_topic(secure_server)
    options = way.ours(secure_server, delegation_token)
    first, second = (
        [b"%d" % number for number in range(start, start + _FEW)] for start in (0, _FEW)
    )

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(write_plainly(options, topic, first))
        runner.run(write_in_transactions(options, topic, second))
    check_read(secure_server, way, topic, first + second)


def test_an_encrypted_key_in_two_files(secure_server: SecuredServerThread, tmp_path: Any) -> None:
    """A client certificate as users of librdkafka have it: key and chain apart, the key with a password."""
    topic = fresh_topic(secure_server)
    alice = write_encrypted(
        secure_server.certificates.authority.client("alice"), tmp_path, "alice", "canary-key"
    )
    options = Way("SSL").ours(secure_server) | {
        "bootstrap_servers": secure_server.address("MTLS"),
        "ssl_key_location": str(alice.key),
        "ssl_certificate_location": str(alice.chain),
        "ssl_key_password": "canary-key",
    }
    asyncio.run(write_plainly(options, topic, [b"1", b"2"]))
    assert read_by_aiokafka(secure_server, Way("SSL"), topic, 2) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("way", "user"),
    [
        (Way("SASL_PLAINTEXT", "PLAIN"), "bob"),
        (Way("SASL_SSL", "SCRAM-SHA-256"), "bob"),
        (Way("MTLS"), "bob"),
    ],
    ids=str,
)
def test_who_is_let_in_may_not_write_everywhere(
    secure_server: SecuredServerThread, way: Way, user: str
) -> None:
    """Bob authenticates by each kind of way; ACLs allow him nothing, and the error says so."""
    topic = fresh_topic(secure_server)
    options = Way(way.listener, way.mechanism, user=user).ours(secure_server)

    async def refused() -> None:
        async with Producer(**options, enable_idempotence=False) as producer:
            await producer.send_and_wait(topic, b"v")

    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        asyncio.run(refused())


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_tokens_end_their_sessions(
    secure_server: SecuredServerThread, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Without `connections.max.reauth.ms`: tokens of four seconds are fetched anew, and sessions renewed by them, while records flow."""
    topic = fresh_topic(secure_server)
    way = Way("SASL_PLAINTEXT", "OAUTHBEARER")
    calls: list[float] = []

    def token() -> str:
        calls.append(time.monotonic())
        return unsecured_token("alice", 4.0)

    async def stream() -> tuple[int, int]:
        async with Producer(
            **way.ours(secure_server) | {"sasl_oauthbearer_token": token}
        ) as producer:
            until, sent = time.monotonic() + 9, []
            while time.monotonic() < until:
                sent.append(await producer.send(topic, b"%d" % len(sent)))
                await asyncio.sleep(0.02)
            await producer.flush()
            assert [(await delivery).offset for delivery in sent] == list(range(len(sent)))
            return len(sent), int(producer.metrics().number("successful-reauthentication-total"))

    with asyncio.Runner(loop_factory=loop) as runner:
        count, renewals = runner.run(stream())
    assert count > 50
    assert renewals >= 2
    assert len(calls) in {3, 4}


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (lambda: unsecured_token("alice", 60.0, iat=time.time() + 3600), "invalid_token"),
        (lambda: unsecured_token("alice", 60.0) + "c2ln", "invalid_token"),
        (lambda: unsecured_token("alice", 60.0, sub=None), "invalid_token"),
    ],
    ids=["issued in the future", "signed", "without a subject"],
)
def test_tokens_that_the_broker_refuses(
    secure_server: SecuredServerThread, token: Any, words: str
) -> None:
    """`start` fails early, with the broker's words after its error challenge, and without the token."""
    options = Way("SASL_SSL", "OAUTHBEARER").ours(secure_server) | {"sasl_oauthbearer_token": token}

    async def refused() -> None:
        await Producer(**options).start()

    began = time.monotonic()
    with pytest.raises(BootstrapFailed, match=words) as caught:
        asyncio.run(refused())
    assert time.monotonic() - began < 8
    assert isinstance(caught.value.__cause__, CredentialsRefused)
    assert caught.value.__cause__.code == 58
    assert "Is the clock right" in str(caught.value)
