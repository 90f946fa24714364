"""The program that sends, as Kafka's system tests have one (`org.apache.kafka.tools.VerifiableProducer`), with our producer.

    python -m tests.tools.chaos.verifiable --bootstrap-server S --topic T [--throughput 2000] [--options JSON]

Several tasks send values, which are numbered in the order of all calls, some with keys and some without, until its stdin ends; then it
stops in good order. It runs on uvloop; the one that copies runs on asyncio's own loop. Knows nothing of faults and judges.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any, Final

import uvloop

from aioproducer import Producer
from aioproducer.errors import KafkaError

from .lines import die_with_parent, telling, until_stdin_ends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .lines import Lines

OPTIONS: Final[dict[str, Any]] = {
    "enable_idempotence": True,
    "linger_ms": 5,
    "request_timeout_ms": 5_000,  # after this time a request to a paused leader is sent to another broker
    "metadata_max_age_ms": 3_000,  # so that the producer soon sees new partitions
    "allow_auto_create_topics": False,  # the fault that deletes a topic creates it again
}
_TOGETHER: Final = 10  # records between two looks at the clock
_BEHIND: Final = 1.0  # a delayed task catches up on at most so many seconds of records
_KEYS: Final = 97
_TASKS: Final = 4


async def send_on(
    producer: Producer[bytes, bytes], lines: Lines, topic: str, numbers: Iterator[int], pace: Pace
) -> None:
    """Send numbered values for ever, as one task."""
    for count in itertools.count(1):
        number = next(numbers)
        value = b"%d" % number
        key = b"%d" % (number % _KEYS) if number % 2 else None
        try:
            delivery = await producer.send(topic, value, key)
        except (KafkaError, asyncio.CancelledError) as error:
            lines.refused(topic, value, error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            lines.follow(delivery, value, key)
        if count % _TOGETHER == 0:
            await pace.keep(_TOGETHER)


class Pace:
    """Keeps a rate, in records a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time()

    async def keep(self, records: int) -> None:
        """Wait until `records` more records are due."""
        self._due = max(self._due + records / self._rate, self._loop.time() - _BEHIND)
        await asyncio.sleep(self._due - self._loop.time())


async def run(chosen: argparse.Namespace) -> None:
    """Start the producer, send until stdin ends, and wait for all deliveries."""
    options = OPTIONS | json.loads(chosen.options)
    async with (
        telling(chosen.throughput) as lines,
        Producer(bootstrap_servers=chosen.bootstrap_server, **options) as producer,
    ):
        lines.say("startup_complete")
        numbers, rate = itertools.count(), chosen.throughput / _TASKS
        tasks = [
            asyncio.create_task(send_on(producer, lines, chosen.topic, numbers, Pace(rate)))
            for _ in range(_TASKS)
        ]
        stop = asyncio.create_task(until_stdin_ends())
        await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in (one for one in ended if not isinstance(one, asyncio.CancelledError)):
            raise RuntimeError("a task ended by itself") from error
        await producer.flush()


def main() -> None:
    die_with_parent()
    parser = argparse.ArgumentParser(prog="python -m tests.tools.chaos.verifiable")
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument(
        "--throughput", type=int, default=2_000, help="records a second, of all tasks"
    )
    parser.add_argument("--options", default="{}", help="of the producer, as JSON")
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
