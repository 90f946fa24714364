"""Runs transactions: sends the request that is due, one at a time, and wakes the calls that wait.

1. One task sends the requests. Records are sent meanwhile, also for partitions that are part of the transaction already (exceeds
   SEN-01).
2. A call waits for `max_block_ms` at most. The operation continues after that, and the same call waits for it again (TXN-03).
3. The state also controls other parts. The fast path is open within transactions only. A transaction that is given up drops its unsent
   records. Partitions are held until they are added. The Sender gets each new producer id and epoch.

The state, and the effect of an answer, are in `core.transactions.transaction`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import anyio

from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.core.retries import Backoff
from aioproducer.core.transactions.transaction import State
from aioproducer.core.transactions.transaction_errors import Course, Rpc
from aioproducer.engine.transactions import requests
from aioproducer.errors import (
    BrokerError,
    ConnectionLost,
    TransactionAbortable,
    TransactionAborted,
    TransactionTimeout,
    TransportError,
)
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from aioproducer.core.transactions.transaction import Operation, Request, Transaction
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.transactions.requests import TransactionResponse
    from aioproducer.engine.transactions.transaction_gate import TransactionGate
    from aioproducer.engine.wiring import EngineParts
    from aioproducer.errors import TransactionError
    from aioproducer.model import ConsumerGroupMetadata, OffsetAndMetadata, PreparedTransaction
    from aioproducer.net.cluster import BrokerNode


# Seconds of backoff: Kafka's value for CONCURRENT_TRANSACTIONS (TXN-11).
_QUICK: Final = 0.02
# Seconds to wait for a connection.
_PATIENCE: Final = 3.0
_GIVEN_UP: Final = (State.ABORTABLE_ERROR, State.ABORTING, State.FATAL_ERROR)
_ENDING: Final = (State.COMMITTING, State.ABORTING)
_FLUSHING: Final = (State.PREPARING, *_ENDING)
# A prepared transaction is another client's to end, and is not among them.
_OPEN: Final = (State.IN_TRANSACTION, State.PREPARING, State.ABORTABLE_ERROR)
# Without these, no transaction can end: the producer learns that at its start, not at its first commit.
_NEEDED: Final = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN)
_NO_COORDINATOR: Final = "Check that the brokers' transaction coordinator works (the topic __transaction_state), or start(wait=False)."


def _placed(place: str, error: BrokerError) -> BrokerError:
    """Return an error that names the partition that it is about."""
    return (
        BrokerError(error.error, f"{place}: {error.message}" if error.message else place)
        if place
        else error
    )


class TransactionManager:
    """Runs the transactions of one producer; `run` is the body of its task.

    Args:
        gate: has the state, and what the other parts report to it.
        parts: the other parts of the producer.

    Attributes:
        transaction: the state of the transactions.
    """

    def __init__(self, context: EngineContext, gate: TransactionGate, parts: EngineParts) -> None:
        self.transaction: Transaction = gate.transaction
        self._config = context.config
        self._supervisor = context.supervisor
        self._recorder = context.instruments.recorder
        self._chance = context.chance
        self._backoff = context.backoff
        self._quick = Backoff(min(_QUICK, context.backoff.first), context.backoff.first)
        self._gate = gate
        self._cluster = parts.cluster
        self._partition_queues = parts.partition_queues
        # Keeps the error of the latest request, for the batches that wait.
        self._idempotence = parts.partition_queues.idempotence
        self._admission = parts.admission
        self._sender = parts.sender
        self._updater = parts.updater
        self._flushes = parts.flushes
        self._failures = 0
        self._loop = asyncio.get_running_loop()
        self._end: Callable[[], Exception] | None = None
        self._flushing: Operation | None = None
        self._moved_to = (self.transaction.number, self.transaction.state)

    # The application's calls

    async def start(
        self, timeout: float | None = None, transactional_id: str | None = None
    ) -> None:
        """Wait for the producer id that `run` requests, at most `timeout` seconds; None: `max_block_ms`.

        `transactional_id`: of a producer that has started, which takes it before. Cancellation: the request goes on.

        Raises:
            TransactionError: the id was refused, or not granted in time.
        """
        if transactional_id is not None:
            self.transaction.initialize(transactional_id)
            self._on_change()
        with self._recorder.spent("txn-init-time"):
            try:
                await self._end_of(
                    self.transaction.operation,
                    "start()" if transactional_id is None else "init_transactions()",
                    timeout,
                )
            except TransactionTimeout as error:
                if transactional_id is not None:
                    raise
                raise TransactionTimeout(
                    error.reason, _NO_COORDINATOR
                ) from self._idempotence.trouble

    async def begin(self) -> None:
        """Begin a transaction, once there is a producer id. Cancellation: no transaction is open."""
        if self.transaction.state is State.UNINITIALIZED:
            self.transaction.initialize()
            self._on_change()
        with self._recorder.spent("txn-begin-time"):
            await self._granted("begin_transaction()")
        self.transaction.begin(self._loop.time())
        self._on_change()

    async def idle(self, call: str) -> None:
        """Wait for a producer id, and check that no transaction is open. `call` names the caller in errors.

        Raises:
            TransactionError: there is no id, or a transaction is open.
        """
        await self._granted(call)
        self.transaction.check(call, State.READY)

    async def commit(self) -> None:
        """Send all records that are left, then commit. Cancellation: the commit continues."""
        await self._run(self.transaction.commit(), "commit_transaction()", "txn-commit-time")

    async def prepare(self) -> PreparedTransaction:
        """Send all records that are left, and leave the transaction open. Cancellation: the flush continues; `give_up` aborts."""
        operation = self.transaction.prepare()
        self._on_change()
        await self._end_of(operation, "prepare_transaction()")
        prepared = self.transaction.hand_over()
        self._on_change()
        return prepared

    async def abort(self) -> None:
        """Drop the unsent records, then abort. Cancellation: the abort continues."""
        await self._run(self.transaction.abort(), "abort_transaction()", "txn-abort-time")

    async def send_offsets(
        self,
        group: ConsumerGroupMetadata,
        offsets: Mapping[tuple[str, int], OffsetAndMetadata],
        call: str = "send_offsets_to_transaction()",
    ) -> None:
        """Add the offsets of a consumer group to the transaction; `call` names the caller in errors. Cancellation: the operation continues."""
        self.transaction.check(call)
        if offsets:
            await self._run(
                self.transaction.add_offsets(group, offsets), call, "txn-send-offsets-time"
            )

    async def give_up(self, timeout: float, *, takes_back: bool = False) -> None:
        """End an open transaction: abort it, or wait for the end that is in progress, at most `timeout` seconds.

        `takes_back`: abort also a prepared transaction, and one that is being committed, if no commit was sent yet. After `timeout` the
        operation continues.
        Cancellation, except by an anyio scope: the call ends at once, and the operation continues.
        """
        transaction = self.transaction
        is_undecided = (
            takes_back
            and transaction.state in (State.PREPARED, State.COMMITTING)
            and not transaction.is_told
        )
        if transaction.state in _OPEN or is_undecided:
            transaction.abort()
            self._on_change()
        if transaction.state in _ENDING and self._end is None:
            operation = transaction.operation
            with anyio.move_on_after(timeout, shield=True):
                while not operation.is_over and self._end is None:
                    await self._gate.changed.wait()

    def check_running(self) -> None:
        """Raise if the producer has ended: a transaction that was open then is aborted."""
        if self._end is not None:
            raise self._end()

    # Waiting

    async def _granted(self, call: str) -> None:
        """Wait for the producer id, or raise the reason why there is none."""
        await self._until(lambda: self.transaction.state is not State.INITIALIZING, call)
        if self.transaction.state is State.UNINITIALIZED and self.transaction.error is not None:
            raise self.transaction.error.again()

    async def _run(self, operation: Operation, call: str, metric: str) -> None:
        self._on_change()
        with self._recorder.spent(metric):
            await self._end_of(operation, call)

    async def _end_of(self, operation: Operation, call: str, timeout: float | None = None) -> None:
        await self._until(lambda: operation.is_over, call, timeout)
        if operation.error is not None:
            raise operation.error.again()

    async def _until(
        self, is_over: Callable[[], bool], call: str, timeout: float | None = None
    ) -> None:
        try:
            async with asyncio.timeout(
                self._config.max_block_ms / 1000 if timeout is None else timeout
            ):
                while not is_over() and self._end is None:
                    await self._gate.changed.wait()
        except TimeoutError:
            if not is_over():
                limit = f"max_block_ms={self._config.max_block_ms:.15g}"
                raise TransactionTimeout(
                    f"{call} did not end within {limit}: {self.waits_for()}"
                ) from self._idempotence.trouble
        if not is_over() and self._end is not None:
            raise self._end()

    def waits_for(self) -> str:
        """Return a text that names the request or the records that the current operation waits for."""
        request, step = self.transaction.due(), self.transaction.step()
        if request is None or step is None:
            return (
                "records of it have not ended"
                if self.transaction.state in _FLUSHING
                else f"the producer {self.transaction.state}"
            )
        why = f" ({self._idempotence.trouble})" if self._idempotence.trouble is not None else ""
        if request.rpc is Rpc.FIND_COORDINATOR:
            return f"{step.rpc} waits for FindCoordinator of {request.at.key!r}{why}"
        return f"{step.rpc} is not answered{why}"

    def _on_change(self) -> None:
        """Handle a possible change of the state: open or close the fast path at once, and wake the task and the waiting calls."""
        self._admission.gate()
        self._gate.on_change()

    def close(self, error: Callable[[], Exception]) -> None:
        """End the waiting calls with `error`, because the producer ends."""
        self._end = error
        self._gate.tell()

    # The task

    async def run(self) -> None:
        """Send the requests that are due; the first one is for a producer id. The body of the task."""
        while True:
            self._move()
            request = self.transaction.due()
            if request is None:
                self._gate.wake.clear()
                await self._gate.wake.wait()
                continue
            pause = await self._ask(request)
            self._move()
            self._on_change()
            if pause:
                await asyncio.sleep(pause)

    def _move(self) -> None:
        """Apply the state to the other parts."""
        transaction = self.transaction
        state, operation = transaction.state, transaction.operation
        if (
            transaction.identity != self._partition_queues.idempotence.granted
            and transaction.identity.producer_id >= 0
        ):
            self._sender.identify(transaction.identity, transaction.transactional_id)
        if (transaction.number, state) != self._moved_to:
            self._moved_to = (transaction.number, state)
            if state in _GIVEN_UP:
                self._drop()
        for queue in self._gate.added():
            self._partition_queues.release(queue)
            self._sender.turn()
        if state in _FLUSHING and self._flushing is not operation:
            self._flushing = operation
            self._supervisor.spawn(self._flush(operation), "flush of a transaction")

    def _drop(self) -> None:
        """Drop the records that were not sent yet (TXN-06)."""
        error = self.transaction.error
        cause: TransactionError = (
            TransactionAborted("the transaction was aborted") if error is None else error.again()
        )
        self._admission.drop(cause.again)
        self._sender.drop_unsent(cause)

    async def _flush(self, operation: Operation) -> None:
        await self._flushes.flush(None)
        if self.transaction.operation is operation:
            self.transaction.flushed()
            self._on_change()

    async def _ask(self, request: Request) -> float:
        """Send a request and apply its answer. Returns the seconds to wait before the next request."""
        is_sent = False
        try:
            node = await self._reach(request)
            # Another request is due by now, for example because a commit was taken back.
            if self.transaction.due() != request:
                return 0.0
            self.transaction.sent(request)
            is_sent = True
            response, version = await self._call(node, request)
        except TransportError as error:
            self._idempotence.note(error)
            if is_sent:
                self.transaction.lost(request)
            else:
                self.transaction.coordinators.pop(request.at, None)
            return self._pause(Course.RETRY)
        # The client raised it itself: the broker is too old for the request, or does not offer it.
        except BrokerError as error:
            response, version = requests.TransactionResponse({"": error}), -1
        if response.errors:
            self._idempotence.note(_placed(*next(iter(response.errors.items()))))
            return self._pause(
                self.transaction.refused(request, response.errors, self._loop.time())
            )
        self._idempotence.note(None)
        self._failures = 0
        self._take(request, response, version)
        return 0.0

    async def _reach(self, request: Request) -> BrokerNode:
        """Return the node to send a request to, after its control connection is made."""
        if request.rpc is Rpc.FIND_COORDINATOR:
            return await self._cluster.reach(_PATIENCE)
        node_id = self.transaction.coordinators[request.at]
        node = self._cluster.node(node_id)
        if node is None:
            raise ConnectionLost(f"broker {node_id}, the coordinator, is gone")
        connection = await node.control.connected(_PATIENCE)
        for key in _NEEDED if request.rpc is Rpc.INIT else ():
            connection.version_of(key)
        return node

    async def _call(self, node: BrokerNode, request: Request) -> tuple[TransactionResponse, int]:
        body = requests.bodies(request, self.transaction, int(self._config.transaction_timeout_ms))
        newest = requests.newest(request, self.transaction.version)
        key, timeout = requests.KEYS[request.rpc], self._config.request_timeout_ms / 1000
        answer = await node.call(key, body, timeout=timeout, newest=newest)
        decoded = node.decode(answer)
        response = requests.read(request, answer.version, decoded)
        if response.mute_ms > 0:
            node.throttle(response.mute_ms)
        return response, answer.version

    def _take(self, request: Request, response: TransactionResponse, version: int) -> None:
        transaction = self.transaction
        if response.coordinator is not None:
            broker = Broker(*response.coordinator)
            if self._updater.add_coordinator(broker):
                transaction.coordinators[request.at] = broker.node_id
        elif request.rpc is Rpc.INIT:
            transaction.granted(response.identity, version)
        else:
            transaction.done(request, response.identity)

    def _pause(self, course: Course) -> float:
        if course > Course.LOOKUP and self.transaction.due() is None:
            return 0.0
        self._failures += 1
        backoff = self._quick if course is Course.QUICK else self._backoff
        return backoff.after(self._failures, self._chance())


_ENDED: Final = (State.READY, State.INITIALIZING, State.UNINITIALIZED)


class TransactionScope:
    """Holds one transaction of `producer.transaction()`: entry begins it, the end of the body commits it, and an exception from the body aborts it.

    Args:
        transaction_manager: returns the manager of the running producer, or raises.
        timeout: seconds for an abort.
    """

    _transaction_manager: TransactionManager

    def __init__(
        self, transaction_manager: Callable[[], TransactionManager], timeout: float
    ) -> None:
        transaction_manager()
        self._running = transaction_manager
        self._timeout = timeout
        self._number = 0

    async def __aenter__(self) -> None:
        self._transaction_manager = self._running()
        await self._transaction_manager.begin()
        self._number = self._transaction_manager.transaction.number

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The body ended the transaction itself, or `stop` did.
        if not self._is_open():
            if error is None:
                self._transaction_manager.check_running()
            return
        if error is not None:
            await self._transaction_manager.give_up(self._timeout, takes_back=True)
            return
        try:
            await self._transaction_manager.commit()
        except TransactionTimeout as late:
            if self._transaction_manager.transaction.is_told:
                raise
            await self._transaction_manager.give_up(self._timeout, takes_back=True)
            raise TransactionAbortable(late.reason) from late.__cause__
        # A cancellation, too: no transaction stays open.
        except BaseException:
            if self._is_open():
                await self._transaction_manager.give_up(self._timeout, takes_back=True)
            raise

    def _is_open(self) -> bool:
        transaction = self._transaction_manager.transaction
        return transaction.number == self._number and transaction.state not in _ENDED
