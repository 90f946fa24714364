"""A model of a cluster: coordinators of transactions, offsets of groups, and the rows of one topic, without bytes and connections.

It answers as `testing.transactions` does, and the tests run the same stories on both. A history on it takes a tenth of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import heapq
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ProducerFenced, TransactionMisuse, TransactionTimeout, broker_error
from aioproducer.model import Position, PreparedTransaction

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from tests.tools.sink_histories.process import Process

__all__ = ["Config", "Model", "ModelProducer", "ModelResolver"]

_WAIT: Final = 60.0
"""Of a call, as `max_block_ms` has it."""


class State(enum.Enum):
    EMPTY = enum.auto()
    ONGOING = enum.auto()
    PREPARING = enum.auto()
    COMPLETE = enum.auto()


@dataclass
class Transaction:
    """The coordinator's state of one transactional id."""

    producer_id: int
    epoch: int = 0
    state: State = State.EMPTY
    is_commit: bool = False
    timeout: float = 60.0
    expires_at: float = 0.0
    rows: list[Any] = field(default_factory=list)
    offsets: dict[str, Position] = field(default_factory=dict)


class Model:
    """One cluster.

    Args:
        version: of the transaction protocol.
        rng: chooses how long markers take.
        marker_delay: the longest time between an end and its markers, in seconds.
        rotates: the chance that InitProducerId gives another producer id, as when the epochs are used up.
    """

    def __init__(
        self, version: int, rng: random.Random, marker_delay: float = 0.0, rotates: float = 0.0
    ) -> None:
        self.version = version
        self.committed: list[Any] = []
        self.aborted: list[Any] = []
        self.known: dict[str, Transaction] = {}
        self._rng = rng
        self._marker_delay = marker_delay
        self._rotates = rotates
        self._ids = itertools.count(1)
        self._offsets: dict[str, Position] = {}
        self._pending: dict[str, list[Transaction]] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._time = asyncio.get_running_loop().time

    # --- time

    def now(self) -> float:
        """The time, after everything that is due until then has happened."""
        now = self._time()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()
        return now

    def _at(self, time: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time, next(self._numbers), then))

    # --- the coordinator of transactions

    def init(self, transactional_id: str, timeout: float) -> tuple[int, int]:
        """InitProducerId. CONCURRENT_TRANSACTIONS while another transaction ends."""
        self.now()
        found = self.known.get(transactional_id)
        if found is None:
            found = self.known[transactional_id] = Transaction(next(self._ids), epoch=-1)
        if found.state is State.ONGOING:
            self._fence(found)
        if found.state is State.PREPARING:
            raise broker_error("CONCURRENT_TRANSACTIONS")
        if self._rotates and self._rng.random() < self._rotates:
            found.producer_id, found.epoch = next(self._ids), 0
        else:
            found.epoch += 1
        found.state, found.timeout = State.EMPTY, timeout
        return found.producer_id, found.epoch

    def add(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        """The transaction of a record or an offset that arrives; the first one begins it."""
        now = self.now()
        found = self._held(transactional_id, producer_id, epoch)
        if found.state is State.PREPARING:
            raise broker_error("CONCURRENT_TRANSACTIONS")
        if found.state is not State.ONGOING:
            found.state, found.expires_at = State.ONGOING, now + found.timeout
            number = epoch
            self._at(found.expires_at, lambda: self._expire(found, producer_id, number))
        return found

    def offset(self, transaction: Transaction, group: str, position: Position) -> None:
        """TxnOffsetCommit."""
        if group not in transaction.offsets:
            self._pending.setdefault(group, []).append(transaction)
        transaction.offsets[group] = position

    def end(self, prepared: PreparedTransaction, *, is_commit: bool) -> None:
        """EndTxn, from whichever connection."""
        self.now()
        transactional_id, producer_id, epoch, version = prepared
        if version == 1:
            found, is_again = self._held(transactional_id, producer_id, epoch), True
        else:
            found = self._mapped(transactional_id, producer_id)
            is_again = epoch == found.epoch - 1
            if not (is_again or epoch == found.epoch) or (
                found.state in {State.EMPTY, State.ONGOING}
                if is_again
                else found.state is State.PREPARING
            ):
                raise broker_error("PRODUCER_FENCED")
        if found.state is State.ONGOING:
            self._end(found, is_commit=is_commit)
        elif is_again and found.is_commit is is_commit and found.state is not State.EMPTY:
            if found.state is State.PREPARING:
                raise broker_error("CONCURRENT_TRANSACTIONS")
        elif version == 1 or is_again or is_commit:
            raise broker_error("INVALID_TXN_STATE")
        else:
            self._end(found, is_commit=False)

    def _mapped(self, transactional_id: str, producer_id: int) -> Transaction:
        found = self.known.get(transactional_id)
        if found is None or found.producer_id != producer_id:
            raise broker_error("INVALID_PRODUCER_ID_MAPPING")
        return found

    def _held(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        found = self._mapped(transactional_id, producer_id)
        if found.epoch != epoch:
            raise broker_error("PRODUCER_FENCED")
        return found

    def _expire(self, transaction: Transaction, producer_id: int, epoch: int) -> None:
        if transaction.state is State.ONGOING and (transaction.producer_id, transaction.epoch) == (
            producer_id,
            epoch,
        ):
            self._fence(transaction)

    def _fence(self, transaction: Transaction) -> None:
        if self.version == 1:
            transaction.epoch += 1
        self._end(transaction, is_commit=False)

    def _end(self, transaction: Transaction, *, is_commit: bool) -> None:
        transaction.state, transaction.is_commit = State.PREPARING, is_commit
        if self.version == 2:
            transaction.epoch += 1
        now, last = self._time(), 0.0
        for group in list(transaction.offsets):
            delay = self._rng.random() * self._marker_delay
            last = max(last, delay)
            self._after(now + delay, lambda group=group: self._mark(transaction, group))
        self._after(now + last, lambda: self._complete(transaction))

    def _after(self, time: float, then: Callable[[], None]) -> None:
        if self._marker_delay:
            self._at(time, then)
        else:
            then()

    def _mark(self, transaction: Transaction, group: str) -> None:
        self._pending[group].remove(transaction)
        position = transaction.offsets.pop(group)
        if transaction.is_commit:
            self._offsets[group] = position

    def _complete(self, transaction: Transaction) -> None:
        (self.committed if transaction.is_commit else self.aborted).extend(transaction.rows)
        transaction.rows.clear()
        transaction.state = State.COMPLETE

    # --- the coordinator of groups

    def read(self, group: str, *, stable: bool) -> Position | None:
        """OffsetFetch. UNSTABLE_OFFSET_COMMIT while a transaction holds the offset."""
        self.now()
        if stable and self._pending.get(group):
            raise broker_error("UNSTABLE_OFFSET_COMMIT")
        return self._offsets.get(group)


@dataclass(frozen=True)
class Config:
    """What the ledger changes of a producer's options."""

    transactional_id: str | None = None
    transaction_timeout_ms: float = 60_000

    def replace(self, **options: Any) -> Config:
        return replace(self, **options)


async def _patiently(process: Process, call: Callable[[], Any]) -> Any:
    """The answer, as soon as it is no retriable error. The answer may be lost, and then it is not known what it was."""
    await process.step()
    waited, pause = 0.0, 0.02
    while True:
        try:
            answer = call()
            break
        except Exception as error:
            if not getattr(error, "retriable", False):
                await process.passed()
                raise
            if waited > _WAIT:
                raise TransactionTimeout("a call did not end in time") from error
        await asyncio.sleep(pause)
        waited, pause = waited + pause, min(pause * 2, 5.0)
    await process.passed()
    if process.loses():
        raise TransactionTimeout("an answer was lost")
    return answer


class ModelResolver:
    """Stands for `TransactionResolver`, in one process."""

    def __init__(self, model: Model, process: Process) -> None:
        self._model = model
        self._process = process

    async def commit(self, prepared: PreparedTransaction) -> None:
        await _patiently(self._process, lambda: self._model.end(prepared, is_commit=True))

    async def abort(self, prepared: PreparedTransaction) -> None:
        await _patiently(self._process, lambda: self._model.end(prepared, is_commit=False))

    async def committed_offset(
        self, group: str, topic: str, *, stable: bool = True
    ) -> Position | None:
        return await _patiently(self._process, lambda: self._model.read(group, stable=stable))


class ModelProducer:
    """Stands for `Producer`: the calls that the sink makes."""

    def __init__(self, model: Model, process: Process, config: Config) -> None:
        assert config.transactional_id
        self.config = config
        self._model = model
        self.process = process
        self._id = config.transactional_id
        self._holder = (-1, -1)
        self._is_granted = self._is_open = self._has_begun = self._is_prepared = False

    async def start(self) -> None:
        """A connection; the producer id comes later."""

    async def init_transactions(self, transactional_id: str) -> None:
        self._id = transactional_id
        self._is_granted = self._is_open = self._has_begun = self._is_prepared = False
        await self._init()

    async def _init(self) -> None:
        self._holder = await _patiently(
            self.process,
            lambda: self._model.init(self._id, self.config.transaction_timeout_ms / 1000),
        )
        self._is_granted = True

    async def begin_transaction(self) -> None:
        if not self._is_granted:
            await self._init()
        self._is_open = True

    async def _add(self, then: Callable[[Transaction], None]) -> None:
        try:
            await _patiently(self.process, lambda: then(self._model.add(self._id, *self._holder)))
        except Exception as error:
            raise self._fatal(error) from error
        self._has_begun = True

    async def write(self, rows: Iterable[Any]) -> None:
        """Send rows, and wait until they are acknowledged."""
        await self._add(lambda transaction: transaction.rows.extend(rows))

    async def send_position_to_transaction(
        self, job: str, number: int, cursor: str = "", *, topic: str
    ) -> None:
        await self._add(
            lambda transaction: self._model.offset(transaction, job, Position(number, cursor))
        )

    async def prepare_transaction(self) -> PreparedTransaction:
        if not self._has_begun:
            raise TransactionMisuse("the transaction is empty")
        await self.process.step()
        self._is_prepared = True
        return self._prepared()

    def _prepared(self) -> PreparedTransaction:
        return PreparedTransaction(self._id, *self._holder, self._model.version)

    async def commit_transaction(self) -> None:
        try:
            await _patiently(
                self.process, lambda: self._model.end(self._prepared(), is_commit=True)
            )
        except Exception as error:
            raise self._fatal(error) from error
        self._is_open = False

    async def abort_transaction(self) -> None:
        if not self._is_open:
            raise TransactionMisuse("no transaction is open")
        self._is_open = False
        if self._has_begun:
            try:
                await _patiently(
                    self.process, lambda: self._model.end(self._prepared(), is_commit=False)
                )
            except Exception as error:
                raise self._fatal(error) from error

    async def stop(self) -> None:
        if self._is_open and self._has_begun and not self._is_prepared:
            self._is_open = False
            # As the producer's `stop`, which leaves the rest to the time-out.
            with contextlib.suppress(Exception):
                await _patiently(
                    self.process, lambda: self._model.end(self._prepared(), is_commit=False)
                )

    @staticmethod
    def _fatal(error: Exception) -> Exception:
        return ProducerFenced(f"fenced: {error}") if getattr(error, "name", "") != "" else error
