"""Rules for every test: a skip says why, and in CI (the variable `CI` is set) no test may be skipped.

The run fails, too, if a secret of a test is shown: see canary_plugin.py.

Many tests run the collector, to see that nothing was left open. The objects from before the first of them, mostly the tests themselves, are
frozen. Otherwise each pass of the collector would visit all of them, which takes 0.3 s.

The variable `AIOPRODUCER_TEST_LOOP` gives every test another loop: see loops.py.

Hypothesis measures no time: a busy machine takes a second for what takes a millisecond.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
from importlib.util import find_spec
from typing import TYPE_CHECKING

import canary_plugin
import hypothesis
import loops
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kafka_security import DelegationToken, SecuredServerThread
    from tests.support.token_server import TokenServer

NEED_CONFLUENT = (
    "integration/test_chaos.py",
    "test_offsets.py",
    "test_option_names.py",
    "test_porting_confluent.py",
    "testing/test_admin.py",
    "testing/test_fake_alike.py",
    "testing/test_fake_old_formats.py",
    "testing/test_fake_peers.py",
    "testing/test_fake_transactional_peers.py",
    "testing/test_main.py",
    "testing/test_security_peers.py",
    "tools/spark_faults/test_count.py",
    "tools/spark_faults/test_faults.py",
)
"""Left out where confluent-kafka has no wheel: Python 3.15 (`[unit]` in pyproject.toml)."""
collect_ignore = [] if find_spec("confluent_kafka") else [*NEED_CONFLUENT]

UNFREEZE = gc.unfreeze
UNFROZEN: list[bool] = []
"""Not empty where a test has unfrozen the objects from before the first test."""

SKIPPED = pytest.StashKey[list[tuple[str, str]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SKIPPED] = []
    loops.use()
    # on top of the profile that is in force: in CI, Hypothesis's own for that
    hypothesis.settings.register_profile(
        "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("untimed")
    canary_plugin.use(config)
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # a shell's background job; and so would be the programs that tests interrupt
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if loops.why_left_out(item.nodeid)]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    freeze()
    gc.unfreeze = note_unfreezing


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    # A test that freezes objects of its own unfreezes all of them. gc.get_freeze_count() would tell, too, but it visits every frozen object:
    # 60 ms after each test, which was four fifths of all that the unit tests took.
    if UNFROZEN:
        freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze = UNFREEZE


def note_unfreezing() -> None:
    UNFREEZE()
    UNFROZEN.append(True)


def freeze() -> None:
    gc.collect()
    gc.freeze()
    UNFROZEN.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        note_skip(item.config, item.nodeid, reason_of(report))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    if report.skipped:
        note_skip(collector.config, collector.nodeid, reason_of(report))
    return report


def note_skip(config: pytest.Config, node: str, reason: str) -> None:
    if os.environ.get("CI") or not reason:
        config.stash[SKIPPED].append((node, reason))


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the reason that a skip gives, or an empty string."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = text.removeprefix("Skipped").removeprefix(":").strip()
    return "" if reason == "unconditional skip" else reason


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.stash[SKIPPED] and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.stash[SKIPPED]:
        terminalreporter.section("skipped where no skip is allowed", red=True)
    for node, reason in config.stash[SKIPPED]:
        terminalreporter.line(f"{node}: {reason or 'it says no reason'}")


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Begin with no garbage of earlier tests: a producer logs the failure of a delivery when the collector finds it, in the test that runs then."""
    gc.collect()
    caplog.clear()
    return caplog


@pytest.fixture(scope="session")
def token_endpoint() -> Iterator[TokenServer]:
    """A token endpoint whose tokens `secure_server` takes: its clients are that server's users, with their passwords as secrets."""
    from secured import SECURITY

    from tests.support.token_server import TokenServer

    with TokenServer(SECURITY.users) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def secure_server(token_endpoint: TokenServer) -> Iterator[SecuredServerThread]:
    """A real broker with every listener (secured.py), for the whole session. Skipped without Java; in CI that is a failure."""
    from secured import SECURITY
    from without_java import skipped_without_java

    from tests.support.kafka_security import SecuredServerThread

    server = SecuredServerThread(dataclasses.replace(SECURITY, jwks_url=token_endpoint.jwks_url))
    with skipped_without_java():
        server.open()
    yield server
    server.close()


@pytest.fixture(scope="session")
def delegation_token(secure_server: SecuredServerThread) -> DelegationToken:
    """A delegation token of alice."""
    return secure_server.administrate(lambda admin: admin.create_token("alice"))
