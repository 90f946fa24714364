"""Producers that authenticate by OAUTHBEARER on a fake cluster: sources of tokens, their refresh, and what goes wrong with them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, running

from aioproducer.testing import FakeCluster, ListenerSecurity, ListenerTokens, unsecured_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


EPOCH = 1_900_000_000.0
"""Seconds since 1970 at the zero of the loop's clock."""
WITH_TOKENS = {"sasl_mechanism": "OAUTHBEARER"}


def wall() -> float:
    return asyncio.get_running_loop().time() + EPOCH


class Tokens:
    """A token function that a test scripts.

    Attributes:
        calls: the loop's time of each call.
        results: what the next calls return or raise; then the function returns tokens of `seconds`.
    """

    def __init__(self, seconds: float = 100.0, user: str = "alice", **claims: Any) -> None:
        self.calls: list[float] = []
        self.results: list[Any] = []
        self.seconds = seconds
        self.user = user
        self.claims = claims

    def __call__(self) -> Any:
        self.calls.append(wall() - EPOCH)
        result = self.results.pop(0) if self.results else self.good()
        if isinstance(result, BaseException):
            raise result
        return result

    def good(self) -> str:
        return unsecured_token(self.user, self.seconds, now=wall(), canary="canary-claim", **self.claims)


@contextlib.asynccontextmanager
async def secured(brokers: int = 1, session_ms: int = 0, protocol: Any = "SASL_PLAINTEXT", **tokens: Any) -> AsyncIterator[FakeCluster]:
    security = ListenerSecurity(protocol, session_ms=session_ms, tokens=ListenerTokens(**tokens))
    async with FakeCluster(brokers, memory=True, security=security, wall_clock=wall) as cluster:
        cluster.create_topic("orders", partitions=brokers)
        yield cluster


def login(source: Any, **options: Any) -> dict[str, Any]:
    return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token": source, "wall_clock": wall, **options}


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@jumping
async def test_records_arrive(protocol: str) -> None:
    async with secured(protocol=protocol) as cluster, running(cluster, **login(Tokens())) as (_, producer):
        await producer.send_and_wait("orders", b"x")
        assert cluster.values("orders") == [b"x"]
        assert {(done.mechanism, done.error) for done in cluster.security.authentications} == {("OAUTHBEARER", 0)}
