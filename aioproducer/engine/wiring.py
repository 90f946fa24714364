"""Makes the parts of one producer and connects them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from aioproducer.core.availability import Availability
from aioproducer.core.drain_policy import DrainPolicy, Linger
from aioproducer.core.metadata.cluster_metadata import ClusterMetadata
from aioproducer.core.metadata.metadata_schedule import MetadataSchedule, TopicExpiry, shrink
from aioproducer.core.partition_queues import PartitionQueues
from aioproducer.core.produce_attempt import Backoff
from aioproducer.core.sequence_numbers import NO_IDENTITY, Idempotence
from aioproducer.core.topic_updates import leave_cluster
from aioproducer.engine import chosen_build
from aioproducer.engine.append.admission import Admission
from aioproducer.engine.append.appender import Appender
from aioproducer.engine.append.batch_sizing import MOST_OVERHEAD, BatchSizing, settle
from aioproducer.engine.append.interceptors import ProducerInterceptors
from aioproducer.engine.append.loop_budget import DrainSchedule, LoopBudget
from aioproducer.engine.append.not_started import has_hooks
from aioproducer.engine.append.record_accumulator import RecordAccumulator
from aioproducer.engine.append.transactional_accumulator import TransactionalRecordAccumulator
from aioproducer.engine.chosen_build import DeliveryContext
from aioproducer.engine.context import EngineContext
from aioproducer.engine.delivery.completion_queue import CompletionQueue
from aioproducer.engine.delivery.unhandled_failures import UnhandledFailures
from aioproducer.engine.gauges import Gauges
from aioproducer.engine.memory.buffer_pool import BufferPool
from aioproducer.engine.memory.wait_queue import PendingSend
from aioproducer.engine.metadata.metadata_updater import MetadataSettings, MetadataUpdater
from aioproducer.engine.metadata.topic_expiry import TopicExpiryTask
from aioproducer.engine.metadata.topic_waiters import TopicRequests
from aioproducer.engine.observability.metrics_recorder import Instruments
from aioproducer.engine.sender.batch_completion import BatchCompletion
from aioproducer.engine.sender.batch_compressor import BatchCompressor
from aioproducer.engine.sender.flushes import Flushes
from aioproducer.engine.sender.record_formats import NEWEST, level_of
from aioproducer.engine.sender.sender import Sender
from aioproducer.engine.tasks.guarded_loop import GuardedLoop
from aioproducer.engine.tasks.supervisor import Supervisor
from aioproducer.engine.transactions.producer_id import ProducerIds
from aioproducer.net.cluster import Cluster
from aioproducer.record_validation import RecordValidation
from aioproducer.records.compression import CompressionRatios

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.engine.append.hooked_path import HookedFastPath
    from aioproducer.engine.chosen_build import FastPath
    from aioproducer.engine.circuit_breaker.manager import ProducerCircuitBreakManager
    from aioproducer.engine.memory.partition_quota import PartitionQuota
    from aioproducer.engine.observability.diagnostics import SlowCallbacks
    from aioproducer.engine.sender.failed_batches import FailedBatches
    from aioproducer.engine.transactions.coordinator_calls import CoordinatorCalls
    from aioproducer.engine.transactions.transaction_gate import TransactionGate
    from aioproducer.engine.transactions.transaction_manager import TransactionManager
    from aioproducer.model import Compression
    from aioproducer.net.settings import NetSettings
    from aioproducer.net.tokens import TokenKeeper

__all__ = ["EngineParts", "wire"]


class EngineParts(NamedTuple):
    """Holds the parts of one producer that its engine uses, by name."""

    delivery_context: DeliveryContext
    unhandled_failures: UnhandledFailures
    supervisor: Supervisor
    instruments: Instruments
    loop_budget: LoopBudget
    schedule: DrainSchedule
    pool: BufferPool
    ratios: CompressionRatios
    partition_queues: PartitionQueues
    appender: Appender
    admission: Admission
    accumulator: RecordAccumulator
    interception: ProducerInterceptors | None
    cluster: Cluster
    updater: MetadataUpdater
    topic_expiry: TopicExpiry
    topic_expiry_task: TopicExpiryTask
    batch_compressor: BatchCompressor
    failed_batches: FailedBatches | None
    sender: Sender
    flushes: Flushes
    ids: ProducerIds | None
    transaction_manager: TransactionManager | None
    coordinator_calls: CoordinatorCalls | None
    circuit_break_manager: ProducerCircuitBreakManager | None
    gauges: Gauges
    token_keeper: TokenKeeper | None

    def close_interception(self) -> None:
        """Close the user's interceptors: no more records come."""
        if self.interception is not None:
            self.interception.close()

    def close_own_interception(self) -> None:
        """Close the interceptors that were made of classes: the start has failed, and another one makes others."""
        if self.interception is not None:
            self.interception.close_own()


