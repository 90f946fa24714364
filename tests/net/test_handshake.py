"""Tests of `aioproducer.net.connection_setup`: the fake cluster's brokers, and stranger ones played by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from jumping import run
from scripted import Asked, ScriptedStream

from aioproducer.errors import BrokerError, broker_error
from aioproducer.net.connection import Connection
from aioproducer.net.connection_setup import negotiate_versions
from aioproducer.testing import FakeCluster
from aioproducer.wire.api import CLIENT_VERSIONS, ApiKey
from aioproducer.wire.schema import message

NEWEST = CLIENT_VERSIONS[ApiKey.API_VERSIONS][1]
UNSUPPORTED = broker_error("UNSUPPORTED_VERSION").code


def versions(*ranges: tuple[int, int, int], error: int = 0) -> Any:
    """An answer; ranges are number, lowest, highest."""
    keys = [
        message("ApiVersions.response.api_keys", api_key=key, min_version=low, max_version=high)
        for key, low, high in ranges
    ]
    return message("ApiVersions.response", error_code=error, api_keys=keys)


def played(*answers: tuple[Any, int]) -> tuple[Connection, ScriptedStream]:
    """A connection to a broker that gives these answers, each in the given version."""
    left = iter(answers)

    def answer(stream: ScriptedStream, asked: Asked) -> None:
        told, version = next(left)
        stream.answer(asked, told, version=version)

    connection = Connection("broker:9092", "me", lambda _: None, lambda: None, max_in_flight=5)
    return connection, ScriptedStream(connection, answer)


def shake(*answers: tuple[Any, int]) -> tuple[Connection, ScriptedStream]:
    """The handshake with such a broker."""

    async def main() -> tuple[Connection, ScriptedStream]:
        connection, stream = played(*answers)
        await negotiate_versions(connection, 5.0, "1.2.3")
        return connection, stream

    return run(main())


def test_a_broker_that_knows_our_newest_form() -> None:
    """The client sends one request. That request names the client's software (KIP-511)."""
    connection, stream = shake((versions((0, 3, 9), (3, 0, 12)), NEWEST))
    assert connection.versions == {0: (3, 9), 3: (0, 12)}
    assert [asked.version for asked in stream.asked] == [NEWEST]
    assert (
        stream.asked[0].message.client_software_name,
        stream.asked[0].message.client_software_version,
    ) == ("aioproducer", "1.2.3")


@pytest.mark.parametrize("offered", [[], [(3, 0, 5)], [(18, 0, -1)], [(18, -7, -3)]], ids=str)
def test_an_old_broker_that_does_not_say_what_it_knows(offered: list[tuple[int, int, int]]) -> None:
    """Before Kafka 2.4 the list is empty: the oldest form is asked for, which every broker knows."""
    _, stream = shake((versions(*offered, error=UNSUPPORTED), 0), (versions((0, 3, 9)), 0))
    assert [asked.version for asked in stream.asked] == [NEWEST, 0]


def test_a_broker_that_refuses_what_it_offers() -> None:
    """It is not asked the same again."""
    _, stream = shake(
        (versions((18, 0, 9), error=UNSUPPORTED), 0), (versions((0, 3, 9)), NEWEST - 1)
    )
    assert [asked.version for asked in stream.asked] == [NEWEST, NEWEST - 1]


def test_a_broker_that_refuses_twice() -> None:
    """Twice is enough."""
    with pytest.raises(BrokerError, match="UNSUPPORTED_VERSION"):
        shake((versions((18, 0, 0), error=UNSUPPORTED), 0), (versions(error=UNSUPPORTED), 0))


def test_a_range_without_a_version_is_none() -> None:
    """Its lowest is above its highest: that request is not spoken."""
    connection, _ = shake((versions((0, 9, 3), (3, 2, 2)), NEWEST))
    assert connection.versions == {3: (2, 2)}


def test_finalized_features_are_kept() -> None:
    """With their highest level and their age; a broker that tells none leaves both as they were (NET-08)."""
    feature = message(
        "ApiVersions.response.finalized_features",
        name="transaction.version",
        max_version_level=2,
        min_version_level=1,
    )
    answer = message(
        "ApiVersions.response", finalized_features=[feature], finalized_features_epoch=77
    )
    connection, _ = shake((answer, NEWEST))
    assert (connection.features, connection.features_epoch) == ({"transaction.version": 2}, 77)
    connection, _ = shake((versions((0, 3, 9)), NEWEST))
    assert (connection.features, connection.features_epoch) == ({}, -1)


# The fake cluster's brokers check what a real one checks


async def shake_with_fake(software_version: str, **options: Any) -> tuple[Connection, FakeCluster]:
    async with FakeCluster(memory=True, **options) as cluster:
        broker = cluster.brokers[1]
        connection = Connection("fake", "me", lambda _: None, lambda: None, max_in_flight=5)
        assert cluster.network is not None
        await cluster.network.dial(broker.host, broker.port, lambda: connection)
        try:
            await negotiate_versions(connection, 5.0, software_version)
        finally:
            connection.close()
            await asyncio.sleep(0)
    return connection, cluster


@pytest.mark.parametrize("highest", range(5))
def test_a_whole_handshake(highest: int) -> None:
    """With a broker of each age."""
    connection, cluster = run(shake_with_fake("1.2.3", versions={"ApiVersions": (0, highest)}))
    assert connection.versions[ApiKey.API_VERSIONS] == (0, highest)
    assert connection.version_of(ApiKey.PRODUCE) >= 3
    assert cluster.violations == []


@pytest.mark.parametrize("software_version", ["0.1.0", "1!0.1.0+debian.1", "0.1.dev3+g12ab_cd"])
def test_any_version_of_ours_is_taken(software_version: str) -> None:
    """Brokers refuse a connection for a character that they do not expect there: that of a packager's own version, for one."""
    connection, _ = run(shake_with_fake(software_version))
    assert connection.versions


def test_a_version_that_starts_strangely_is_refused() -> None:
    """The fake is as strict as brokers are: the test above means something."""
    with pytest.raises(BrokerError, match="INVALID_REQUEST"):
        run(shake_with_fake("-"))
