"""Encodes drained batches: small ones at once, others in slices on the event loop or in a worker thread.

To encode is mostly to compress. For a broker that does not take record batches, it is also to write another format
(`engine.sender.record_formats`). The order of the requests per connection is kept.

A thread waits for the interpreter's lock after each compressed batch: up to 5 ms beside a task that sends without a pause. A request
of six batches would wait for 30 to 60 ms, and records for more than 100 ms, as such a thread compresses less than the task sends. So each
event-loop iteration encodes a bounded number of bytes. The thread encodes the batches that are larger than that.

While requests wait behind the one that is encoded, no task gets its next slice of the loop budget. Otherwise a loop that sends more than is
encoded would fill `buffer_memory`, and each record would wait for all of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.sender.parcel import NEWEST, Parcel
from aioproducer.engine.sender.record_formats import pack
from aioproducer.errors import KafkaError
from aioproducer.model import Compression

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence

    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.engine.append.loop_budget import DrainSchedule
    from aioproducer.engine.tasks.supervisor import GuardedLoop
    from aioproducer.records.compression import CompressionRatios

# Bytes that one event-loop iteration may compress, however many requests it makes, or twice as many in every other one. That takes half
# a millisecond to two, the time of a slice of sends. With a third of the bytes for gzip, a loop of sends made more than it compressed, and
# its records waited ever longer. With the others, each batch of `batch_max_size` is compressed here, too.
_AT_ONCE: Final = {
    # Bytes to write in another format.
    Compression.NONE: 16_384,
    Compression.GZIP: 73_728,
    Compression.SNAPPY: 262_144,
    Compression.LZ4: 262_144,
    Compression.ZSTD: 262_144,
}
# The levels for which these limits hold. The other levels take longer.
_QUICK: Final[Mapping[Compression, Container[int]]] = {
    Compression.GZIP: range(-1, 7),
    # Java's number for the fast compressor.
    Compression.LZ4: (9,),
    Compression.ZSTD: range(-131_072, 4),
}


class _Job:
    """Holds the batches of one request that are to be encoded.

    Attributes:
        in_slices: the event loop encodes them, one after the other.
        packed: the encoded payloads so far, or the errors in place of them.
    """

    __slots__ = ("batches", "connection", "done", "in_slices", "magic", "packed", "parcels")

    def __init__(
        self,
        batches: Sequence[ProducerBatch],
        magic: int,
        connection: object,
        done: Callable[[], None],
        *,
        in_slices: bool,
    ) -> None:
        self.parcels = [Parcel.of(batch) for batch in batches]
        self.packed: list[bytes | KafkaError] = []
        self.magic = magic
        self.batches = batches
        self.connection = connection
        self.done = done
        self.in_slices = in_slices


def _worker_thread() -> Callable[..., Awaitable[Any]]:
    """Return what runs a function in a thread, one at a time."""
    # The constructor of a producer has loaded it, and the import of `Producer` does not.
    import anyio

    # Not the default limiter of anyio: that one belongs to the user's web framework.
    return partial(anyio.to_thread.run_sync, limiter=anyio.CapacityLimiter(1))


class BatchCompressor:
    """Encodes the payloads of drained batches in place.

    Args:
        schedule: holds back the tasks' next slices while requests wait.
        codec: of every batch.
        level: of compression; None: the codec's default.
        ratios: gets the compression ratio of each batch.
        refuse: ends a batch that cannot be written in the format that it needs.
    """

    def __init__(
        self,
        loop: AbstractEventLoop | GuardedLoop,
        schedule: DrainSchedule,
        codec: Compression,
        level: int | None,
        ratios: CompressionRatios,
        refuse: Callable[[ProducerBatch, KafkaError], object],
    ) -> None:
        self._loop = loop
        self._schedule = schedule
        self._codec = codec
        self._compresses = codec is not Compression.NONE
        self._ratios = ratios
        self._refuse = refuse
        self._level = level
        self._is_slice_due = False
        self._at_once = _AT_ONCE[codec] if level is None or level in _QUICK[codec] else 0
        # Bytes encoded in this event-loop iteration.
        self._spent = 0
        # Runs a function in the worker thread.
        self._in_thread = _worker_thread() if self._compresses else None
        self._jobs: deque[_Job] = deque()
        self._lanes: dict[object, int] = {}
        self._wake = asyncio.Event()

    def encode(
        self,
        batches: Sequence[ProducerBatch],
        magic: int,
        connection: object,
        done: Callable[[], None],
    ) -> None:
        """Encode `batches` in the format `magic`, then call `done`.

        `done` is called before this method returns, or later by the event loop or the worker's task. Requests of one connection keep
        their order.
        """
        # The batches that are not in this format yet, or not compressed.
        due = [
            batch
            for batch in batches
            if batch.magic != magic or (self._compresses and not batch.is_encoded)
        ]
        if not due and connection not in self._lanes:
            done()
            return
        sizes = [batch.raw_size for batch in due]
        if connection not in self._lanes and self._spend(sum(sizes), magic):
            self._put(due, magic, _pack_all(map(Parcel.of, due), magic, self._codec, self._level))
            done()
            return
        self._add(
            _Job(due, magic, connection, done, in_slices=max(sizes, default=0) <= self._most(magic))
        )

    def _add(self, job: _Job) -> None:
        """Add a job, and start it if it is the only one."""
        self._jobs.append(job)
        self._lanes[job.connection] = self._lanes.get(job.connection, 0) + 1
        self._go_on()
        self._schedule.hold(is_held=len(self._jobs) > 1)

    def _most(self, magic: int) -> int:
        """Return the number of bytes that one event-loop iteration may encode in the format `magic`."""
        return self._at_once if magic == NEWEST else min(self._at_once, _AT_ONCE[Compression.NONE])

    def _spend(self, size: int, magic: int) -> bool:
        """Count `size` bytes for this event-loop iteration. Returns False, and counts none, if they are too many for it."""
        if self._spent + size > self._most(magic):
            return False
        if not self._spent:
            self._loop.call_soon(self._new_round)
        self._spent += size
        return True

    def _new_round(self) -> None:
        self._spent = 0

    def _go_on(self) -> None:
        """Start to encode the oldest job, in the event loop or in the worker."""
        if not self._jobs:
            return
        if not self._jobs[0].in_slices:
            self._wake.set()
        elif not self._is_slice_due:
            self._loop.call_soon(self._encode_slice)
            self._is_slice_due = True

    def _encode_slice(self) -> None:
        self._is_slice_due = False
        job = self._jobs[0] if self._jobs else None
        if job is None or not job.in_slices:
            return
        for batch, parcel in zip(
            job.batches[len(job.packed) :], job.parcels[len(job.packed) :], strict=True
        ):
            if not self._spend(batch.raw_size, job.magic):
                break
            job.packed.append(_pack(parcel, job.magic, self._codec, self._level))
        else:
            self._end(job)
        self._go_on()

    def _end(self, job: _Job) -> None:
        self._put(job.batches, job.magic, job.packed)
        self._jobs.popleft()
        self._leave_lane(job.connection)
        self._schedule.hold(is_held=len(self._jobs) > 1)
        job.done()

    def _leave_lane(self, connection: object) -> None:
        self._lanes[connection] -= 1
        if not self._lanes[connection]:
            del self._lanes[connection]

    async def run(self) -> None:
        """Run the worker: encode in a thread all jobs that the event loop does not encode. The body of its task."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._jobs and not self._jobs[0].in_slices:
                job = self._jobs[0]
                # Without compression, only batches in another format come here.
                in_thread = self._in_thread = self._in_thread or _worker_thread()
                job.packed = await in_thread(
                    _pack_all, job.parcels, job.magic, self._codec, self._level
                )
                self._end(job)
            self._go_on()

    def close(self) -> None:
        """Call `done` of all jobs that are left, without encoding them.

        The runtime calls this after the worker ended, when the batches have failed.
        """
        while self._jobs:
            self._jobs.popleft().done()

    def _put(
        self, batches: Sequence[ProducerBatch], magic: int, packed: Sequence[bytes | KafkaError]
    ) -> None:
        for batch, payload in zip(batches, packed, strict=True):
            # An expired batch has dropped its payload.
            if batch.ended:
                continue
            if isinstance(payload, KafkaError):
                self._refuse(batch, payload)
                continue
            batch.payload, batch.header = payload, None
            batch.magic, batch.is_encoded = magic, True
            self._ratios.observe(batch.queue.topic, self._codec, len(payload) / batch.raw_size)


def _pack_all(
    parcels: Iterable[Parcel], magic: int, codec: Compression, level: int | None
) -> list[bytes | KafkaError]:
    return [_pack(parcel, magic, codec, level) for parcel in parcels]


def _pack(parcel: Parcel, magic: int, codec: Compression, level: int | None) -> bytes | KafkaError:
    try:
        return pack(parcel, magic, codec, level)
    except KafkaError as error:
        return error
    except Exception as error:
        failed = KafkaError(
            f"{codec.name.lower()} could not compress a batch: {type(error).__name__}"
        )
        failed.__cause__ = error
        return failed
