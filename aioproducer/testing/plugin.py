"""The pytest plugin: its fixtures, and nothing else.

    fake_cluster          a FakeCluster of one broker, for one test, asynchronous or plain
    kafka_server          a real node, for the session

pytest loads the plugin in every run: until a test uses a fixture, the plugin imports only the standard library and pytest. An
asynchronous fixture runs in the loop of its test, from pytest-asyncio (strict or auto) or from anyio's plugin.
"""

from __future__ import annotations

import os
from inspect import iscoroutinefunction, signature
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.kafka_server import ServerThread
    from aioproducer.testing.thread import FakeClusterThread

__all__ = ["fake_cluster", "kafka_server", "pytest_configure"]

# The scopes of pytest-asyncio's loops. A fixture is in one of them, which is chosen where the fixture is made.
_LOOP_SCOPES: Final = ("function", "class", "module", "package", "session")


def pytest_configure(config: pytest.Config) -> None:
    """Register asynchronous fixtures for each kind of test: pytest-asyncio's strict mode needs marked ones, anyio plain ones."""
    module = ModuleType("aioproducer.testing.plugin.fixtures")
    vars(module)["anyio"] = pytest.fixture(name="_fake_cluster_of_anyio")(_fake_cluster)
    if config.pluginmanager.hasplugin("asyncio"):
        for scope in _LOOP_SCOPES:
            vars(module)[scope] = _fixture_of_asyncio(scope)
    config.pluginmanager.register(module, "aioproducer-fixtures")


def _fixture_of_asyncio(scope: str) -> Any:
    import pytest_asyncio

    async def of_asyncio() -> AsyncIterator[
        FakeCluster
    ]:  # a separate function, as pytest-asyncio marks it
        async for cluster in _fake_cluster():
            yield cluster

    fixture: Any = pytest_asyncio.fixture
    # Before 0.24 there was no such argument.
    loop = {"loop_scope": scope} if "loop_scope" in signature(fixture).parameters else {}
    return fixture(name=f"_fake_cluster_in_the_{scope}_loop", **loop)(of_asyncio)


def _loop_scope(request: pytest.FixtureRequest) -> str:
    """Return the scope of the loop in which pytest-asyncio runs the test."""
    marker = request.node.get_closest_marker("asyncio")
    scope = (
        None if marker is None else marker.kwargs.get("loop_scope") or marker.kwargs.get("scope")
    )
    if scope is None:
        try:
            scope = request.config.getini("asyncio_default_test_loop_scope")
        except ValueError:
            # Before 0.26 there was no such option.
            scope = None
    return cast("str", scope or "function")


@pytest.fixture
def fake_cluster(request: pytest.FixtureRequest) -> FakeCluster:
    """Return a `FakeCluster` of one broker on loopback sockets; scripted faults that did not happen fail the test.

    A plain test gets it as a `FakeClusterThread`, which has the same methods.
    """
    # Hypothesis wraps an asynchronous function in a plain one.
    function = getattr(request.function, "hypothesis", None)
    if not iscoroutinefunction(request.function if function is None else function.inner_test):
        name = "_fake_cluster_in_a_thread"
    elif "anyio_backend" in request.fixturenames:
        backend = request.getfixturevalue("anyio_backend")
        if (backend if isinstance(backend, str) else backend[0]) != "asyncio":
            pytest.fail(
                "aioproducer runs on asyncio alone: let the fixture anyio_backend return 'asyncio'"
            )
        name = "_fake_cluster_of_anyio"
    elif request.config.pluginmanager.hasplugin("asyncio"):
        name = f"_fake_cluster_in_the_{_loop_scope(request)}_loop"
    else:
        pytest.fail(
            "nothing runs asynchronous tests here: it takes pytest-asyncio, or anyio's plugin (@pytest.mark.anyio)"
        )
    return cast("FakeCluster", request.getfixturevalue(name))


@pytest.fixture
def _fake_cluster_in_a_thread() -> Iterator[FakeClusterThread]:
    from aioproducer.testing.thread import FakeClusterThread

    thread = FakeClusterThread()
    thread.open()
    try:
        yield thread
        thread.assert_all_fired()
    finally:
        thread.close()


async def _fake_cluster() -> AsyncIterator[FakeCluster]:
    from aioproducer.testing.cluster import FakeCluster

    async with FakeCluster() as cluster:
        yield cluster
    cluster.assert_all_fired()


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[ServerThread]:
    """Yield a real Kafka node for the whole session, in a thread with a loop of its own. Skips without Java; in CI it fails."""
    from aioproducer.testing.jars import JavaMissing
    from aioproducer.testing.kafka_server import ServerThread

    thread = ServerThread()
    try:
        thread.open()
    except JavaMissing as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
    yield thread
    thread.close()
