"""Writes the lines of a program under chaos: JSON with the names and fields of Kafka's `VerifiableProducer`.

Fields that Kafka's lines do not have: `queued`, the time when a send returned; `partition`, `persisted`, `cause` and `history` of a failed
record; records that were not queued (`producer_send_refused`); transactions, and a record's `attempt`. The module also ends such a
program when its stdin ends, so that it never outlives the process that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer import Delivery

__all__ = ["Lines", "die_with_parent", "telling", "until_stdin_ends"]

_FLUSH_SECONDS: Final = 0.2
_END_SECONDS: Final = 300.0
_PR_SET_PDEATHSIG: Final = 1


class Lines:
    """Writes a line for each event, and counts the records."""

    def __init__(self) -> None:
        self.sent = self.acked = self.failed = 0

    def say(self, name: str, **facts: object) -> None:
        """Buffer one line; `flush` writes it."""
        sys.stdout.write(
            json.dumps({"timestamp": _now(), "name": name, **facts}, separators=(",", ":")) + "\n"
        )

    def flush(self) -> None:
        """Write all buffered lines, as a killed process would lose them."""
        sys.stdout.flush()

    def follow(self, delivery: Delivery, value: bytes, key: bytes | None, **facts: object) -> None:
        """Write a line when a record's delivery ends."""
        self.sent += 1
        facts |= {"key": key and key.decode(), "value": value.decode(), "queued": _now()}
        delivery.add_done_callback(lambda ended: self._ended(ended, facts))

    def refused(self, topic: str, value: bytes, error: BaseException) -> None:
        """Write a line for a record that was not queued."""
        self.sent += 1
        self.failed += 1
        self.say(
            "producer_send_refused",
            topic=topic,
            value=value.decode(),
            exception=type(error).__name__,
            message=str(error),
        )

    def _ended(self, delivery: Any, facts: dict[str, object]) -> None:
        error = delivery.exception()
        if error is None:
            told = delivery.result()
            self.acked += 1
            self.say(
                "producer_send_success",
                **facts,
                topic=told.topic,
                partition=told.partition,
                offset=told.offset,
            )
            return
        self.failed += 1
        what = {
            "exception": type(error).__name__,
            "message": str(error),
            "persisted": str(error.persisted),
        }
        more = {"cause": repr(error.__cause__), "history": error.explain()}
        self.say(
            "producer_send_error",
            **facts,
            topic=error.topic,
            partition=error.partition,
            **what,
            **more,
        )


def _now() -> int:
    return int(time.time() * 1000)


def die_with_parent() -> None:
    """Let the system kill this process when its parent ends, even if this process is stopped by then. Only some systems can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == 1:  # it has ended already
            sys.exit("the parent is gone")


async def until_stdin_ends() -> None:
    """Wait until the stage closes stdin, or dies. The process then has some minutes to end before it is killed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(1024):
        pass
    loop.call_later(_END_SECONDS, os._exit, 3)


@contextlib.asynccontextmanager
async def telling(throughput: int) -> AsyncIterator[Lines]:
    """Give lines that are written now and then, and the tool's data at the end. If the block raises, no tool data are written."""
    lines, start = Lines(), time.monotonic()
    flusher = asyncio.create_task(_flushing(lines))
    try:
        yield lines
        lines.say("shutdown_complete")
        rate = round(lines.acked / (time.monotonic() - start), 1)
        counts = {"sent": lines.sent, "acked": lines.acked, "failed": lines.failed}
        lines.say("tool_data", **counts, target_throughput=throughput, avg_throughput=rate)
    finally:
        flusher.cancel()
        lines.flush()


async def _flushing(lines: Lines) -> None:
    while True:
        await asyncio.sleep(_FLUSH_SECONDS)
        lines.flush()
