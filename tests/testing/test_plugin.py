"""Tests of `aioproducer.testing.plugin`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import aioproducer.testing
from aioproducer.testing import plugin

if TYPE_CHECKING:
    from aioproducer.testing import FakeCluster

pytest_plugins = ["pytester"]


@pytest.mark.asyncio
async def test_a_cluster_comes_as_a_fixture(kafka_cluster: FakeCluster) -> None:
    """Running, in the test's loop, under pytest-asyncio's strict mode."""
    kafka_cluster.create_topic("orders")
    assert kafka_cluster.bootstrap_servers.startswith("127.0.0.1:")
    assert kafka_cluster.brokers[1].is_running


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_a_fault_that_did_not_happen_fails_the_test(pytester: pytest.Pytester, mode: str) -> None:
    """In both modes of pytest-asyncio; a fault that happened does not."""
    pytester.makepyfile(
        """
        import pytest
        from aioproducer.testing.client import WireClient

        @pytest.mark.asyncio
        async def test_unfired(kafka_cluster):
            kafka_cluster.fail("Produce", "REQUEST_TIMED_OUT")

        @pytest.mark.asyncio
        async def test_fired(kafka_cluster):
            kafka_cluster.create_topic("t")
            kafka_cluster.fail("Metadata", "LEADER_NOT_AVAILABLE")
            async with WireClient(kafka_cluster.bootstrap_servers) as client:
                assert (await client.metadata()).topics[0].error_code == 5
        """
    )
    result = pytester.runpytest_subprocess(
        "-p", "no:randomly", "-W", "error", "-o", f"asyncio_mode={mode}", "-o", "asyncio_default_fixture_loop_scope=function"
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*faults that did not happen: error on Produce (times left 1)*"])


@pytest.mark.parametrize(("ci", "outcome"), [("", {"skipped": 1}), ("true", {"errors": 1})])
def test_no_java_is_a_skip_with_its_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: dict[str, int]
) -> None:
    """And a failure where tests must not be skipped."""
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    pytester.makepyfile("def test_it(kafka_server): pass")
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-rs", "-o", "asyncio_default_fixture_loop_scope=function")
    result.assert_outcomes(**outcome)
    result.stdout.fnmatch_lines(["*Java*"])


def test_loading_it_imports_nothing_of_the_package() -> None:
    """pytest loads it in every run, also of projects that only have the package installed."""
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("plugin", {plugin.__file__!r})
spec.loader.exec_module(importlib.util.module_from_spec(spec))
print([name for name in sys.modules if name.startswith(("aioproducer", "pytest_asyncio", "crc32c"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_gives_its_names_when_asked() -> None:
    """And no others."""
    assert [getattr(aioproducer.testing, name).__name__ for name in aioproducer.testing.__all__] == aioproducer.testing.__all__
    with pytest.raises(AttributeError, match="Nothing"):
        aioproducer.testing.Nothing  # noqa: B018


@pytest.mark.integration
def test_a_real_server_comes_as_a_fixture(kafka_server: plugin.ServerThread) -> None:
    """Usable without any loop."""
    kafka_server.create_topic("plugin", partitions=3, config={"retention.ms": -1})
    assert kafka_server.end_offsets("plugin") == [0, 0, 0]
    assert kafka_server.bootstrap_servers.startswith("127.0.0.1:")
