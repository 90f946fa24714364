"""The drawn workload: tasks that send, wait, flush, and are cancelled at any point. Knows no fault."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import KafkaError
from aioproducer.testing.simulation.plan import REST

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from aioproducer.testing.simulation.client import Client
    from aioproducer.testing.simulation.plan import Workload

__all__ = ["cancelled_somewhere", "rest", "send_once", "send_some"]

_TURNS: Final = 8  # of the loop within which a call is cancelled
_SECONDS: Final = 0.05  # or, on average, the time


async def send_some(client: Client, workload: Workload) -> None:
    """So many tasks, until all records were sent."""
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
    """Now and then, if it rests at all."""
    if workload.rests and rng.random() < workload.rests:
        await asyncio.sleep(REST)


async def _step(client: Client, workload: Workload, deliveries: list[Any], left: int) -> int:
    """One call, cancelled somewhere or not; how many records it was for."""
    rng = client.rng
    drawn = rng.random()
    if drawn < 0.84:
        await cancelled_somewhere(client, lambda: send_once(client, workload, deliveries), workload.cancelled, "send")
        return 1
    if drawn < 0.9:
        count = min(left, rng.randint(2, 6))
        topic, size, _, partition = _record(client, workload)
        await cancelled_somewhere(
            client, lambda: client.send_many(topic, count, size=size, partition=partition), workload.cancelled, "send_many"
        )
        return count
    if drawn < 0.95:
        timeout = rng.choice((None, 0.0, 0.05, 1.0))
        await cancelled_somewhere(client, lambda: client.flush(timeout), workload.cancelled, "flush")
    elif deliveries:
        await cancelled_somewhere(client, lambda: _wait(rng.choice(deliveries)), workload.cancelled, "wait")
    return 0


async def send_once(client: Client, workload: Workload, deliveries: list[Any] | None = None) -> None:
    """One record, by one of the ways to send one."""
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
        delivery.cancel()  # the handle, not the record


def _record(client: Client, workload: Workload) -> tuple[str, int, bytes | None, int | None]:
    """Topic, size, key and partition of one."""
    rng = client.rng
    topic = rng.choice(list(workload.topics))
    partition = rng.randrange(workload.topics[topic]) if rng.random() < 0.5 else None
    key = b"%d" % rng.randrange(5) if partition is None and rng.random() < 0.5 else None
    return topic, rng.choice(workload.sizes), key, partition


async def _wait(delivery: Any) -> None:
    if not delivery.cancelled():
        await delivery


async def cancelled_somewhere(
    client: Client, call: Callable[[], Awaitable[Any]], probability: float, kind: str, *, raises: bool = False
) -> bool:
    """Await a call; with that probability it is cancelled after some turns of the loop, or some time. True: it was.

    `raises`: let out what it raises of `KafkaError`; else that is written down.
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
    """Cancels the task at hand some time later, or never."""

    def __init__(self, rng: random.Random, probability: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.has_struck = False
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle | None = None
        if rng.random() < probability:
            turns, seconds = rng.randrange(_TURNS), rng.choice((0.0, rng.expovariate(1 / _SECONDS)))
            self._handle = self._loop.call_later(seconds, self._strike, 0) if seconds else self._loop.call_soon(self._strike, turns)

    def _strike(self, turns: int) -> None:
        if turns:
            self._handle = self._loop.call_soon(self._strike, turns - 1)
        else:
            self.has_struck = True
            self._task.cancel()

    async def end(self) -> None:
        """It strikes no more; if it struck when the call had come to its end, that falls here."""
        if self._handle is not None:
            self._handle.cancel()
        if self.has_struck and self._task.cancelling():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            while self._task.cancelling():
                self._task.uncancel()
