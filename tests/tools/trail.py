"""Counts the files and functions that one record passes: how far a reader has to look around.

    AIOPRODUCER_PURE=1 python -m tests.tools.trail [acknowledged | retry | memory] [--calls]

Three records go first, so that metadata and codecs are there. Then one record is sent and acknowledged, on a `FakeCluster` in memory;
`retry`: after one NOT_LEADER_OR_FOLLOWER; `memory`: after a wait for `buffer_memory`. Each call of a function of the package outside
`testing/` counts, but what the fake calls. A move is a call in another file than the call before it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import pathlib
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import aioproducer
from aioproducer import Producer
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import FrameType

PACKAGE: Final = pathlib.Path(aioproducer.__file__).parent
TOPIC: Final = "orders"


class Trail:
    """Collects calls in order: file and function.

    Attributes:
        calls: file within the package, and qualified name.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call, as `sys.setprofile`'s function."""
        if (
            event == "call"
            and (file := _file_of(frame))
            and not file.startswith("testing/")
            and not _is_the_fakes(frame)
        ):
            self.calls.append((file, frame.f_code.co_qualname))

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Collect calls while the block runs."""
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)

    @property
    def files(self) -> Counter[str]:
        """Return the number of calls by file."""
        return Counter(file for file, _ in self.calls)

    @property
    def moves(self) -> int:
        """Return the number of calls in another file than the call before."""
        return sum(
            one[0] != other[0] for one, other in zip(self.calls, self.calls[1:], strict=False)
        )


def _file_of(frame: FrameType) -> str:
    path = pathlib.Path(frame.f_code.co_filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""


def _is_the_fakes(frame: FrameType) -> bool:
    """Return whether the fake cluster makes this call; its network only carries bytes."""
    caller: FrameType | None = frame.f_back
    while caller is not None:
        file = _file_of(caller)
        if file.startswith("testing/") and file != "testing/memory.py":
            return True
        caller = caller.f_back
    return False


async def acknowledged(_: FakeCluster, producer: Producer[Any, Any], trail: Trail) -> None:
    """Send one record and wait for it."""
    with trail.followed():
        await producer.send_and_wait(TOPIC, b"value", b"key")


async def retry(cluster: FakeCluster, producer: Producer[Any, Any], trail: Trail) -> None:
    """Send one record that the leader refuses once."""
    for _ in range(2):  # the first one compiles the codecs of the answer
        cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
        trail.calls.clear()
        await acknowledged(cluster, producer, trail)


async def memory(cluster: FakeCluster, producer: Producer[Any, Any], trail: Trail) -> None:
    """Send one record that waits until another one, which takes all of `buffer_memory`, is acknowledged."""
    cluster.delay("Produce", 0.05)
    large = b"v" * (producer.config.buffer_memory * 3 // 4)
    delivery = await producer.send(TOPIC, large, b"key")
    with trail.followed():
        await producer.send_and_wait(TOPIC, large, b"key")
    await delivery


CASES: Final[dict[str, Callable[[FakeCluster, Producer[Any, Any], Trail], Awaitable[None]]]] = {
    "acknowledged": acknowledged,
    "retry": retry,
    "memory": memory,
}


async def followed(case: str) -> Trail:
    """Return the calls of a case."""
    trail = Trail()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic(TOPIC, 1)
        options = {"buffer_memory": 2**20, "max_request_size": 2**20} if case == "memory" else {}
        async with Producer(**cluster.client_options, **options) as producer:
            for _ in range(3):
                await producer.send_and_wait(TOPIC, b"value", b"key")
            await CASES[case](cluster, producer, trail)
    return trail


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.trail", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "cases", nargs="*", default=list(CASES), metavar="CASE", help=", ".join(CASES)
    )
    parser.add_argument("--calls", action="store_true", help="print each call, too")
    chosen = parser.parse_args()
    if unknown := set(chosen.cases) - CASES.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    for case in chosen.cases:
        trail = asyncio.run(followed(case))
        in_engine = sum(file.startswith("engine/") for file in trail.files)
        functions = len(set(trail.calls))
        print(
            f"{case}: {len(trail.files)} files, {in_engine} of them in engine/; {functions} functions, {trail.moves} moves"
        )
        if chosen.calls:
            print(*(f"  {file}: {name}" for file, name in trail.calls), sep="\n")


if __name__ == "__main__":
    main()
