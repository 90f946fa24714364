"""Compression: at once where it is short, in a worker thread where it would hold the loop. Order per broker is kept.

Knows nothing of requests; what is compressed goes back in the order in which it came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio

from aioproducer.model import Compression
from aioproducer.records.compression import compress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer.core.batch import Batch

__all__ = ["Encoder"]

# bytes that one drain may compress on the loop: about a millisecond, a quarter of the heartbeat's bar
_AT_ONCE: Final = {Compression.GZIP: 24_576, Compression.SNAPPY: 262_144, Compression.LZ4: 262_144, Compression.ZSTD: 131_072}


class _Job(NamedTuple):
    payloads: Sequence[bytes]
    batches: Sequence[Batch]
    lane: object
    done: Callable[[], None]


class Encoder:
    """Compresses the payloads of drained batches in place."""

    def __init__(self, codec: Compression) -> None:
        self._codec = codec
        self._limiter = anyio.CapacityLimiter(1)  # our own: the default one belongs to the user's web framework
        self._jobs: deque[_Job] = deque()
        self._lanes: dict[object, int] = {}
        self._wake = asyncio.Event()

    def encode(self, batches: Sequence[Batch], lane: object, done: Callable[[], None]) -> None:
        """Compress, then call `done`: before it returns, or from the worker's task, behind what came before on that lane."""
        if self._codec is Compression.NONE:
            done()
            return
        fresh = [batch for batch in batches if not batch.is_encoded]
        payloads = [bytes(batch.payload or b"") for batch in fresh]
        if lane not in self._lanes and sum(map(len, payloads)) <= _AT_ONCE[self._codec]:
            _put(fresh, _compress_all(self._codec, payloads))
            done()
            return
        self._lanes[lane] = self._lanes.get(lane, 0) + 1
        self._jobs.append(_Job(payloads, fresh, lane, done))
        self._wake.set()

    async def run(self) -> None:
        """The worker's task."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._jobs:
                job = self._jobs[0]
                packed = await anyio.to_thread.run_sync(_compress_all, self._codec, job.payloads, limiter=self._limiter)
                self._jobs.popleft()
                _put(job.batches, packed)
                self._lanes[job.lane] -= 1
                if not self._lanes[job.lane]:
                    del self._lanes[job.lane]
                job.done()

    def close(self) -> None:
        """The worker ended before its work: give back what it had, to those who know by now that it ended."""
        while self._jobs:
            self._jobs.popleft().done()


def _put(batches: Sequence[Batch], payloads: Sequence[bytes]) -> None:
    for batch, payload in zip(batches, payloads, strict=True):
        if not batch.ended:  # what expired meanwhile has let its payload go
            batch.payload = payload
            batch.is_encoded = True


def _compress_all(codec: Compression, payloads: Sequence[bytes]) -> list[bytes]:
    return [compress(codec, payload) for payload in payloads]
