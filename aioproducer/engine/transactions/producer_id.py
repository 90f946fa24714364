"""The task that requests the producer id of an idempotent producer from any broker, when one is needed (KIP-98).

Meanwhile records are appended, and no batch is sent (IDM-01). If brokers refuse an id, every record that waits fails with the reason. The
next batch causes another request, because an administrator may have granted the permission. The sequence numbers are in
`core.sequence_numbers`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.sequence_numbers import ProducerIdAndEpoch
from aioproducer.core.transactions.transaction_errors import REMEDIES
from aioproducer.errors import (
    BootstrapFailed,
    BrokerError,
    ConnectionLost,
    KafkaError,
    ProtocolError,
    TransportError,
    broker_error,
)
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.core.sequence_numbers import Idempotence
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.sender.sender import Sender
    from aioproducer.net.cluster import BrokerNode, Cluster

# Seconds to wait for a connection before another broker is asked. The connection is still made.
_PATIENCE: Final = 1.0
# Seconds that a start waits for an id after a broker answered that it has none yet.
_NOT_YET: Final = 0.5
# The transaction timeout of a producer without transactions.
_NO_LIMIT: Final = 2**31 - 1


class ProducerIds:
    """Holds the state of the producer id request; `run` is the body of its task.

    Args:
        sender: gets each producer id and epoch, or goes without; fails every record that waits.
        is_needed: is set when the producer needs another id (`Idempotence.on_identity_lost`).
        idempotence: keeps the error of the latest request, for the batches that wait.
    """

    def __init__(
        self,
        context: EngineContext,
        cluster: Cluster,
        sender: Sender,
        is_needed: asyncio.Event,
        idempotence: Idempotence,
    ) -> None:
        self._cluster = cluster
        self._backoff = context.backoff
        self._request_timeout = context.config.request_timeout_ms / 1000
        self._chance = context.chance
        self._sender = sender
        self._failures = 0
        self._is_needed = is_needed
        self._idempotence = idempotence
        self._is_needed.set()
        self._is_told = asyncio.Event()
        self._is_given = asyncio.Event()

    @property
    def trouble(self) -> KafkaError | None:
        """Return the error of the latest request; None: there is an id, or no request has failed."""
        return self._idempotence.trouble

    async def first(self, timeout: float) -> None:
        """Wait until brokers have granted or refused an id, at most `timeout` seconds. After that, `run` still waits for one.

        A broker may have no id yet: it fetches ids from the controller when the first producer asks. Then this call waits `_NOT_YET`
        seconds longer. Otherwise the records that are sent meanwhile would accumulate.

        Raises:
            BootstrapFailed: the brokers refused an id.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._is_told.wait()
                if isinstance(self.trouble, BrokerError) and self.trouble.retriable:
                    async with asyncio.timeout(_NOT_YET):
                        await self._is_given.wait()
        except TimeoutError:
            pass
        if self.trouble is not None and not _is_passing(self.trouble):
            raise BootstrapFailed(str(self.trouble)) from self.trouble

    async def run(self) -> None:
        """Request an id whenever one is needed, with backoff after failures. The body of the task."""
        while True:
            await self._is_needed.wait()
            try:
                await self._ask()
            except KafkaError as error:
                await self._on_trouble(error)
            else:
                self._idempotence.note(None)
                self._failures = 0
                self._is_needed.clear()
                self._is_told.set()
                self._is_given.set()

    async def _ask(self) -> None:
        """Request an id from one broker after the other until one answers. Raises the error if none does."""
        trouble: KafkaError = ConnectionLost("no broker can be asked")
        tried: set[BrokerNode] = set()
        while (
            node := next((node for node in self._cluster.candidates() if node not in tried), None)
        ) is not None:
            tried.add(node)
            try:
                await self._ask_node(node)
            except TransportError as error:
                trouble = error
            else:
                return
        raise trouble

    async def _ask_node(self, node: BrokerNode) -> None:
        connection = await node.control.connected(_PATIENCE)
        if ApiKey.INIT_PRODUCER_ID not in connection.versions:
            self._sender.go_without_numbers(connection.where)
            return
        answer = await node.call(
            ApiKey.INIT_PRODUCER_ID, _request, timeout=self._request_timeout, patience=_PATIENCE
        )
        try:
            identity = _granted(node.where, answer.decode())
        except ProtocolError as error:
            node.control.distrust(error)
            raise
        self._sender.identify(identity)

    async def _on_trouble(self, error: KafkaError) -> None:
        self._idempotence.note(error)
        self._failures += 1
        self._is_told.set()
        if not _is_passing(error):
            self._sender.drop_unsent(error)
            self._is_needed.clear()
        await asyncio.sleep(self._backoff.after(self._failures, self._chance()))


def _request(_version: int) -> Any:
    return message(
        "InitProducerId.request",
        transactional_id=None,
        transaction_timeout_ms=_NO_LIMIT,
        producer_id=-1,
        producer_epoch=-1,
    )


def _granted(where: str, answer: Any) -> ProducerIdAndEpoch:
    """Return the producer id and epoch of an answer. Raises its error, or ProtocolError if no broker may grant them."""
    if answer.error_code:
        refused = broker_error(answer.error_code)
        remedy = REMEDIES.get(refused.name, "")
        raise BrokerError(refused.error, f"InitProducerId was refused. {remedy}".rstrip(". "))
    identity = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
    if not identity.is_granted:
        raise ProtocolError(
            f"{where} granted producer id {identity.producer_id} with epoch {identity.epoch}"
        )
    return identity


def _is_passing(error: KafkaError) -> bool:
    """Return whether the same request may succeed later."""
    return isinstance(error, TransportError) or (isinstance(error, BrokerError) and error.retriable)
