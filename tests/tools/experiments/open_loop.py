"""Runs an open loop of sends, each at its time, to partitions of which one fails for a while."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from aioproducer.errors import KafkaError
from tests.simulation.history import End, History, Sent, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer import Producer

__all__ = ["OpenLoop", "Place"]

_TICK = 0.01  # seconds between two looks at what is due


@dataclass(frozen=True, slots=True)
class Place:
    """Holds the target of a record: a key's partition, a named one, or the producer's choice; and the number of that partition."""

    key: bytes | None = None
    named: int | None = None
    partition: int | None = None


@dataclass(slots=True)
class OpenLoop:
    """Runs the sends, and holds their results.

    Attributes:
        bad: the partition that fails for `seconds`, with `before` seconds before the fault and `after` seconds after it.
        begun, healed: the times at which the fault begins and ends.
        acknowledged: of the other partitions: (time, milliseconds since a record's time).
        refused: sends that raised.
        recovered: the time of the bad partition's first acknowledgement after the fault.
    """

    producer: Producer[Any, Any]
    topic: str
    size: int
    bad: int
    before: float
    seconds: float
    after: float
    history: History = field(init=False)
    begun: float = 0.0
    healed: float = 0.0
    recovered: float = float("inf")
    refused: int = 0
    acknowledged: list[tuple[float, float]] = field(default_factory=list)

    async def run(
        self,
        places: Sequence[Place],
        rate: float,
        begin: Callable[[], object],
        heal: Callable[[], object],
    ) -> None:
        """Send so many records a second, to the places alternately, then wait for all deliveries."""
        loop = asyncio.get_running_loop()
        self.history = History(loop.time)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._change(begin, heal))
            began, sent = loop.time(), 0
            for tick in range(int((self.before + self.seconds + self.after) / _TICK)):
                due = began + tick * _TICK
                await asyncio.sleep(due - loop.time())
                while sent < int((tick + 1) * _TICK * rate):
                    group.create_task(self._send(due, places[sent % len(places)]))
                    sent += 1
        await self.producer.flush()

    async def _change(self, begin: Callable[[], object], heal: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self.before)
        self.begun = loop.time()
        begin()
        await asyncio.sleep(self.seconds)
        self.healed = loop.time()
        heal()

    async def _send(self, due: float, place: Place) -> None:
        history = self.history
        call = history.next_call()
        sent = Sent(len(history.sent), self.topic, place.partition, call, call, due)
        history.sent.append(sent)
        try:
            delivery = await self.producer.send(
                self.topic, value_of(sent.number, self.size - 6), place.key, partition=place.named
            )
        except KafkaError as error:
            sent.refused = str(error)
            self.refused += 1
            return
        sent.queued_at = asyncio.get_running_loop().time()
        delivery.add_done_callback(partial(self._end, sent, due))

    def _end(self, sent: Sent, due: float, delivery: Any) -> None:
        now = delivery.get_loop().time()
        error = delivery.exception()
        if error is not None:
            sent.ends.append(End(now, error.partition, -1, str(error), error.persisted))
            return
        metadata = delivery.result()
        sent.ends.append(End(now, metadata.partition, metadata.offset))
        if metadata.partition != self.bad:
            self.acknowledged.append((now, (now - due) * 1000))
        elif self.healed:
            self.recovered = min(self.recovered, now)
