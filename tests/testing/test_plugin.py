"""The pytest plugin: light to load, and its fixtures work in every kind of test."""

from __future__ import annotations

import subprocess
import sys
import warnings
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pytest
from fastapi import FastAPI

import aioproducer.testing
from aioproducer import Producer, RecordMetadata

with warnings.catch_warnings():
    # of its own import: it would rather have httpx2
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer.testing import FakeCluster
    from aioproducer.testing.thread import FakeClusterThread

pytest_plugins = ["pytester"]

# how a project runs its asynchronous tests: the marker of its tests, and pytest's arguments
KINDS = {
    "pytest-asyncio, strict": ("asyncio", ["-p", "no:anyio", "-o", "asyncio_mode=strict"]),
    "pytest-asyncio, auto": ("", ["-p", "no:anyio", "-o", "asyncio_mode=auto"]),
    "anyio": ("anyio", ["-p", "no:asyncio"]),
    "anyio beside pytest-asyncio": ("anyio", ["-o", "asyncio_mode=strict"]),
    "pytest-asyncio beside anyio": ("asyncio", ["-o", "asyncio_mode=strict"]),
}

TESTS = """
import asyncio
import pytest
from aioproducer import Producer
from aioproducer.testing.client import WireClient

MARK

async def test_unfired(fake_cluster):
    fake_cluster.fail("Produce", "REQUEST_TIMED_OUT")

async def test_fired(fake_cluster):
    fake_cluster.create_topic("t")
    fake_cluster.fail("Metadata", "LEADER_NOT_AVAILABLE")
    async with WireClient(fake_cluster.bootstrap_servers) as client:
        assert (await client.metadata()).topics[0].error_code == 5

async def test_in_the_loop_of_the_test(fake_cluster):
    fake_cluster.create_topic("t")
    async with Producer(**fake_cluster.client_options) as producer:
        sending = asyncio.ensure_future(producer.send_and_wait("t", b"v"))
        await fake_cluster.seen("Produce")
        assert (await sending).offset == 0
    assert fake_cluster.values("t") == [b"v"]
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """A project's tests, in a process of their own; warnings are errors."""
    pytester.makepyprojecttoml(
        '[tool.pytest.ini_options]\nfilterwarnings = ["error", "ignore:.*asyncio_default_fixture_loop_scope"]\n'
    )
    return pytester.runpytest_subprocess(
        "-p", "no:randomly", "-p", "no:cacheprovider", "-rs", *arguments
    )


@pytest.mark.asyncio
async def test_a_cluster_comes_as_a_fixture(fake_cluster: FakeCluster) -> None:
    """Running, in the test's loop."""
    fake_cluster.create_topic("orders")
    assert fake_cluster.bootstrap_servers.startswith("127.0.0.1:")
    assert fake_cluster.brokers[1].is_running


def test_a_web_application_in_a_plain_test(fake_cluster: FakeClusterThread) -> None:
    """`TestClient` blocks the test, and has a loop of its own for the application, whose producer sends to the cluster in its thread."""

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        async with Producer(
            **fake_cluster.client_options, retry_backoff_ms=1
        ) as app.state.producer:
            yield

    app = FastAPI(lifespan=running)

    @app.post("/orders")
    async def place() -> int:
        metadata: RecordMetadata = await app.state.producer.send_and_wait("orders", b"1")
        return metadata.offset

    fake_cluster.create_topic("orders")
    with TestClient(app) as client:
        assert client.post("/orders").json() == 0
        fake_cluster.fail("Produce", "NOT_ENOUGH_REPLICAS")
        assert client.post("/orders").json() == 1
    assert fake_cluster.values("orders") == [b"1", b"1"]
    assert len(fake_cluster.requests("Produce")) == 3


def test_a_plain_test_has_the_whole_cluster(fake_cluster: FakeClusterThread) -> None:
    """Its coroutines are waited for, its attributes set, its errors raised, and anything else is called in its thread."""
    with pytest.raises(ValueError, match="there is no broker 2"):
        fake_cluster.move_coordinator("group", 2)
    fake_cluster.add_broker()
    assert sorted(fake_cluster.brokers) == [1, 2]
    fake_cluster.call(lambda cluster: cluster.brokers[2].stop())
    assert not fake_cluster.brokers[2].is_running
    fake_cluster.transaction_version = 1
    assert fake_cluster.call(lambda cluster: cluster.transactions.version) == 1
    with pytest.raises(AttributeError, match="nothing"):
        fake_cluster.nothing  # noqa: B018


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_asynchronous_test(pytester: pytest.Pytester, kind: str) -> None:
    """The cluster is in the test's own loop; a fault that did not happen fails the test, one that happened does not."""
    mark, arguments = KINDS[kind]
    marks = f"pytestmark = pytest.mark.{mark}" if mark else ""
    backend = (
        '\n@pytest.fixture\ndef anyio_backend():\n    return "asyncio"\n' if mark == "anyio" else ""
    )
    pytester.makepyfile(TESTS.replace("MARK", marks + backend))
    result = run(pytester, *arguments)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*faults that did not happen: *Produce*"])


IN_A_LOOP = """
import pytest
from aioproducer import Producer

@pytest.mark.asyncio ARGUMENTS
class TestOrders:
    async def test_a_send(self, fake_cluster):
        fake_cluster.create_topic("t")
        async with Producer(**fake_cluster.client_options, max_block_ms=1000) as producer:
            await producer.send_and_wait("t", b"v")
        assert fake_cluster.values("t") == [b"v"]

    async def test_another_cluster(self, fake_cluster):
        assert fake_cluster.requests() == []
"""