def wire(
    config: ProducerConfig,
    fast_path: FastPath,
    settings: NetSettings,
    wall_clock: Callable[[], float],
    on_crash: Callable[[BaseException], None],
    on_bug: Callable[[BaseException], None],
    check: Callable[[], None],
) -> EngineParts:
    """Make the parts of one producer, each with those that it calls, and return them.

    Where two parts call each other, what one of them needs is made before both: `DrainSchedule`, `TransactionGate`, `MetadataSchedule`.

    Args:
        config: the options.
        fast_path: the fast path of `send`; it gets the functions that it calls.
        settings: of all connections.
        wall_clock: returns the seconds since the epoch.
        on_crash: called with the exception that ended a task of the producer, which is a bug.
        on_bug: called with the exception that a callback of the producer raised.
        check: raises the error that forbids any call now.
    """
    loop = asyncio.get_running_loop()
    # With transactions, a commit raises the failures, so there is no warning.
    unhandled_failures = UnhandledFailures(loop, config.client_id, config.on_delivery_error, warns=config.transactional_id is None)
    delivery_context = DeliveryContext(loop, unhandled_failures.on_failure, wall_clock)
    guard = GuardedLoop(loop, on_bug)
    supervisor = Supervisor(on_crash)
    instruments = Instruments(config, settings.software_version, loop, delivery_context.now_ms())
    backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
    context = EngineContext(config, guard, supervisor.spawn, backoff, settings.chance, instruments)

    loop_budget = LoopBudget(loop, fast_path)
    schedule = DrainSchedule(guard, fast_path, loop_budget, delivery_context.now_ms, check)
    assert isinstance(config.bootstrap_servers, tuple)
    view = ClusterMetadata()
    is_metadata_due = asyncio.Event()
    metadata_schedule = MetadataSchedule(config.metadata_max_age_ms / 1000, is_metadata_due.set)
    settings = settings._replace(
        observer=instruments, cluster_id=lambda: view.cluster_id, on_another_cluster=metadata_schedule.request_brokers
    )
    cluster = Cluster(config.bootstrap_servers, settings, supervisor.spawn, guard.guarded(schedule.on_node))
    gate = _transaction_gate(config, guard, fast_path, cluster) if config.transactional_id is not None else None

    # Batches and their memory
    pool = BufferPool(config.buffer_memory, schedule.turn)
    ratios = CompressionRatios()
    is_identity_needed = asyncio.Event()
    idempotence = Idempotence(
        NO_IDENTITY if config.is_idempotent else None, is_transactional=gate is not None, on_identity_lost=is_identity_needed.set
    )
    partition_queues = _partition_queues(config, pool, gate, _availability(config, view, instruments), idempotence)
    topic_expiry = TopicExpiry(partition_queues.routings, config.metadata_max_idle_ms / 1000)

    # Appends
    checks = RecordValidation(config, PendingSend, delivery_context.watch.call)
    shares = _partition_quota(pool, partition_queues) if config.circuit_breaker_class is not None else None
    room = BatchSizing(config, loop, loop_budget, partition_queues, pool, delivery_context, ratios=ratios, shares=shares)
    appender = Appender(context, fast_path, loop_budget, partition_queues, pool, delivery_context, room=room, shares=shares)
    requests = TopicRequests(
        want=metadata_schedule.want,
        trouble=lambda: metadata_schedule.trouble,
        on_known=lambda topic: topic_expiry.watch(topic, loop.time()),
    )
    admission = Admission(context, fast_path, loop_budget, appender, requests, schedule.turn, gate)
    interception = _interception(config, loop, delivery_context.watch, instruments)
    record_accumulator = RecordAccumulator if gate is None else _transactional_accumulator(gate)
    accumulator = record_accumulator(checks, admission, appender, schedule.check, interception)
    _set_up(fast_path, config, appender, schedule, checks, delivery_context.watch, interception)

    # Metadata
    metadata_settings = MetadataSettings.of(config, backoff, settings.chance)
    updater = MetadataUpdater(
        cluster,
        view,
        metadata_schedule,
        is_metadata_due,
        admission.topics,
        metadata_settings,
        supervisor.spawn,
        on_other_cluster=partial(leave_cluster, partition_queues),
    )

    # Requests
    circuit_break_manager = (
        _circuit_break_manager(context, partition_queues, cluster, admission, delivery_context.watch, schedule.turn)
        if config.circuit_breaker_class is not None
        else None
    )
    failed_batches = _failed_batches(context, pool)
    completions = CompletionQueue(guard, failed_batches)
    completion = BatchCompletion(context, partition_queues, pool, completions, ratios, cluster, circuit_break_manager, gate)
    codec = cast("Compression", config.compression_type)
    batch_compressor = BatchCompressor(guard, schedule, codec, level_of(config), ratios, completion.fail)
    sender = Sender(context, schedule, partition_queues, completion, batch_compressor, admission, cluster, updater)
    flushes = Flushes(context, partition_queues, completion, admission, sender)
    is_numbered = config.is_idempotent and gate is None
    ids = ProducerIds(context, cluster, sender, is_identity_needed, partition_queues.idempotence) if is_numbered else None
    transaction_manager, coordinator_calls = (
        _transactions(context, gate, cluster, partition_queues, admission, sender, updater, flushes) if gate is not None else (None, None)
    )
    topic_expiry_task = TopicExpiryTask(
        topic_expiry,
        partition_queues,
        slices=updater.slices,
        is_in_use=lambda topic: metadata_schedule.is_asked(topic) or admission.topics.is_waited_for(topic),
        forget=[
            updater.forget,
            ratios.forget,
            appender.forget,
            checks.encodings.forget,
            instruments.forget_topic,
            *([circuit_break_manager.forget] if circuit_break_manager is not None else ()),
        ],
        shrink=[
            partial(shrink, partition_queues.routings),
            lambda: shrink(view.topics),
            metadata_schedule.shrink,
            instruments.metrics.shrink,
        ],
    )
    gauges = Gauges(context, pool, partition_queues, admission, cluster, updater, circuit_break_manager, _token_keeper(settings))
    return EngineParts(
        delivery_context,
        unhandled_failures,
        supervisor,
        instruments,
        loop_budget,
        schedule,
        pool,
        ratios,
        partition_queues,
        appender,
        admission,
        accumulator,
        interception,
        cluster,
        updater,
        topic_expiry,
        topic_expiry_task,
        batch_compressor,
        failed_batches,
        sender,
        flushes,
        ids,
        transaction_manager,
        coordinator_calls,
        circuit_break_manager,
        gauges,
        _token_keeper(settings),
    )


