"""Streams records to a real Kafka that ends sessions with their short tokens, and takes the token endpoint away meanwhile.

    python -m tests.tools.token_sessions [--seconds 300] [--lifetime 20] [--outage 30]

1. Tokens of 20 s, and so sessions of 20 s, for 5 minutes, over SASL_PLAINTEXT and SASL_SSL at once.
2. Tokens of 60 s for 2 minutes. The endpoint is away for 30 s, in which the refresh of the first token is due.

Each record is acknowledged, at the offset of its number. The program prints figures, and its exit status is 1 if a record failed or was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Any

from aioproducer import Producer
from aioproducer.errors import KafkaError
from aioproducer.net.sasl_login import SaslLogin
from aioproducer.net.transport import TcpDialer
from aioproducer.testing import KafkaSecurity, KafkaServer, OidcValidator, TokenServer

LISTENERS = {"OIDC_PLAINTEXT": "SASL_PLAINTEXT", "OIDC_SSL": "SASL_SSL"}
_UNACKNOWLEDGED = 40
# Part 2: seconds from the first token's fetch to the outage.
_OUTAGE_AFTER = 25.0
_LONG_LIFETIME = 60
_LONG_SECONDS = 120.0


class CountingDialer(TcpDialer):
    """Dials over TCP, and counts."""

    dialled = 0

    async def dial(self, *arguments: Any) -> Any:
        self.dialled += 1
        return await super().dial(*arguments)


@dataclass
class Streamed:
    """What a stream came to."""

    records: int = 0
    failed: int = 0
    misplaced: int = 0
    longest_wait: float = 0.0
    dialled: int = 0


class Authentications:
    """Counts authentications and renewals of all producers."""

    def __init__(self) -> None:
        self.count = 0
        self.failed = 0
        authenticate = SaslLogin.authenticate

        async def counted(login: SaslLogin, connection: Any, timeout: float) -> float:
            self.count += 1
            try:
                return await authenticate(login, connection, timeout)
            except BaseException:
                self.failed += 1
                raise

        SaslLogin.authenticate = counted  # type: ignore[method-assign]


async def stream(options: dict[str, Any], topic: str, seconds: float) -> Streamed:
    """Send numbered records with five requests in flight."""
    told, dialer = Streamed(), CountingDialer()
    room = asyncio.Semaphore(_UNACKNOWLEDGED)

    async def acknowledged(number: int, delivery: Any) -> None:
        sent_at = time.monotonic()
        try:
            told.misplaced += (await delivery).offset != number
        except KafkaError as error:
            told.failed += 1
            print(f"record {number}: {error!r}", flush=True)
        told.longest_wait = max(told.longest_wait, time.monotonic() - sent_at)
        room.release()

    async with Producer(**options, dialer=dialer, batch_size=1024, linger_ms=0, max_in_flight_requests_per_connection=5) as producer:
        ends_at = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < ends_at:
                await room.acquire()
                group.create_task(acknowledged(told.records, await producer.send(topic, b"%d" % told.records)))
                told.records += 1
    told.dialled = dialer.dialled
    return told


async def part(kafka: KafkaServer, endpoint: TokenServer, name: str, seconds: float, authentications: Authentications) -> bool:
    """Stream over both listeners at once. Returns whether each record is there."""
    asked, authenticated = len(endpoint.requests), authentications.count

    def options(listener: Any, protocol: str) -> dict[str, Any]:
        ca = {"ssl_truststore_location": str(kafka.certificates.ca)} if protocol == "SASL_SSL" else {}
        return {
            "bootstrap_servers": kafka.address(listener),
            "security_protocol": protocol,
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": endpoint.url,
            "sasl_oauthbearer_client_credentials_client_id": "alice",
            "sasl_oauthbearer_client_credentials_client_secret": "canary-alice",
            **ca,
        }

    topics = {listener: f"{name}-{listener}" for listener in LISTENERS}
    for topic in topics.values():
        await kafka.create_topic(topic)
    streams = [stream(options(listener, protocol), topics[listener], seconds) for listener, protocol in LISTENERS.items()]
    streamed = await asyncio.gather(*streams)
    good = True
    for listener, told in zip(LISTENERS, streamed, strict=True):
        lost = told.records - sum(await kafka.end_offsets(topics[listener]))
        good &= not (told.failed or told.misplaced or lost)
        print(f"{name} {listener}: {told}, {lost} lost", flush=True)
    print(
        f"{name}: {len(endpoint.requests) - asked} token requests, {authentications.count - authenticated} authentications and renewals, "
        f"{authentications.failed} of them failed",
        flush=True,
    )
    return good


async def outage(endpoint: TokenServer, seconds: float) -> None:
    await asyncio.sleep(_OUTAGE_AFTER)
    endpoint.stop()
    print(f"the endpoint is away, for {seconds:g} s", flush=True)
    await asyncio.sleep(seconds)
    endpoint.start()
    print("the endpoint is back", flush=True)


async def run(arguments: argparse.Namespace) -> bool:
    authentications = Authentications()
    clients = {"alice": "canary-alice"}
    with TokenServer(clients, lifetime=arguments.lifetime) as short, TokenServer(clients, lifetime=_LONG_LIFETIME) as long:
        good = True
        async with KafkaServer(security=KafkaSecurity(users=clients, oidc=OidcValidator(short.jwks_url))) as kafka:
            good &= await part(kafka, short, "short-tokens", arguments.seconds, authentications)
        async with KafkaServer(security=KafkaSecurity(users=clients, oidc=OidcValidator(long.jwks_url))) as kafka:
            away = asyncio.create_task(outage(long, arguments.outage))
            good &= await part(kafka, long, "outage", _LONG_SECONDS, authentications)
            await away
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--lifetime", type=float, default=20.0)
    parser.add_argument("--outage", type=float, default=30.0)
    sys.exit(0 if asyncio.run(run(parser.parse_args())) else 1)


if __name__ == "__main__":
    main()