@pytest.mark.parametrize(
    ("scope", "default"),
    [
        ("function", "session"),
        ("class", "session"),
        ("module", "function"),
        ("package", "function"),
        ("session", "function"),
    ],
)
def test_the_loop_of_the_test_whatever_its_scope(
    pytester: pytest.Pytester, scope: str, default: str
) -> None:
    """The loop of the test's marker, whatever the default of fixtures is. The cluster was in a loop that did not run: `start` hung."""
    pytester.makepyfile(IN_A_LOOP.replace(" ARGUMENTS", f"(loop_scope={scope!r})"))
    # a package has a loop for itself
    pytester.path.joinpath("__init__.py").touch()
    run(pytester, "-o", f"asyncio_default_fixture_loop_scope={default}").assert_outcomes(passed=2)


def test_the_default_loop_of_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(IN_A_LOOP.replace(" ARGUMENTS", ""))
    options = (
        "-o",
        "asyncio_default_test_loop_scope=session",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
    )
    run(pytester, *options).assert_outcomes(passed=2)


def test_a_fault_that_did_not_happen_fails_a_plain_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "def test_unfired(fake_cluster): fake_cluster.fail('Produce', 'REQUEST_TIMED_OUT')"
    )
    result = run(pytester, "-p", "no:asyncio", "-p", "no:anyio")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*faults that did not happen: *Produce*"])


def test_a_cluster_in_a_loop_that_does_not_run(pytester: pytest.Pytester) -> None:
    """A fixture of the session is in a loop of the session, and a test in another one could not reach it: that is said at once."""
    pytester.makepyfile("""
        import pytest
        import pytest_asyncio
        from aioproducer.testing import FakeCluster

        @pytest_asyncio.fixture(scope="session", loop_scope="session", params=[False, True])
        async def cluster(request):
            async with FakeCluster(memory=request.param) as cluster:
                yield cluster

        @pytest.mark.asyncio
        async def test_it(cluster):
            with pytest.raises(RuntimeError, match="belongs to an event loop that does not run now.*loop_scope"):
                cluster.client_options

        @pytest.mark.asyncio(loop_scope="session")
        async def test_in_its_loop(cluster):
            assert cluster.client_options

        def test_a_plain_function(cluster):
            assert cluster.client_options
    """)
    run(pytester).assert_outcomes(passed=6)


def test_a_backend_that_is_not_asyncio(pytester: pytest.Pytester) -> None:
    """Said in words, rather than by what breaks first."""
    pytester.makepyfile("""
        import pytest

        @pytest.fixture
        def anyio_backend():
            return ("trio", {})

        @pytest.mark.anyio
        async def test_it(fake_cluster): pass
    """)
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*aioproducer runs on asyncio alone: let the fixture anyio_backend return 'asyncio'*"]
    )


def test_nothing_that_runs_asynchronous_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("async def test_it(fake_cluster): pass")
    result = run(pytester, "-p", "no:asyncio", "-p", "no:anyio")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*nothing runs asynchronous tests here*"])


@pytest.mark.parametrize(("ci", "outcome"), [("", {"skipped": 1}), ("true", {"errors": 1})])
def test_no_java_is_a_skip_with_its_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: dict[str, int]
) -> None:
    """The fixture skips the test without Java, and fails it where tests must not be skipped."""
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    pytester.makepyfile("def test_it(kafka_server): pass")
    result = run(pytester)
    result.assert_outcomes(**outcome)
    result.stdout.fnmatch_lines(["*Java*"])


def test_loading_it_imports_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest loads the plugin in every run of every project that has the package installed. The plugin loads itself and its two parent
    packages, which import nothing. All other loaded modules are of the standard library and of pytest.
    """
    assert [point.value for point in entry_points(group="pytest11", name="aioproducer")] == [
        "aioproducer.testing.plugin"
    ]
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others' plugins load what they like
    pytester.makepyfile("""
        import sys

        def test_it():
            known = sys.stdlib_module_names | {"_pytest", "pytest", "pluggy", "iniconfig", "packaging", "pygments", "py", "__main__", __name__}
            loaded = {name for name, module in sys.modules.items() if getattr(module, "__spec__", None) is not None}
            mine = {name for name in loaded if name.partition(".")[0] not in known}
            # an environment loads by itself: finders of editable installs, hooks of coverage, what `nox -s sanitize` begins with, and
            # what the traceback of Python 3.15 reads, which the names of the standard library lack
            environments = ("__editable__", "_distutils", "coverage", "_virtualenv", "sitecustomize", "_missing_stdlib_info")
            print("LOADED", sorted(name for name in mine if not name.startswith(environments)))
    """)
    result = run(pytester, "-s", "-p", "aioproducer.testing.plugin")
    result.assert_outcomes(passed=1)
    assert (
        "LOADED ['aioproducer', 'aioproducer.testing', 'aioproducer.testing.plugin']"
        in result.stdout.str()
    )


def test_the_packages_give_their_names_when_asked() -> None:
    """The packages give the names in `__all__` and no others. They import nothing before."""
    assert [
        getattr(aioproducer.testing, name).__name__ for name in aioproducer.testing.__all__
    ] == aioproducer.testing.__all__
    with pytest.raises(AttributeError, match="Nothing"):
        aioproducer.testing.Nothing  # type: ignore[attr-defined]  # noqa: B018
    code = "import sys, aioproducer.testing.plugin as _; print([name for name in sys.modules if name.startswith(('aioproducer.', 'anyio'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['aioproducer.testing', 'aioproducer.testing.plugin']"