def _interception(
    config: ProducerConfig, loop: asyncio.AbstractEventLoop, watch: SlowCallbacks, instruments: Instruments
) -> ProducerInterceptors | None:
    """Return what calls the user's interceptors; None: there are none."""
    if not config.interceptors:
        return None
    return ProducerInterceptors(config.interceptors, loop, watch, instruments.metrics)


def _transactional_accumulator(gate: TransactionGate) -> Callable[..., RecordAccumulator]:
    """Return what makes an accumulator that takes records into transactions alone."""
    return partial(TransactionalRecordAccumulator, transaction=gate)


# What few producers have is imported for them alone.


def _partition_quota(pool: BufferPool, partition_queues: PartitionQueues) -> PartitionQuota:
    """Return the quota of the memory that a partition may hold, so that one that fails does not take all."""
    from aioproducer.engine.memory.partition_quota import PartitionQuota

    return PartitionQuota(pool, partition_queues)


def _circuit_break_manager(
    context: EngineContext,
    partition_queues: PartitionQueues,
    cluster: Cluster,
    admission: Admission,
    watch: SlowCallbacks,
    schedule_drain: Callable[[], None],
) -> ProducerCircuitBreakManager:
    """Return what mutes partitions that fail."""
    from aioproducer.engine.circuit_breaker.manager import ProducerCircuitBreakManager

    return ProducerCircuitBreakManager(context, partition_queues, cluster, admission, watch, schedule_drain)


