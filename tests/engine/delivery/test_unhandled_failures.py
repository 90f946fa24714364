"""Tests of `aioproducer.engine.delivery.unhandled_failures`: which failures the hook and the log receive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioproducer.engine.delivery.unhandled_failures import UnhandledFailures
from aioproducer.errors import DeliveryError, Persisted, TransactionAborted, broker_error
from aioproducer.testing.jumping import JumpingLoop

if TYPE_CHECKING:
    from aioproducer.errors import KafkaError


def failure(topic: str = "orders", cause: KafkaError | None = None) -> DeliveryError:
    error = DeliveryError("refused", topic, 0, Persisted.NO, 1)
    error.__cause__ = cause or broker_error("INVALID_RECORD")
    return error


async def told(*failures: DeliveryError, warns: bool = True) -> list[tuple[str, int]]:
    """Return the calls of the hook. The hook is called in the next event-loop iteration, not before."""
    hooked: list[tuple[str, int]] = []
    unseen = UnhandledFailures(
        asyncio.get_running_loop(),
        "me",
        lambda error, count: hooked.append((error.topic, count)),
        warns=warns,
    )
    for count, error in enumerate(failures, 1):
        unseen.on_failure(error, count)
    assert hooked == []
    await asyncio.sleep(0)
    return hooked


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("warns", "cause", "hooked", "lines"),
    [
        (True, None, [("orders", 1)], 1),
        (False, None, [("orders", 1)], 0),
        (True, TransactionAborted("aborted"), [], 0),
        (False, TransactionAborted("aborted"), [], 0),
    ],
    ids=[
        "plain",
        "its commit raises it",
        "dropped with a transaction",
        "dropped, and its commit is gone",
    ],
)
async def test_who_is_told(
    warns: bool,
    cause: KafkaError | None,
    hooked: list[tuple[str, int]],
    lines: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The hook gets no record that was dropped with its transaction. The log gets no failure that a commit raises."""
    assert await told(failure(cause=cause), warns=warns) == hooked
    assert len(caplog.records) == lines


def test_thousands_of_topics_that_fail_at_once_are_a_few_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log gets a warning for each of the first topics. The next warning, after the interval, adds the count of the others."""
    loop = JumpingLoop()
    unseen = UnhandledFailures(loop, "me", warns=True)
    for number in range(10_000):
        unseen.on_failure(failure(str(number)), 2)
    assert len(caplog.records) == 20
    loop.run_until_complete(asyncio.sleep(10))
    loop.close()
    unseen.on_failure(failure("0"), 1)
    unseen.on_failure(failure("1"), 1)
    assert [record.getMessage().partition("sent once)")[2] for record in caplog.records[20:]] == [
        "; so did 19960 more since the last of these lines",
        "",
    ]
