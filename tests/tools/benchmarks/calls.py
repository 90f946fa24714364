"""Counts the Python calls of one fast send, by `sys.setprofile`.

C functions do not count. Each entry and each resumption of a coroutine counts.

    python -m tests.tools.benchmarks.calls

`calls_per_send` drives each `send` by hand and leaves out those that waited, as they took the slow path.
"""

from __future__ import annotations

import collections
import sys
import types
from typing import TYPE_CHECKING, Any

import uvloop

from tests.tools.benchmarks.broker import real_broker
from tests.tools.benchmarks.clients import aioproducer
from tests.tools.benchmarks.workloads import PARTITIONS, VALUE, few_keys

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable

    from tests.tools.benchmarks.workloads import Client

TOPIC = "calls"
BAR = 4


@types.coroutine
def counted(start: Callable[[], Awaitable[object]], counts: collections.Counter[int]) -> Generator[Any, Any, None]:
    """Run the coroutine of `start`. If it ends without waiting, note the number of its Python calls."""
    calls = 0

    def note(_: types.FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    steps: Generator[Any, Any, object] | None = None
    sys.setprofile(note)
    try:
        steps = iter(start().__await__())
        waits_for = next(steps)
    except StopIteration:
        sys.setprofile(None)
        counts[calls - 1] += 1  # without our own `start`
        return
    finally:
        sys.setprofile(None)
    yield waits_for
    yield from steps


async def calls_per_send(client: Client, topic: str, keys: Iterable[bytes]) -> collections.Counter[int]:
    """Return, for each number of Python calls, how many fast sends made as many."""
    counts: collections.Counter[int] = collections.Counter()
    send = client.send
    for key in keys:
        await counted(lambda key=key: send(topic, VALUE, key), counts)  # type: ignore[misc]
    await client.flush()
    return counts


async def run() -> collections.Counter[int]:
    async with real_broker() as broker:
        await broker.create_topic(TOPIC, PARTITIONS)
        async with aioproducer(broker.bootstrap_servers) as client:
            await client.send_and_wait(TOPIC, VALUE, b"the topic is known from here on")
            return await calls_per_send(client, TOPIC, few_keys(0, 20_000))


def main() -> int:
    counts = uvloop.run(run())
    usual = counts.most_common(1)[0][0]
    within = sum(many for calls, many in counts.items() if calls <= BAR) / counts.total()
    print(f"{counts.total():,} sends that did not wait; calls: {dict(sorted(counts.items()))}")
    print(f"usually {usual}; {within:.1%} within {BAR}: {'met' if usual <= BAR else 'not met'}")
    return 0 if usual <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
