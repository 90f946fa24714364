"""The drawn workload: tasks that send, wait and flush, with calls that are cancelled at any point."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import KafkaError
from tests.simulation.plan import REST

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from tests.simulation.client import Client
    from tests.simulation.plan import Workload

__all__ = ["cancelled_somewhere", "rest", "send_once", "send_some"]

_TURNS: Final = 8  # event-loop iterations within which a call is cancelled
_SECONDS: Final = 0.05  # average time until the cancellation, if it is drawn as a time


async def send_some(client: Client, workload: Workload) -> None:
    """Run the workload's tasks, until all records were sent."""
    share = max(1, workload.records // workload.tasks)
    tasks = [asyncio.ensure_future(_task(client, workload, share)) for _ in range(workload.tasks)]
    await asyncio.gather(*tasks)


async def _task(client: Client, workload: Workload, records: int) -> None:
    rng = client.rng
    left = records
    deliveries: list[Any] = []
    while left > 0:
        left -= await _step(client, workload, deliveries, left)
        if workload.pause and rng.random() < 0.5:
            await asyncio.sleep(rng.uniform(0, workload.pause))
        await rest(rng, workload)


async def rest(rng: random.Random, workload: Workload) -> None:
    """Pause at random, if the workload has pauses."""
    if workload.rests and rng.random() < workload.rests:
        await asyncio.sleep(REST)


async def _step(client: Client, workload: Workload, deliveries: list[Any], left: int) -> int:
    """Make one call, cancelled at some point or not. Returns the number of records that it was for."""
    rng = client.rng
    drawn = rng.random()
    if drawn < 0.84:
        await cancelled_somewhere(
            client, lambda: send_once(client, workload, deliveries), workload.cancelled, "send"
        )
        return 1
    if drawn < 0.9:
        count = min(left, rng.randint(2, 6))
        topic, size, _, partition = _record(client, workload)
        await cancelled_somewhere(
            client,
            lambda: client.send_many(topic, count, size=size, partition=partition),
            workload.cancelled,
            "send_many",
        )
        return count
    if drawn < 0.95:
        timeout = rng.choice((None, 0.0, 0.05, 1.0))
        await cancelled_somewhere(
            client, lambda: client.flush(timeout), workload.cancelled, "flush"
        )
    elif deliveries:
        await cancelled_somewhere(
            client, lambda: _wait(rng.choice(deliveries)), workload.cancelled, "wait"
        )
    return 0


async def send_once(
    client: Client, workload: Workload, deliveries: list[Any] | None = None
) -> None:
    """Send one record, by a random one of the methods."""
    topic, size, key, partition = _record(client, workload)
    drawn = client.rng.random()
    if drawn < 0.1:
        await client.send_and_wait(topic, size=size, key=key, partition=partition)
        return
    if drawn < 0.18:
        delivery = client.send_nowait(topic, size=size, key=key, partition=partition)
    else:
        delivery = await client.send(topic, size=size, key=key, partition=partition)
    if deliveries is not None:
        deliveries.append(delivery)
    if drawn > 0.99 and workload.cancelled:
        # this cancels the handle, not the record
        delivery.cancel()


def _record(client: Client, workload: Workload) -> tuple[str, int, bytes | None, int | None]:
    """Draw topic, size, key and partition of one record."""
    rng = client.rng
    topic = rng.choice(list(workload.topics))
    partition = rng.randrange(workload.topics[topic]) if rng.random() < 0.5 else None
    key = b"%d" % rng.randrange(5) if partition is None and rng.random() < 0.5 else None
    return topic, rng.choice(workload.sizes), key, partition


async def _wait(delivery: Any) -> None:
    if not delivery.cancelled():
        await delivery


async def cancelled_somewhere(
    client: Client,
    call: Callable[[], Awaitable[Any]],
    probability: float,
    kind: str,
    *,
    raises: bool = False,
) -> bool:
    """Await a call; with `probability`, cancel it after some event-loop iterations or some time. Returns True if it was cancelled.

    A `KafkaError` of the call is written to the history; with `raises` it is raised too.
    """
    canceller = _Canceller(client.rng, probability)
    try:
        await call()
    except KafkaError as error:
        client.told(f"{type(error).__name__}: {error}")
        if raises:
            raise
    except asyncio.CancelledError:
        if not canceller.has_struck:
            raise
        client.cancelled[f"cancel_{kind}"] += 1
        client.told(f"{kind} was cancelled")
        return True
    finally:
        await canceller.end()
    return False


class _Canceller:
    """Cancels the current task after some time, or never."""

    def __init__(self, rng: random.Random, probability: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.has_struck = False
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle | None = None
        if rng.random() < probability:
            turns, seconds = rng.randrange(_TURNS), rng.choice((0.0, rng.expovariate(1 / _SECONDS)))
            self._handle = (
                self._loop.call_later(seconds, self._strike, 0)
                if seconds
                else self._loop.call_soon(self._strike, turns)
            )

    def _strike(self, turns: int) -> None:
        if turns:
            self._handle = self._loop.call_soon(self._strike, turns - 1)
        else:
            self.has_struck = True
            self._task.cancel()

    async def end(self) -> None:
        """Stop cancelling. A cancellation that came as the call ended is absorbed here."""
        if self._handle is not None:
            self._handle.cancel()
        if self.has_struck and self._task.cancelling():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            while self._task.cancelling():
                self._task.uncancel()
