"""Sends requests to coordinators for calls that wait for the answer: finds the coordinator, and tries again what passes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from aioproducer.core.produce_attempt import Backoff
from aioproducer.engine.transactions.coordinator_lookups import PATIENCE, CoordinatorLookups
from aioproducer.errors import BrokerError, KafkaError, TransactionTimeout, TransportError, broker_error
from aioproducer.wire.api import NAMES, ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from aioproducer.core.transactions.transaction import Coordinator
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.metadata.metadata_updater import MetadataUpdater
    from aioproducer.net.cluster import BrokerNode, Cluster

__all__ = ["CoordinatorCalls", "Exchange"]

T = TypeVar("T")
# After these errors, the coordinator is another one.
_MOVED: Final = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE")
# Seconds of backoff: Kafka's value for CONCURRENT_TRANSACTIONS (TXN-11).
_QUICK: Final = 0.02
# In older versions, the broker waits itself before it answers (KIP-219). For the other requests there is no such version.
_FIRST_WITH_MUTING: Final = {ApiKey.OFFSET_COMMIT: 4, ApiKey.OFFSET_FETCH: 4, ApiKey.END_TXN: 1}
_HINT: Final = "Call it again."


class Exchange(NamedTuple, Generic[T]):
    """Holds a request and the reader of its answer.

    Attributes:
        key: the request's API key.
        body: makes the request's message for a version.
        read: returns the content of a decoded answer of a version, or raises its BrokerError.
        newest: the newest version that may be used; None: any.
    """

    key: ApiKey
    body: Callable[[int], Any]
    read: Callable[[int, Any], T]
    newest: int | None = None


class CoordinatorCalls:
    """Makes the calls of one client to coordinators. A call sends its own requests, and its cancellation ends them.

    An error that passes is tried again until `max_block_ms`: a lost connection or answer, a coordinator that has moved or loads, and each
    error that Kafka calls retriable. Any other error is raised at once, and its request is never sent again.

    Args:
        updater: adds the address of a coordinator to the cluster.
    """

    def __init__(self, context: EngineContext, cluster: Cluster, updater: MetadataUpdater) -> None:
        self._max_block = context.config.max_block_ms / 1000
        self._request_timeout = context.config.request_timeout_ms / 1000
        self._backoff = context.backoff
        self._quick = Backoff(min(_QUICK, context.backoff.first), context.backoff.first)
        self._chance = context.chance
        self._lookups = CoordinatorLookups(context, cluster, updater)
        self._loop = asyncio.get_running_loop()
        self._open: set[asyncio.Timeout] = set()
        self._end: Callable[[], Exception] | None = None

    async def ask(self, at: Coordinator, exchange: Exchange[T], call: str) -> T:
        """Send a request to a coordinator until it is answered. Returns the content of the answer.

        Args:
            at: the coordinator.
            exchange: the request.
            call: names the caller, and what it is about, in errors.

        Raises:
            BrokerError: the request is refused, and would be refused again.
            TransactionTimeout: there was no answer within `max_block_ms`.
        """
        return await self.repeat(lambda: self._ask(at, exchange), call)

    async def repeat(self, attempt: Callable[[], Awaitable[T]], call: str) -> T:
        """Make attempts until one succeeds. Returns its result. Raises: as `ask`."""
        trouble: KafkaError | None = None
        failures = 0
        scope = asyncio.timeout(self._max_block)
        try:
            async with scope:
                self._open.add(scope)
                while self._end is None:
                    try:
                        return await attempt()
                    except (TransportError, BrokerError) as error:
                        if isinstance(error, BrokerError) and not error.retriable:
                            raise
                        trouble = error
                    failures += 1
                    await asyncio.sleep(self._pause(trouble, failures))
        except TimeoutError:
            if self._end is None:
                why = f": {trouble}" if trouble is not None else ": no answer yet"
                text = f"{call} did not end within max_block_ms={self._max_block * 1000:.15g}{why}"
                raise TransactionTimeout(text, _HINT) from trouble
        finally:
            self._open.discard(scope)
        assert self._end is not None
        raise self._end()

    def _pause(self, trouble: KafkaError, failures: int) -> float:
        is_quick = isinstance(trouble, BrokerError) and trouble.name == "CONCURRENT_TRANSACTIONS"
        return (self._quick if is_quick else self._backoff).after(failures, self._chance())

    async def _ask(self, at: Coordinator, exchange: Exchange[T]) -> T:
        try:
            return await self.send(await self._lookups.find(at), exchange)
        except (TransportError, BrokerError) as error:
            self._on_trouble([at], error)
            raise

    async def ask_each(
        self, coordinators: Iterable[Coordinator], exchange: Callable[[list[Coordinator]], Exchange[T]], call: str
    ) -> list[T]:
        """Send a request to each of the brokers that coordinate some keys, until all have answered. Returns the contents of the answers.

        Args:
            coordinators: the keys.
            exchange: makes the request of one broker, for its keys.
            call: names the caller in errors.

        Raises: as `ask`.
        """
        wanted = list(coordinators)
        return await self.repeat(lambda: self._ask_each(wanted, exchange), call)

    async def _ask_each(self, coordinators: list[Coordinator], exchange: Callable[[list[Coordinator]], Exchange[T]]) -> list[T]:
        together: dict[BrokerNode, list[Coordinator]] = {}
        try:
            for at, node in (await self._lookups.find_all(coordinators)).items():
                together.setdefault(node, []).append(at)
            return [await self.send(node, exchange(keys)) for node, keys in together.items()]
        except (TransportError, BrokerError) as error:
            self._on_trouble(coordinators, error)
            raise

    def _on_trouble(self, coordinators: list[Coordinator], error: KafkaError) -> None:
        """Forget coordinators that cannot be reached, or that are no longer coordinators."""
        if isinstance(error, TransportError) or (isinstance(error, BrokerError) and error.name in _MOVED):
            for at in coordinators:
                self._lookups.forget(at)

    async def send(self, node: BrokerNode, exchange: Exchange[T]) -> T:
        """Send a request to a node once. Returns the content of the answer.

        Raises:
            TransportError: there was no answer.
            BrokerError: the answer is an error, or the broker does not know the request.
        """
        connection = await node.control.connected(PATIENCE)
        if exchange.key not in connection.agreed:
            raise broker_error("UNSUPPORTED_VERSION", f"{node.where} knows no {NAMES[exchange.key]} of a version that this client speaks")
        answer = await node.call(exchange.key, exchange.body, timeout=self._request_timeout, patience=PATIENCE, newest=exchange.newest)
        decoded = node.decode(answer)
        if decoded.throttle_time_ms > 0 and answer.version >= _FIRST_WITH_MUTING.get(exchange.key, 0):
            node.throttle(decoded.throttle_time_ms)
        return exchange.read(answer.version, decoded)

    def close(self, error: Callable[[], Exception]) -> None:
        """End the waiting calls, and each later one, with `error`, because the client ends."""
        self._end = error
        now = self._loop.time()
        for scope in self._open:
            # A scope whose time is over is ending by itself.
            with contextlib.suppress(RuntimeError):
                scope.reschedule(now)
