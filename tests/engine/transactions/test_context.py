"""Tests of `aioproducer.engine.transactions.transaction_manager`: what `async with producer.transaction()` does at the end of its body."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.core.transactions.transaction import State
from aioproducer.engine.transactions.transaction_manager import TransactionScope
from aioproducer.errors import ProducerClosed, TransactionAbortable, TransactionTimeout

LATE = TransactionTimeout("commit_transaction() did not end")


class Manager:
    """Writes down the calls.

    Args:
        commit: what `commit` raises.
        is_told: the commit was sent already.
        open_after: the transaction is open still after a commit that failed.
    """

    def __init__(
        self, commit: BaseException | None = None, *, is_told: bool = False, open_after: bool = True
    ) -> None:
        self.calls: list[str] = []
        self.transaction = SimpleNamespace(number=0, state=State.READY, is_told=is_told)
        self.has_ended = False
        self._commit = commit
        self._open_after = open_after

    async def begin(self) -> None:
        self.calls.append("begin")
        self.transaction.number += 1
        self.transaction.state = State.IN_TRANSACTION

    async def commit(self) -> None:
        self.calls.append("commit")
        if self._commit is None or not self._open_after:
            self.transaction.state = State.READY
        if self._commit is not None:
            raise self._commit

    async def give_up(self, timeout: float, *, takes_back: bool) -> None:
        assert (timeout, takes_back) == (7.0, True)
        self.calls.append("abort")
        self.transaction.state = State.READY

    def check_running(self) -> None:
        if self.has_ended:
            raise ProducerClosed("stopped")


async def used(
    manager: Any, error: BaseException | None = None, *, ends_itself: bool = False
) -> None:
    async with TransactionScope(lambda: manager, 7.0):
        if ends_itself:
            manager.transaction.state = State.READY
        if error is not None:
            raise error


@pytest.mark.parametrize(
    ("manager", "body", "raised", "calls"),
    [
        (Manager(), None, None, ["begin", "commit"]),
        (Manager(), KeyError(1), KeyError, ["begin", "abort"]),
        (Manager(LATE), None, TransactionAbortable, ["begin", "commit", "abort"]),
        (Manager(LATE, is_told=True), None, TransactionTimeout, ["begin", "commit"]),
        (Manager(ProducerClosed("failed")), None, ProducerClosed, ["begin", "commit", "abort"]),
        (
            Manager(ProducerClosed("failed"), open_after=False),
            None,
            ProducerClosed,
            ["begin", "commit"],
        ),
    ],
    ids=[
        "commits",
        "the body raises",
        "the commit is late",
        "it was sent",
        "it fails",
        "it fails and is over",
    ],
)
@pytest.mark.asyncio
async def test_the_end_of_the_body(
    manager: Manager,
    body: BaseException | None,
    raised: type[BaseException] | None,
    calls: list[str],
) -> None:
    """A commit that is late is taken back, unless it was sent: then its outcome is not known."""
    if raised is None:
        await used(manager, body)
    else:
        with pytest.raises(raised):
            await used(manager, body)
    assert manager.calls == calls


@pytest.mark.parametrize("error", [None, KeyError(1)])
@pytest.mark.asyncio
async def test_a_body_that_ends_its_transaction_itself(error: BaseException | None) -> None:
    """Nothing is left to commit or abort. If the producer has stopped meanwhile, a body without an exception hears of it."""
    manager = Manager()
    manager.has_ended = error is None
    with pytest.raises(ProducerClosed if error is None else KeyError):
        await used(manager, error, ends_itself=True)
    assert manager.calls == ["begin"]


@pytest.mark.asyncio
async def test_a_transaction_that_the_body_began_anew_is_not_its_own() -> None:
    manager = Manager()
    async with TransactionScope(lambda: manager, 7.0):  # type: ignore[arg-type, return-value]
        await manager.begin()
    assert manager.calls == ["begin", "begin"]


def test_a_producer_that_does_not_run_is_refused_at_the_call() -> None:
    def running() -> Any:
        raise ProducerClosed("not started")

    with pytest.raises(ProducerClosed, match="not started"):
        TransactionScope(running, 7.0)
