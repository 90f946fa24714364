"""Tests of `aioproducer.spark.offset_commits` on a fake cluster: the newest offsets are committed, and no caller ever waits."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from query_events import progress_at

from aioproducer.spark.offset_commits import OffsetCommits
from aioproducer.testing import FakeCluster
from aioproducer.transaction_resolver import TransactionResolver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio
THREAD = "aioproducer-query-offsets"
LOGGER = "aioproducer.spark.offset_commits"


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """A cluster on loopback, which another thread can reach, with the topic of the events."""
    async with FakeCluster() as made:
        made.create_topic("flights", 2)
        yield made
    assert made.violations == []


def commits_to(bootstrap_servers: str, **options: Any) -> OffsetCommits:
    return OffsetCommits(
        partial(TransactionResolver, bootstrap_servers=bootstrap_servers, max_block_ms=5_000),
        **options,
    )


async def close(commits: OffsetCommits, timeout: float = 5.0) -> None:
    """Close from another thread, so that the cluster answers meanwhile. The thread has ended then, long before a timeout of a minute."""
    async with asyncio.timeout(20):
        await asyncio.to_thread(commits.close, timeout)
    assert threads() == []


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


async def ended() -> None:
    """Wait until the thread ends by itself."""
    for thread in threads():
        await asyncio.to_thread(thread.join, 10)
    assert threads() == []


async def test_the_newest_offsets_win(cluster: FakeCluster) -> None:
    """While one commit waits for Kafka, a thousand batches are one more commit."""
    commits = commits_to(cluster.bootstrap_servers)
    hang = cluster.hang("OffsetCommit", times=1)
    commits.put("q", "group", progress_at(1))
    await cluster.seen("OffsetCommit")
    for offset in range(2, 1_001):
        commits.put("q", "group", progress_at(offset))
    hang.release()
    await close(commits)
    assert cluster.committed("group") == {("flights", 0): 1_000, ("flights", 1): 1_000}
    assert len(cluster.requests("OffsetCommit")) == 2
    assert (commits.done["q"], commits.failed["q"]) == (2, 0)


async def test_a_rewind_commits_lower_offsets(cluster: FakeCluster) -> None:
    """A query that starts from an older copy of its checkpoint is behind, and the tools show it."""
    commits = commits_to(cluster.bootstrap_servers)
    commits.put("q", "group", progress_at(100))
    await cluster.seen("OffsetCommit")
    commits.put("q", "group", progress_at(40))
    await close(commits)
    assert cluster.committed("group") == {("flights", 0): 40, ("flights", 1): 40}


async def test_a_failed_commit_is_tried_again(cluster: FakeCluster) -> None:
    """One of two queries fails once. It alone is tried again."""
    commits = commits_to(cluster.bootstrap_servers, retry_after=0.001)
    cluster.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED")
    hang = cluster.hang("FindCoordinator", times=1)
    commits.put("a", "group-a", progress_at(1))
    commits.put("b", "group-b", progress_at(2))
    hang.release()
    await cluster.seen("OffsetCommit", 3)
    await close(commits)
    assert cluster.committed("group-a") == {("flights", 0): 1, ("flights", 1): 1}
    assert cluster.committed("group-b") == {("flights", 0): 2, ("flights", 1): 2}
    assert (commits.done.total(), commits.failed.total()) == (2, 1)


async def test_newer_offsets_replace_failed_ones(cluster: FakeCluster) -> None:
    """The offsets of the failed commit are older by then."""
    commits = commits_to(cluster.bootstrap_servers, retry_after=0.001)
    cluster.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED")
    hang = cluster.hang("OffsetCommit", times=1, when="after")
    commits.put("q", "group", progress_at(1))
    await cluster.seen("OffsetCommit")
    commits.put("q", "group", progress_at(2))
    hang.release()
    await cluster.seen("OffsetCommit", 2)
    await close(commits)
    offsets = [
        partition.committed_offset
        for request in cluster.requests("OffsetCommit")
        for partition in request.message.topics[0].partitions
    ]
    assert offsets == [1, 1, 2, 2]
    assert cluster.committed("group") == {("flights", 0): 2, ("flights", 1): 2}


async def test_failures_cost_one_warning_in_five_minutes(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The next warning says how many failures there were. It names Kafka's reason."""
    now = [1_000.0]
    commits = commits_to(cluster.bootstrap_servers, retry_after=0.001, clock=lambda: now[0])
    cluster.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=None)
    commits.put("q", "group", progress_at(1))
    with caplog.at_level(logging.WARNING, LOGGER):
        await cluster.seen("OffsetCommit", 10)
        assert len(caplog.records) == 1
        assert "GROUP_AUTHORIZATION_FAILED" in caplog.text
        assert "(failures since the last warning: 1)" in caplog.text
        now[0] += 301
        await cluster.seen("OffsetCommit", 20)
        await close(commits)
    first, second = caplog.records
    assert (first.levelno, second.levelno) == (logging.WARNING, logging.WARNING)
    assert first.args is not None
    assert second.args is not None
    assert commits.failed["q"] >= 19
    assert 9 <= int(str(next(iter(second.args)))) <= commits.failed["q"]


async def test_a_cluster_that_is_down_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """No broker answers: the thread connects again and again."""
    tried = threading.Semaphore(0)

    def make() -> TransactionResolver:
        tried.release()
        return TransactionResolver(bootstrap_servers="127.0.0.1:1", max_block_ms=50)

    commits = OffsetCommits(make, retry_after=0.001)
    with caplog.at_level(logging.WARNING, LOGGER):
        commits.put("q", "group", progress_at(1))
        for _ in range(3):
            assert await asyncio.to_thread(tried.acquire, timeout=10)
        await close(commits)
    assert commits.failed["q"] >= 2
    assert "127.0.0.1:1" in caplog.text


