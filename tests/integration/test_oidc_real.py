"""A real broker that verifies tokens by the keys of a token endpoint (JWKS): our producer, read back by aiokafka with the same mechanism.

The broker is `secure_server`, the endpoint `token_endpoint` (tests/conftest.py), whose tokens are signed by RS256.
"""

from __future__ import annotations

import asyncio
import ssl
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from secured import values_of

from aioproducer import Producer
from aioproducer.errors import BootstrapFailed
from tests.support.kafka_security import LISTENERS
from tests.support.token_server import TokenServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.kafka_security import Listener, SecuredServerThread

pytestmark = pytest.mark.integration

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
OIDC: tuple[Listener, ...] = ("OIDC_PLAINTEXT", "OIDC_SSL")
_FEW = 20


def fresh_topic(server: SecuredServerThread) -> str:
    topic = f"oidc-{uuid.uuid4().hex[:8]}"
    server.create_topic(topic)
    return topic


def options_of(
    server: SecuredServerThread, listener: Listener, url: str, secret: str = "canary-alice"
) -> dict[str, Any]:
    """Our options of alice."""
    options = {
        "bootstrap_servers": server.address(listener),
        "security_protocol": LISTENERS[listener],
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": url,
        "sasl_oauthbearer_client_credentials_client_id": "alice",
        "sasl_oauthbearer_client_credentials_client_secret": secret,
        "sasl_oauthbearer_scope": "produce",
    }
    return options | (
        {"ssl_truststore_location": str(server.certificates.ca)}
        if LISTENERS[listener] == "SASL_SSL"
        else {}
    )


async def read_by_aiokafka(
    server: SecuredServerThread, listener: Listener, endpoint: TokenServer, topic: str, count: int
) -> list[bytes]:
    """Return the first `count` committed values of partition 0."""
    from aiokafka import AIOKafkaConsumer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return endpoint.token("alice")

    options: dict[str, Any] = {
        "bootstrap_servers": server.address(listener),
        "security_protocol": LISTENERS[listener],
    }
    if LISTENERS[listener] == "SASL_SSL":
        options["ssl_context"] = ssl.create_default_context(cafile=str(server.certificates.ca))
    consumer = AIOKafkaConsumer(
        **options,
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    return await values_of(consumer, topic, count)


async def write(options: dict[str, Any], topic: str, values: list[bytes], **more: Any) -> None:
    async with Producer(**options, **more) as producer:
        if "transactional_id" in more:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"aborted")
            await producer.abort_transaction()
            async with producer.transaction():
                await asyncio.gather(*[await producer.send(topic, value) for value in values])
        else:
            await asyncio.gather(*[await producer.send(topic, value) for value in values])
        assert {row.mechanism for row in producer.health().security} == {"OAUTHBEARER"}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("listener", OIDC)
def test_ours_writes_and_aiokafka_reads(
    secure_server: SecuredServerThread,
    token_endpoint: TokenServer,
    listener: Listener,
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Idempotent, then in transactions, with a token that one request to the endpoint has fetched for each producer."""
    topic = fresh_topic(secure_server)
    options = options_of(secure_server, listener, token_endpoint.url)
    first, second = (
        [b"%d" % number for number in range(start, start + _FEW)] for start in (0, _FEW)
    )
    token_endpoint.requests.clear()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(write(options, topic, first))
        runner.run(write(options, topic, second, transactional_id=topic))
    assert [(asked.client, asked.scope) for asked in token_endpoint.requests] == [
        ("alice", "produce")
    ] * 2
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        assert (
            runner.run(read_by_aiokafka(secure_server, listener, token_endpoint, topic, 2 * _FEW))
            == first + second
        )


# Refusals: early, in the words of the endpoint or of the broker, and without a secret


def refusal(options: dict[str, Any]) -> tuple[str, float]:
    """Return the text of a start that fails, and how long it took."""

    async def started() -> None:
        async with Producer(**options):
            pass

    began = time.monotonic()
    with pytest.raises(BootstrapFailed) as caught:
        asyncio.run(started())
    assert "canary" not in str(caught.value)
    return str(caught.value), time.monotonic() - began


def test_a_wrong_client_secret(
    secure_server: SecuredServerThread, token_endpoint: TokenServer
) -> None:
    """The endpoint's words; the broker is not asked."""
    text, took = refusal(
        options_of(secure_server, "OIDC_SSL", token_endpoint.url, secret="canary-wrong")
    )
    assert "answers 401: invalid_client (no such client, or another secret)" in text
    assert took < 10
