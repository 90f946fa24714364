"""Holds `TransactionResolver`, which ends transactions that producers have prepared: its contract is here, its parts in `engine`."""

from __future__ import annotations

import random
import time
import warnings
from typing import TYPE_CHECKING, Any, Self

from aioproducer.client_ids import with_client_id
from aioproducer.config import ProducerConfig, without_content
from aioproducer.engine.resolver_runtime import ResolverRuntime
from aioproducer.engine.transactions.committed_offsets import committed_offset
from aioproducer.engine.transactions.transaction_ends import end_transaction
from aioproducer.errors import ConfigError, ProducerClosed
from aioproducer.net.addresses import DnsResolver, Verbatim
from aioproducer.net.transport import TcpDialer
from aioproducer.offsets import read_position_key, read_prepared
from aioproducer.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from aioproducer.engine.transactions.coordinator_calls import CoordinatorCalls
    from aioproducer.interfaces import Dialer, Resolver
    from aioproducer.model import Position, PreparedTransaction

__all__ = ["TransactionResolver"]


class TransactionResolver:
    """Ends transactions that producers have prepared, in any process: whether those producers still run, or not.

    ```python
    async with TransactionResolver(bootstrap_servers="localhost:9092") as resolver:
        await asyncio.gather(*(resolver.commit(one) for one in prepared))
    ```

    Calls may run at the same time, hundreds of them. Each waits at most `max_block_ms`. Meanwhile it tries again what passes: lost
    connections and answers, and coordinators that move. An answer that is a refusal is raised at once, and never tried again.

    Args:
        config: a `ProducerConfig`; without one, the caller gives its fields as `options`. It takes all options of a producer, so that one
            config serves both, and uses those of connections and of retries. It has no `transactional_id`.
        dialer: makes connections; the `client_options` of a fake cluster contain one.
        resolver: looks host names up. Without one, names are looked up in DNS, but passed unresolved to a given `dialer`.
        chance: returns a random number in [0, 1), for jitter.
        wall_clock: returns seconds since the epoch, for the ends of certificates and tokens. Deadlines use the loop's clock.
        options: fields of `ProducerConfig`.

    Raises:
        ConfigError: an option is unknown, bad, or in conflict with another. No connection was opened: the constructor does no I/O.
    """

    def __init__(
        self,
        config: ProducerConfig | None = None,
        *,
        dialer: Dialer | None = None,
        resolver: Resolver | None = None,
        chance: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        config = ProducerConfig.of(without_content(config), options)
        if config.transactional_id is not None:
            raise ConfigError(
                f"transactional_id={config.transactional_id!r}: a TransactionResolver has none of its own, it ends the transactions of "
                "producers that have one. Leave it out"
            )
        self.config, self._client_id_number = with_client_id(config)
        self._dialer = dialer or TcpDialer(self.config.send_buffer_bytes, self.config.receive_buffer_bytes)
        self._resolver = resolver or (DnsResolver() if dialer is None else Verbatim())
        self._chance = chance or random.Random().random
        self._wall_clock = wall_clock
        self._engine: ResolverRuntime | None = None
        self._is_stopped = False
        self._has_started = False

    async def start(self) -> None:
        """Connect, and wait for the first metadata of any bootstrap broker, at most `max_block_ms`.

        Raises:
            BootstrapFailed: no broker answered; each address and its reason is in the text.
            ProducerClosed: the resolver runs or was stopped: make a new one; or `stop` was called while it started.
        Cancellation, or an error: no task is left running, and `start` may be called again.
        """
        if self._is_stopped:
            raise ProducerClosed("the resolver was stopped, and a resolver starts once; make a new one")
        if self._engine is not None:
            self._engine.check_place()
            raise ProducerClosed("a resolver starts once; make a new one" if self._has_started else "the resolver starts already")
        engine = self._engine = ResolverRuntime(
            self.config, self._dialer, self._resolver, VERSION, chance=self._chance, wall_clock=self._wall_clock
        )
        try:
            await engine.start()
            self._has_started = True
        finally:
            if not self._has_started:
                self._engine = None

    async def stop(self) -> None:
        """Close every connection. Calls that wait raise ProducerClosed; what they asked for may be carried out.

        `stop` is safe to call twice, and before `start`. In a forked child it does nothing. Cancellation: the connections close all the same.

        Raises:
            ProducerClosed: called in another thread or event loop than the resolver's.
        """
        engine = self._engine
        if engine is not None:
            if engine.is_forked:
                return
            if not engine.loop.is_closed():
                engine.check_place()
        self._is_stopped = True
        try:
            if engine is not None:
                await self._stop(engine)
        finally:
            if self._client_id_number is not None:
                self._client_id_number.release()

    async def _stop(self, engine: ResolverRuntime) -> None:
        if engine.loop.is_closed():
            engine.drop()
        else:
            await engine.stop()

    async def commit(self, prepared: PreparedTransaction) -> None:
        """Commit a prepared transaction. Returns once its coordinator has decided so, also if it had before.

        Readers of committed records see its records within some ms.

        Raises:
            UsageError: `prepared` is no prepared transaction.
            BrokerError: the coordinator refuses. `name` says why: INVALID_TXN_STATE, it was aborted, or never begun; PRODUCER_FENCED or
                INVALID_PRODUCER_EPOCH, it timed out, or a newer producer has its transactional id, which had committed it or not;
                INVALID_PRODUCER_ID_MAPPING, the coordinator has forgotten the id; TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
            TransactionTimeout: there was no answer within `max_block_ms`. It may be committed: call `commit` again.
        Cancellation: it may be committed.
        """
        await end_transaction(self._running(), read_prepared(prepared), is_commit=True)

    async def abort(self, prepared: PreparedTransaction) -> None:
        """Abort a prepared transaction. Returns once its coordinator has decided so, also if it had before. Raises: as `commit`."""
        await end_transaction(self._running(), read_prepared(prepared), is_commit=False)

    async def committed_offset(self, group: str, topic: str, *, stable: bool = True) -> Position | None:
        """Return the committed offset of a group for partition 0 of a topic, as `number`, and its metadata, as `cursor`; None: there is none.

        It is the position that a job sent by `send_position_to_transaction`.

        Args:
            group: the group, or the name of the job.
            topic: the topic.
            stable: wait while an open transaction holds the offset. False: the offset that was committed before is returned.

        Raises:
            UsageError: an argument is not valid.
            BrokerError: the broker refuses the request, or is older than Kafka 2.5 and cannot tell what is stable.
            TransactionTimeout: no coordinator answered within `max_block_ms`, or an open transaction holds the offset.
        Cancellation: nothing goes on.
        """
        calls = self._running()
        key = read_position_key(group, topic)
        return await committed_offset(calls, key.group_id, topic, "committed_offset()", is_stable=stable)

    def _running(self) -> CoordinatorCalls:
        engine = self._engine
        if engine is None or not self._has_started:
            raise ProducerClosed(
                "the resolver has stopped"
                if self._is_stopped
                else "the resolver was not started: use `async with`, or `await resolver.start()`"
            )
        engine.check()
        return engine.calls

    async def __aenter__(self) -> Self:
        """Call `start`. Returns the resolver."""
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Call `stop`."""
        await self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._is_stopped else "running" if self._engine is not None and self._engine.is_open else "not running"
        return f"<TransactionResolver {','.join(self.config.bootstrap_servers)}: {state}>"

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is None or self._is_stopped or engine.is_forked:
            return
        try:
            warnings.warn(
                f"{self!r} was never stopped: use `async with`, or `await resolver.stop()`", ResourceWarning, source=self, stacklevel=1
            )
        finally:
            # A warnings filter may raise the warning as an error.
            engine.drop()