async def test_the_thread_ends_with_the_last_query_and_starts_again(cluster: FakeCluster) -> None:
    """The offsets of a query that has ended are committed first."""
    commits = commits_to(cluster.bootstrap_servers)
    hang = cluster.hang("OffsetCommit", times=1)
    commits.put("a", "group-a", progress_at(1))
    await cluster.seen("OffsetCommit")
    commits.put("b", "group-b", progress_at(2))
    commits.end("a")
    commits.end("b")
    hang.release()
    await ended()
    assert cluster.committed("group-a") == {("flights", 0): 1, ("flights", 1): 1}
    assert cluster.committed("group-b") == {("flights", 0): 2, ("flights", 1): 2}
    commits.put("a", "group-a", progress_at(3))
    (thread,) = threads()
    commits.end("a")
    await ended()
    assert not thread.is_alive()
    assert cluster.committed("group-a") == {("flights", 0): 3, ("flights", 1): 3}


async def test_a_query_that_has_ended_is_not_tried_again(cluster: FakeCluster) -> None:
    """The thread would else live as long as the group is refused."""
    commits = commits_to(cluster.bootstrap_servers, retry_after=0.001)
    cluster.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=None)
    hang = cluster.hang("OffsetCommit", times=1)
    commits.put("q", "group", progress_at(1))
    await cluster.seen("OffsetCommit")
    commits.end("q")
    hang.release()
    await ended()
    assert len(cluster.requests("OffsetCommit")) == 1


async def test_close_has_a_deadline(cluster: FakeCluster) -> None:
    """A commit that hangs is cancelled. A second call returns at once, and later offsets are not committed."""
    commits = commits_to(cluster.bootstrap_servers)
    hang = cluster.hang("OffsetCommit", times=None)
    commits.put("q", "group", progress_at(1))
    await cluster.seen("OffsetCommit")
    await close(commits, timeout=0.05)
    await close(commits, timeout=60)
    commits.put("q", "group", progress_at(2))
    assert threads() == []
    assert len(cluster.requests("OffsetCommit")) == 1
    hang.release()


async def test_close_ends_the_wait_for_the_next_attempt(cluster: FakeCluster) -> None:
    commits = commits_to(cluster.bootstrap_servers, retry_after=3_600.0)
    cluster.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=None)
    commits.put("q", "group", progress_at(1))
    await cluster.seen("OffsetCommit")
    await close(commits, timeout=60)


async def test_close_without_offsets() -> None:
    """No thread was started, and none is afterwards."""
    commits = commits_to("127.0.0.1:1")
    await close(commits, timeout=60)
    commits.put("q", "group", progress_at(1))
    assert threads() == []


async def test_no_thread_can_be_started(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query's listener does not fail; the next offsets start one."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    commits = commits_to(cluster.bootstrap_servers)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, LOGGER):
        patched.setattr(threading.Thread, "start", refuse)
        commits.put("q", "group", progress_at(1))
    assert "can't start new thread" in caplog.text
    commits.put("q", "group", progress_at(2))
    await close(commits)
    assert cluster.committed("group") == {("flights", 0): 2, ("flights", 1): 2}


async def test_no_file_for_a_loop(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread ends with a warning; the next offsets start one."""

    def refuse() -> asyncio.AbstractEventLoop:
        raise OSError(24, "Too many open files")

    commits = commits_to(cluster.bootstrap_servers)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, LOGGER):
        patched.setattr(asyncio.events, "new_event_loop", refuse)
        commits.put("q", "group", progress_at(1))
        await ended()
    assert "Too many open files" in caplog.text
    commits.put("q", "group", progress_at(2))
    await close(commits)
    assert cluster.committed("group") == {("flights", 0): 2, ("flights", 1): 2}


PROGRAM = """
import os, sys
from functools import partial
from aioproducer.spark import offset_commits
from aioproducer.spark.query_progress import QueryProgress
from aioproducer.transaction_resolver import TransactionResolver

progress = QueryProgress(0, 0, 0.0, 0.0, None, {}, None, (), (('{"flights":{"0":7,"1":7}}', "null"),))
commits = offset_commits.OffsetCommits(partial(TransactionResolver, bootstrap_servers=sys.argv[1]))
"""
EXITS = PROGRAM + "commits.put('q', 'group', progress)"
FORKS = (
    PROGRAM
    + """
offset_commits._EXIT_SECONDS = 0.1
commits.put('q', 'group', progress)
with commits._lock:
    child = os.fork()
    if not child:
        commits.put('q', 'group', progress)
        commits.end('q')
        commits.close(60)
        print('child', flush=True)
        sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
)


async def run(program: str, bootstrap_servers: str) -> str:
    """Run a program while the cluster of this loop answers. Returns its output."""
    command = (sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, bootstrap_servers)
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


async def test_the_last_offsets_are_committed_when_the_program_ends(cluster: FakeCluster) -> None:
    """The program does not close the listener, and its query runs to the end."""
    await run(EXITS, cluster.bootstrap_servers)
    assert cluster.committed("group") == {("flights", 0): 7, ("flights", 1): 7}


async def test_a_forked_child_and_the_end_of_a_program_wait_for_nothing() -> None:
    """The child was forked while the lock was held, and its parent's broker does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert await run(FORKS, f"127.0.0.1:{silent.getsockname()[1]}") == "child\n3\n"
