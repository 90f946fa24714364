"""Lets records in while a transaction is open, and applies to the transaction what happens to its records.

It is made before the parts that append and send records: they tell it of opened batches, refused records and failed batches. The
`TransactionManager`, which is made after them, sends the requests that follow of that.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from aioproducer.core.transactions.transaction import State, Transaction
from aioproducer.errors import BrokerError, KafkaError, RecordTooLarge, SendTimeout

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.core.partition_queues import PartitionQueue
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.engine.chosen_build import FastPath
    from aioproducer.engine.tasks.supervisor import GuardedLoop
    from aioproducer.errors import DeliveryError
    from aioproducer.net.cluster import Cluster

_FEATURE: Final = "transaction.version"
# The newest Produce version, by the version of transactions (TV2-02, TV2-03). Version 2 has no limit.
_NEWEST_PRODUCE: Final = {1: 11, 2: 0x7FFF}
# A record that `send` refused with one of these errors is missing in the transaction (TXN-08).
_MISSING: Final = (RecordTooLarge, SendTimeout, BrokerError)


class TransactionGate:
    """Holds the state of the transactions of one producer, and what waits for it.

    Args:
        fast_path: the fast path of `send`; it is closed at once when no transaction is open any more.
        cluster: reports the level of the finalized feature `transaction.version`.

    Attributes:
        transaction: the state of the transactions.
        wake: is set when a request may be due.
        changed: is set when the state may have changed; another event replaces it then.
    """

    def __init__(
        self, config: ProducerConfig, loop: GuardedLoop, fast_path: FastPath, cluster: Cluster
    ) -> None:
        assert config.transactional_id is not None
        self.transaction: Transaction = Transaction(
            config.transactional_id,
            config.transaction_timeout_ms,
            partial(cluster.feature, _FEATURE),
        )
        self.wake: asyncio.Event = asyncio.Event()
        self.changed: asyncio.Event = asyncio.Event()
        self._loop = loop
        self._fast_path = fast_path
        # The partition queues that are held until their partitions are added.
        self._held: dict[PartitionQueue, tuple[str, int]] = {}
        self.transaction.initialize()

    @property
    def is_open(self) -> bool:
        """Return whether records may be sent."""
        return self.transaction.state is State.IN_TRANSACTION

    @property
    def newest_produce(self) -> int:
        """Return the newest version of Produce that the transaction may use."""
        return _NEWEST_PRODUCE[self.transaction.version]

    def on_change(self) -> None:
        """Handle a possible change of the state: close the fast path at once, and wake the task and the waiting calls."""
        if not self.is_open:
            self._fast_path.fast = {}
        self.wake.set()
        self.tell()

    def tell(self) -> None:
        """Wake the waiting calls."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    # Records

    def check_send(self) -> None:
        """Raise unless a transaction is open for records. Raises the error of the transaction, if it has one."""
        if not self.is_open:
            self.transaction.check("send()")

    def on_refused(self, topic: str, error: BaseException | None) -> None:
        """Fail the transaction if a record was refused, at once or after it waited, and is missing now."""
        if isinstance(error, _MISSING):
            self.transaction.fail(error, repr(topic), self._loop.time())
            self.on_change()

    # Batches

    def on_open(self, batch: ProducerBatch) -> None:
        """Add the partition of a batch that was opened to the transaction, and hold its queue until the coordinator has added it."""
        queue = batch.queue
        partition = (queue.topic, queue.partition)
        if self.transaction.add(partition):
            queue.is_held = True
            self._held[queue] = partition
            self.wake.set()

    def added(self) -> list[PartitionQueue]:
        """Return the partition queues that are held and need not be any more, once."""
        added = [
            queue
            for queue, partition in self._held.items()
            if partition not in self.transaction.pending
        ]
        for queue in added:
            del self._held[queue]
        return added

    def on_failure(self, batch: ProducerBatch, error: DeliveryError) -> None:
        """Fail the transaction because of a batch that failed."""
        cause = error.__cause__ if isinstance(error.__cause__, KafkaError) else error
        where = f"{error.topic}-{error.partition}"
        self.transaction.fail(cause, where, self._loop.time(), is_numbered=batch.sequence >= 0)
        self.on_change()
