"""Holds `TransactionResolver`, which ends transactions that producers have prepared: its contract is here, its parts in `engine`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast

from aioproducer.config.producer_config import ProducerConfig, ProducerOptions, with_client_id
from aioproducer.engine.resolver_runtime import ResolverRuntime
from aioproducer.engine.transactions.coordinator_calls import (
    commit_offsets,
    committed_offset,
    committed_offsets,
    describe_transactions,
    end_transaction,
    list_transactions,
)
from aioproducer.errors import ConfigError, ProducerClosed, UsageError
from aioproducer.interfaces import Dialer, Resolver
from aioproducer.model import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Position,
    PreparedTransaction,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)
from aioproducer.net.settings import net_settings
from aioproducer.offsets import (
    check_text,
    read_group,
    read_offsets,
    read_position_key,
    read_prepared,
)

__all__ = ["TransactionResolver"]

P = TypeVar("P", bound="tuple[str, int]")


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
        wall_clock: Callable[[], float] = lambda: time.time(),
        **options: Unpack[ProducerOptions],
    ) -> None:
        config = ProducerConfig.of(config, cast("dict[str, Any]", options))
        if config.transactional_id is not None:
            raise ConfigError(
                f"transactional_id={config.transactional_id!r}: a TransactionResolver has none of its own, it ends the transactions of "
                "producers that have one. Leave it out"
            )
        # As `Producer` does.
        self.config: ProducerConfig
        self.config, self._client_id_number = with_client_id(config)
        self._net_settings = partial(
            net_settings, self.config, dialer, resolver, chance, wall_clock
        )
        self._engine: ResolverRuntime | None = None
        self._is_stopped = False
        self._has_started = False

    async def start(self) -> None:
        """Connect, and wait for the first metadata of any bootstrap broker, at most `max_block_ms`.

        Raises:
            BootstrapFailed: no broker answered; each address and its reason is in the text.
            ProducerClosed: the resolver runs or was stopped: make a new one; or `stop` was called while it started.
            UsageError: the loop that runs is not asyncio's, as under trio.
        Cancellation, or an error: no task is left running, and `start` may be called again.
        """
        if self._is_stopped:
            raise ProducerClosed(
                "the resolver was stopped, and a resolver starts once; make a new one"
            )
        if self._engine is not None:
            self._engine.check_place()
            raise ProducerClosed(
                "a resolver starts once; make a new one"
                if self._has_started
                else "the resolver starts already"
            )
        engine = self._engine = ResolverRuntime(self.config, self._net_settings())
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
                if engine.loop.is_closed():
                    engine.drop()
                else:
                    await engine.stop()
        finally:
            if self._client_id_number is not None:
                self._client_id_number.release()

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
        await end_transaction(self._running().calls, read_prepared(prepared), is_commit=True)

    async def abort(self, prepared: PreparedTransaction) -> None:
        """Abort a prepared transaction. Returns once its coordinator has decided so, also if it had before. Raises: as `commit`."""
        await end_transaction(self._running().calls, read_prepared(prepared), is_commit=False)

    async def committed_offset(
        self, group: str, topic: str, *, stable: bool = True
    ) -> Position | None:
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
        engine = self._running()
        key = read_position_key(group, topic)
        return await committed_offset(
            engine.calls, key.group_id, topic, "committed_offset()", is_stable=stable
        )

    async def committed_offsets(
        self, group: str, *, stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all offsets that a group has committed, by partition. Topics that may not be described are left out.

        Args:
            group: the group.
            stable: wait while an open transaction holds one of the offsets. False: what was committed before is returned.

        Raises:
            UsageError: `group` names no group.
            BrokerError: the broker refuses the request, or is older than Kafka 2.5 and cannot tell what is stable.
            TransactionTimeout: no coordinator answered within `max_block_ms`, or an open transaction holds an offset.
        Cancellation: nothing goes on.
        """
        engine = self._running()
        return await committed_offsets(
            engine.calls, read_group(group).group_id, "committed_offsets()", is_stable=stable
        )

    async def commit_offsets(
        self,
        group: str | ConsumerGroupMetadata,
        offsets: Mapping[P, int | OffsetAndMetadata | tuple[int, str]],
    ) -> None:
        """Commit the offsets of a consumer group at once, outside transactions.

        Args:
            group: a group without members: no consumer has joined it. With a member's generation and id, the offsets are that member's.
            offsets: offsets of the next record to read, by (topic, partition), as `send_offsets_to_transaction` takes them.

        Raises:
            UsageError: an argument is not valid.
            BrokerError: the coordinator refuses: UNKNOWN_MEMBER_ID if the group has members, GROUP_AUTHORIZATION_FAILED,
                OFFSET_METADATA_TOO_LARGE ...; other offsets of the call may be committed.
            TransactionTimeout: there was no answer within `max_block_ms`, or a partition does not exist.
        Cancellation: the offsets may be committed.
        """
        engine = self._running()
        checked, read = read_group(group), read_offsets(offsets)
        if read:
            await commit_offsets(engine.calls, checked, read)

    async def list_transactions(self, prefix: str = "") -> list[TransactionListing]:
        """Return the transactional ids of the cluster that begin with `prefix`, sorted. Ids that may not be described are left out.

        Every broker is asked: each lists those that it coordinates.

        Raises:
            UsageError: `prefix` is no text.
            BrokerError: a broker refuses the request, or is older than Kafka 3.0.
            TransactionTimeout: not every broker answered within `max_block_ms`.
        Cancellation: nothing goes on.
        """
        engine = self._running()
        if not isinstance(prefix, str):
            raise UsageError(f"prefix={prefix!r}: it is the beginning of transactional ids, a text")
        check_text("prefix", prefix)
        return await list_transactions(engine.calls, engine.brokers, prefix)

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> list[TransactionDescription]:
        """Return what the coordinators know of transactional ids, in the given order. An id that is not known is left out.

        Raises:
            UsageError: `transactional_ids` are no names.
            BrokerError: a coordinator refuses, for example by TRANSACTIONAL_ID_AUTHORIZATION_FAILED, or is older than Kafka 3.0.
            TransactionTimeout: not every coordinator answered within `max_block_ms`.
        Cancellation: nothing goes on.
        """
        engine = self._running()
        names = (
            None
            if isinstance(transactional_ids, str) or not isinstance(transactional_ids, Iterable)
            else list(transactional_ids)
        )
        if names is None or not all(isinstance(name, str) and name for name in names):
            raise UsageError(
                f"{transactional_ids!r} are no transactional ids: give a list of their names"
            )
        for name in names:
            check_text("a transactional id", name)
        return await describe_transactions(engine.calls, names)

    def _running(self) -> ResolverRuntime:
        engine = self._engine
        if engine is None or not self._has_started:
            raise ProducerClosed(
                "the resolver has stopped"
                if self._is_stopped
                else "the resolver was not started: use `async with`, or `await resolver.start()`"
            )
        engine.check()
        return engine

    async def __aenter__(self) -> Self:
        """Call `start`. Returns the resolver."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Call `stop`."""
        await self.stop()

    def __repr__(self) -> str:
        state = (
            "stopped"
            if self._is_stopped
            else "running"
            if self._engine is not None and self._engine.is_open
            else "not running"
        )
        return f"<TransactionResolver {','.join(self.config.bootstrap_servers)}: {state}>"

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is None or self._is_stopped or engine.is_forked:
            return
        try:
            warnings.warn(
                f"{self!r} was never stopped: use `async with`, or `await resolver.stop()`",
                ResourceWarning,
                source=self,
                stacklevel=1,
            )
        finally:
            # A warnings filter may raise the warning as an error.
            engine.drop()
