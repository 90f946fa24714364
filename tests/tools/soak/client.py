"""The program that sends, and tells what it holds: a JSON line for each sample, until its stdin ends.

    python -m tests.tools.soak.client --bootstrap-server S --topic T [--rate 50000] [--every 5]

Four tasks send, each at its part of the rate: records with a key, records without, `send_many`, and single records with an
awaited delivery. Their number does not change, so the loop has as many tasks at each sample. The last line is written after `flush`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import psutil
import uvloop

from aioproducer import Producer
from aioproducer.errors import KafkaError
from tests.tools.chaos.lines import die_with_parent, until_stdin_ends
from tests.tools.chaos.verifiable import Pace

from .judge import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

VALUE: Final = b"v" * 100
_KEYS: Final = [b"%d" % number for number in range(1000)]
_TICK: Final = 0.01  # seconds between two looks of a task at the clock
_WAITED_FOR: Final = 100.0  # records a second that are awaited one by one
_PARTS: Final = (("keyed", 0.4), ("keyless", 0.4), ("many", 0.2))  # of the rate
_RETRY: Final = 0.1  # seconds after a record was refused


class Client:
    """Sends at a rate, and counts its records."""

    def __init__(self, producer: Producer[Any, Any], topic: str) -> None:
        self.sent = self.acked = self.failed = 0
        self._producer = producer
        self._topic = topic
        self._began = time.monotonic()
        self._process = psutil.Process()

    def sample(self) -> Sample:
        """Return a sample of the current state."""
        return Sample(
            time.monotonic() - self._began,
            self._process.memory_info().rss,
            len(asyncio.all_tasks()),
            len(self._process.net_connections("tcp")),
            self.sent,
            self.acked,
            self.failed,
        )

    def tasks(self, rate: float) -> list[asyncio.Task[None]]:
        """Start the sending tasks."""
        ways: dict[str, Callable[[int], Coroutine[Any, Any, None]]] = {
            "keyed": self._keyed,
            "keyless": self._keyless,
            "many": self._many,
        }
        started = [
            asyncio.create_task(self._keep_on(ways[name], part * (rate - _WAITED_FOR)))
            for name, part in _PARTS
        ]
        return [*started, asyncio.create_task(self._keep_on(self._one, _WAITED_FOR, most=1))]

    async def _keep_on(
        self, send: Callable[[int], Coroutine[Any, Any, None]], rate: float, most: int = 1_000_000
    ) -> None:
        together = min(max(int(rate * _TICK), 1), most)
        pace = Pace(rate)
        while True:
            try:
                await send(together)
            except KafkaError:
                # a record that was refused; the judge counts it as failed
                self.sent += 1
                self.failed += 1
                await asyncio.sleep(_RETRY)
            await pace.keep(together)

    async def _keyed(self, count: int) -> None:
        for number in range(count):
            self._follow(await self._producer.send(self._topic, VALUE, _KEYS[number % len(_KEYS)]))

    async def _keyless(self, count: int) -> None:
        for _ in range(count):
            self._follow(await self._producer.send(self._topic, VALUE))

    async def _many(self, count: int) -> None:
        for delivery in await self._producer.send_many(self._topic, [VALUE] * count):
            self._follow(delivery)

    async def _one(self, count: int) -> None:
        for _ in range(count):
            delivery = await self._producer.send(self._topic, VALUE)
            self._follow(delivery)
            await asyncio.wait([delivery])

    def _follow(self, delivery: Any) -> None:
        self.sent += 1
        delivery.add_done_callback(self._ended)

    def _ended(self, delivery: Any) -> None:
        if delivery.exception() is None:
            self.acked += 1
        else:
            self.failed += 1


async def run(chosen: argparse.Namespace) -> None:
    """Send until stdin ends. Prints a sample now and then, and one at the end."""
    async with Producer(
        bootstrap_servers=chosen.bootstrap_server, **json.loads(chosen.options)
    ) as producer:
        client = Client(producer, chosen.topic)
        tasks = client.tasks(chosen.rate)
        stop = asyncio.create_task(until_stdin_ends())
        while not stop.done():
            ended, _ = await asyncio.wait(
                [stop, *tasks], timeout=chosen.every, return_when=asyncio.FIRST_COMPLETED
            )
            for task in ended - {stop}:
                raise RuntimeError("a task ended by itself") from task.exception()
            if not ended:
                _tell(client.sample())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await producer.flush()
        # the callbacks of the last records run before this task goes on
        await asyncio.sleep(0)
        _tell(client.sample())


def _tell(sample: Sample) -> None:
    print(json.dumps(asdict(sample)), flush=True)


def main() -> None:
    die_with_parent()
    parser = argparse.ArgumentParser(prog="python -m tests.tools.soak.client")
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rate", type=float, default=50_000, help="records a second, of all tasks")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two samples")
    parser.add_argument("--options", default="{}", help="of the producer, as JSON")
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
