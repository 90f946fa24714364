"""Tests of `aioproducer.testing.releases` and of clusters that speak an older Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from fake_requests import batch, produce

from aioproducer.errors import ConnectionLost, ProtocolError
from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient
from aioproducer.testing.releases import ranges
from aioproducer.wire.api import ApiKey

# as reference/brokers.md found them in Kafka's sources
KNOWN = [
    ("2.8", "Produce", (0, 9)),
    ("3.0", "Produce", (0, 9)),
    ("3.9.2", "Produce", (0, 11)),
    ("4.0", "Produce", (3, 12)),
    ("4.3", "Produce", (3, 13)),
    ("2.8", "Metadata", (0, 11)),
    ("3.9", "Metadata", (0, 12)),
    ("4.1.2", "Metadata", (0, 13)),
    ("0.10.2", "Produce", (0, 2)),
]


@pytest.mark.parametrize(("release", "api", "versions"), KNOWN)
def test_releases_speak_what_they_speak(release: str, api: str, versions: tuple[int, int]) -> None:
    """The newest step that is not newer than the release counts."""
    assert ranges(release)[api] == versions


def test_what_came_later_is_not_there() -> None:
    """ApiVersions came with 0.10, InitProducerId with 0.11."""
    assert "ApiVersions" not in ranges("0.9")
    assert "InitProducerId" not in ranges("0.10.2")


@pytest.mark.parametrize("release", ["0.8", "5.0", "4.4", "four", ""])
def test_no_other_release_is_taken(release: str) -> None:
    """Rather than guessed at."""
    with pytest.raises(ValueError, match="no release of Kafka"):
        ranges(release)


@pytest.mark.asyncio
async def test_a_cluster_of_an_older_release() -> None:
    """Advertises its versions, as far as the fake answers them; an explicit range goes before the release's, and None leaves one out."""
    async with FakeCluster(
        memory=True, version="2.8", versions={"Metadata": (0, 5), "EndTxn": None}
    ) as cluster:
        cluster.create_topic("orders")
        async with WireClient(cluster.bootstrap_servers, dialer=cluster.network) as kafka:
            told = await kafka.ask(ApiKey.API_VERSIONS, version=0)
            versions = {one.api_key: one.max_version for one in told.api_keys}
            assert (
                versions[ApiKey.PRODUCE],
                versions[ApiKey.METADATA],
                versions[ApiKey.FETCH],
            ) == (9, 5, 12)
            assert ApiKey.END_TXN not in versions
            await produce(kafka, batch(b"a"), version=9)
            with pytest.raises(ConnectionLost):
                await produce(kafka, batch(b"a"), version=10)


@pytest.mark.asyncio
async def test_brokers_change_their_release_in_mid_life() -> None:
    """One or all; their connections end, as with the restart that it takes."""
    async with FakeCluster(brokers=2, memory=True) as cluster:

        async def speaks(node: int) -> int:
            options: dict[str, Any] = {"dialer": cluster.network}
            async with WireClient(
                ":".join(map(str, cluster.brokers[node].address)), **options
            ) as kafka:
                versions = (await kafka.ask(ApiKey.API_VERSIONS, version=0)).api_keys
                return next(one.max_version for one in versions if one.api_key == ApiKey.PRODUCE)

        async with WireClient(cluster.bootstrap_servers, dialer=cluster.network) as kafka:
            await kafka.metadata()
            cluster.speak("2.8", broker=1)
            assert [await speaks(1), await speaks(2)] == [9, 13]
            assert not any(connection._is_open for connection in cluster.brokers[1].connections)
        cluster.speak("3.9", {"Produce": (3, 4)})
        assert [await speaks(1), await speaks(2)] == [4, 4]
        with pytest.raises(ValueError, match="no broker 3"):
            cluster.speak("3.9", broker=3)


@pytest.mark.asyncio
async def test_a_broker_without_api_versions_closes_the_connection() -> None:
    """The broker closes the connection, as Kafka 0.9 does."""
    async with FakeCluster(memory=True, version="0.9") as cluster:
        with pytest.raises((ConnectionLost, ProtocolError)):
            await WireClient(cluster.bootstrap_servers, dialer=cluster.network).metadata()