def _transactions(
    context: EngineContext,
    gate: TransactionGate,
    cluster: Cluster,
    partition_queues: PartitionQueues,
    admission: Admission,
    sender: Sender,
    updater: MetadataUpdater,
    flushes: Flushes,
) -> tuple[TransactionManager, CoordinatorCalls]:
    """Return what runs the transactions, and what asks coordinators on behalf of single calls."""
    from aioproducer.engine.transactions.coordinator_calls import CoordinatorCalls
    from aioproducer.engine.transactions.transaction_manager import TransactionManager

    manager = TransactionManager(context, gate, cluster, partition_queues, admission, sender, updater, flushes)
    return manager, CoordinatorCalls(context, cluster, updater.add_coordinator)


def _transaction_gate(config: ProducerConfig, guard: GuardedLoop, fast_path: FastPath, cluster: Cluster) -> TransactionGate:
    """Return what holds back the records of a producer with transactions."""
    from aioproducer.engine.transactions.transaction_gate import TransactionGate
    from aioproducer.engine.transactions.transaction_manager import FEATURE

    return TransactionGate(config, guard, fast_path, partial(cluster.feature, FEATURE))


def _set_up(
    fast_path: FastPath,
    config: ProducerConfig,
    appender: Appender,
    schedule: DrainSchedule,
    checks: RecordValidation[PendingSend],
    watch: SlowCallbacks,
    interceptors: ProducerInterceptors | None,
) -> None:
    """Give the fast path what it calls, and the user's functions, which it times."""
    fast_path.make_room, fast_path.goes_on, fast_path.tick = appender.make_room, schedule.loop_budget.goes_on, schedule.tick
    fast_path.takes_headers = config.message_format_max == NEWEST
    fast_path.watch = watch
    fast_path.encodings = None if checks.encodings.is_plain else checks.encodings.by_topic
    if has_hooks(config):
        hooked = cast("HookedFastPath", fast_path)
        hooked.interception, hooked.choose = interceptors, appender.partitioner
        hooked.longest = appender.room.first - MOST_OVERHEAD


def _token_keeper(settings: NetSettings) -> TokenKeeper | None:
    """Return what keeps the bearer token; None: connections have none."""
    return None if settings.security is None else settings.security.tokens


def _failed_batches(context: EngineContext, pool: BufferPool) -> FailedBatches | None:
    """Return what hands the records of failed batches to `on_failed`; None: the user has none."""
    if context.config.on_failed is None:
        return None
    from aioproducer.engine.sender.failed_batches import FailedBatches

    return FailedBatches(context, pool)


def _availability(config: ProducerConfig, view: ClusterMetadata, instruments: Instruments) -> Availability:
    """Return what decides which partitions records without a key may go to."""
    is_near = partial(view.is_in_rack, config.client_rack) if config.partitioner_rack_aware and config.client_rack else None
    return Availability(config.partitioner_availability_timeout_ms / 1000, is_near, instruments.late)


def _partition_queues(
    config: ProducerConfig, pool: BufferPool, gate: TransactionGate | None, availability: Availability, idempotence: Idempotence
) -> PartitionQueues:
    """Return the queues of batches by partition."""
    return PartitionQueues(
        chosen_build.FULL,
        linger=config.fixed_linger_ms / 1000,
        policy=DrainPolicy(Linger.of(config.linger_ms)),
        lifetime=config.delivery_timeout_ms / 1000,
        on_close=partial(settle, pool),
        on_open=gate.on_open if gate is not None else None,
        availability=availability,
        idempotence=idempotence,
    )
