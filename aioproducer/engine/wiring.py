"""Makes the parts of one producer, and shows which holds which."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from aioproducer.core.availability import Availability
from aioproducer.core.drain_policy import DrainPolicy, Linger
from aioproducer.core.metadata.cluster_metadata import ClusterMetadata
from aioproducer.core.metadata.metadata_schedule import MetadataSchedule, TopicExpiry
from aioproducer.core.partition_queues import PartitionQueues
from aioproducer.core.record_validation import RecordValidation
from aioproducer.core.retries import Backoff
from aioproducer.core.sequence_numbers import NO_IDENTITY, Idempotence
from aioproducer.engine import chosen_build
from aioproducer.engine.append.admission import Admission
from aioproducer.engine.append.appender import Appender
from aioproducer.engine.append.batch_sizing import BatchSizing, settle
from aioproducer.engine.append.interceptors import ProducerInterceptors
from aioproducer.engine.append.loop_budget import DrainSchedule, LoopBudget
from aioproducer.engine.append.record_accumulator import RecordAccumulator
from aioproducer.engine.chosen_build import DeliveryContext, FastPath
from aioproducer.engine.circuit_breaker.circuit_break_manager import ProducerCircuitBreakManager
from aioproducer.engine.context import EngineContext
from aioproducer.engine.delivery.completion_queue import CompletionQueue
from aioproducer.engine.delivery.unhandled_failures import UnhandledFailures
from aioproducer.engine.gauges import Gauges
from aioproducer.engine.memory.buffer_pool import BufferPool
from aioproducer.engine.memory.partition_quota import PartitionQuota
from aioproducer.engine.memory.pending_send import PendingSend
from aioproducer.engine.metadata.metadata_updater import MetadataUpdater
from aioproducer.engine.observability.metrics_recorder import Instruments
from aioproducer.engine.sender.batch_completion import BatchCompletion
from aioproducer.engine.sender.batch_compressor import BatchCompressor
from aioproducer.engine.sender.failed_batches import FailedBatches
from aioproducer.engine.sender.flushes import Flushes
from aioproducer.engine.sender.parcel import NEWEST
from aioproducer.engine.sender.record_formats import level_of
from aioproducer.engine.sender.sender import Sender
from aioproducer.engine.tasks.supervisor import GuardedLoop, Supervisor
from aioproducer.engine.transactions.coordinator_calls import CoordinatorCalls
from aioproducer.engine.transactions.producer_id import ProducerIds
from aioproducer.engine.transactions.transaction_gate import TransactionGate
from aioproducer.engine.transactions.transaction_manager import TransactionManager
from aioproducer.net.cluster import Cluster
from aioproducer.records.compression import CompressionRatios

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.engine.resolver_runtime import ResolverRuntime
    from aioproducer.engine.runtime import Runtime
    from aioproducer.model import Compression
    from aioproducer.net.settings import NetSettings


class ClusterParts:
    """Holds the parts that a producer and a TransactionResolver both have: the brokers, their metadata, and what each part is given.

    Args:
        settings: of all connections.
        runtime: the owner, which fails after a bug and hears of each change of a broker.
    """

    def __init__(
        self, config: ProducerConfig, settings: NetSettings, runtime: Runtime | ResolverRuntime
    ) -> None:
        loop = asyncio.get_running_loop()
        guard = GuardedLoop(loop, runtime.on_bug)
        self.supervisor = Supervisor(runtime.fail)
        self.instruments = Instruments(
            config, settings.software_version, loop, int(settings.wall_clock() * 1000)
        )
        self.context = EngineContext(
            config,
            guard,
            self.supervisor,
            Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000),
            settings.chance,
            self.instruments,
        )
        view = ClusterMetadata()
        is_metadata_due = asyncio.Event()
        metadata = MetadataSchedule(config.metadata_max_age_ms / 1000, is_metadata_due.set)
        settings = settings._replace(
            observer=self.instruments,
            cluster_id=lambda: view.cluster_id,
            on_another_cluster=metadata.request_brokers,
            step=guard.step,
        )
        self.token_keeper = None if settings.security is None else settings.security.tokens
        assert isinstance(config.bootstrap_servers, tuple)
        self.cluster = Cluster(
            config.bootstrap_servers,
            settings,
            self.supervisor.spawn,
            guard.guarded(runtime.on_node),
        )
        self.updater = MetadataUpdater(self.context, self.cluster, view, metadata, is_metadata_due)

    async def start(self) -> None:
        """Start the tasks that each connection may need."""
        await self.supervisor.start()
        if self.token_keeper is not None:
            self.supervisor.spawn(self.token_keeper.run(self.instruments), "token")

    @property
    def unreached(self) -> object | None:
        """Return the error because of which some broker cannot be used now; None: no error is known."""
        nodes = (*self.cluster.nodes, *self.cluster.bootstrap)
        return next((node.last_error for node in nodes if node.last_error), None)


class EngineParts(ClusterParts):
    """Holds the parts of one producer. A part is given those that it calls; the few that call back get theirs by an assignment.

    Args:
        fast_path: the fast path of `send`.
        settings: of all connections.
        runtime: the owner, which fails the producer after a bug and refuses calls after its end.
    """

    def __init__(
        self, config: ProducerConfig, fast_path: FastPath, settings: NetSettings, runtime: Runtime
    ) -> None:
        super().__init__(config, settings, runtime)
        loop, context = asyncio.get_running_loop(), self.context
        guard, view, metadata = context.loop, self.updater.view, self.updater.schedule
        # With transactions, a commit raises the failures, so there is no warning.
        self.unhandled_failures = UnhandledFailures(
            loop, config.client_id, config.on_delivery_error, warns=not config.transactional_id
        )
        self.delivery_context = DeliveryContext(
            loop, self.unhandled_failures.on_failure, settings.wall_clock
        )
        watch = self.delivery_context.watch
        # Interceptors and a partitioner of the user's come before a record is appended. So `send` finds its fast path closed, and this one
        # takes what they have made.
        if config.interceptors or config.partitioner is not None:
            fast_path = FastPath(fast_path.tick, fast_path.slowly)
        self.fast_path = fast_path
        self.loop_budget = LoopBudget(loop, fast_path)
        self.schedule = DrainSchedule(
            guard, fast_path, self.loop_budget, self.delivery_context.now_ms, runtime.check
        )
        gate = (
            TransactionGate(config, guard, fast_path, self.cluster)
            if config.transactional_id is not None
            else None
        )

        # Batches and their memory
        self.pool = BufferPool(config.buffer_memory, self.schedule.turn)
        self.ratios = CompressionRatios()
        is_near = (
            partial(view.is_in_rack, config.client_rack)
            if config.partitioner_rack_aware and config.client_rack
            else None
        )
        is_identity_needed = asyncio.Event()
        self.partition_queues = PartitionQueues(
            chosen_build.FULL,
            linger=config.fixed_linger_ms / 1000,
            policy=DrainPolicy(Linger.of(config.linger_ms)),
            lifetime=config.delivery_timeout_ms / 1000,
            on_close=partial(settle, self.pool),
            on_open=gate.on_open if gate is not None else None,
            availability=Availability(
                config.partitioner_availability_timeout_ms / 1000, is_near, self.instruments.late
            ),
            idempotence=Idempotence(
                NO_IDENTITY if config.is_idempotent else None,
                is_transactional=gate is not None,
                on_identity_lost=is_identity_needed.set,
            ),
        )
        self.topic_expiry = TopicExpiry(
            self.partition_queues.routings, config.metadata_max_idle_ms / 1000
        )

        # Appends
        self.validation = RecordValidation(config, PendingSend, watch.call)
        shares = (
            PartitionQuota(self.pool, self.partition_queues)
            if config.circuit_breaker_class is not None
            else None
        )
        shared = (self.loop_budget, self.partition_queues, self.pool, self.delivery_context)
        room = BatchSizing(config, loop, *shared, ratios=self.ratios, shares=shares)
        self.appender = Appender(context, fast_path, *shared, room=room, shares=shares)
        self.admission = Admission(
            context,
            fast_path,
            self.loop_budget,
            self.appender,
            metadata,
            self.topic_expiry,
            self.schedule,
            gate,
        )
        self.updater.topics = self.admission.topics
        self.interception = (
            ProducerInterceptors(config.interceptors, loop, watch, self.instruments.metrics)
            if config.interceptors
            else None
        )
        self.accumulator = RecordAccumulator(
            self.validation,
            self.admission,
            self.appender,
            self.schedule.check,
            self.interception,
            gate,
        )
        fast_path.make_room, fast_path.goes_on, fast_path.tick = (
            partial(guard.step, self.appender.make_room),
            self.loop_budget.goes_on,
            self.schedule.tick,
        )
        fast_path.takes_headers = config.message_format_max == NEWEST
        fast_path.watch = watch
        fast_path.encodings = (
            None if self.validation.encodings.is_plain else self.validation.encodings.by_topic
        )

        # Requests
        self.circuit_break_manager = (
            ProducerCircuitBreakManager(
                context, self.partition_queues, self.cluster, self.admission, watch, self.schedule
            )
            if config.circuit_breaker_class is not None
            else None
        )
        self.failed_batches = (
            FailedBatches(context, self.pool) if config.on_failed is not None else None
        )
        completions = CompletionQueue(guard, self.failed_batches)
        completion = BatchCompletion(
            context,
            self.partition_queues,
            self.pool,
            completions,
            self.ratios,
            self.cluster,
            self.circuit_break_manager,
            gate,
        )
        codec = cast("Compression", config.compression_type)
        self.batch_compressor = BatchCompressor(
            guard, self.schedule, codec, level_of(config), self.ratios, completion.fail
        )
        self.sender = Sender(
            context,
            self.schedule,
            self.partition_queues,
            completion,
            self.batch_compressor,
            self.admission,
            self.cluster,
            self.updater,
        )
        self.flushes = Flushes(
            context, self.partition_queues, completion, self.admission, self.sender
        )

        # Producer ids and transactions
        self.ids = (
            ProducerIds(
                context,
                self.cluster,
                self.sender,
                is_identity_needed,
                self.partition_queues.idempotence,
            )
            if config.is_idempotent and gate is None
            else None
        )
        self.transaction_manager = (
            TransactionManager(context, gate, self) if gate is not None else None
        )
        self.coordinator_calls = (
            CoordinatorCalls(context, self.cluster, self.updater) if gate is not None else None
        )
        self.gauges = Gauges(context, self)

    def close_interception(self) -> None:
        """Close the user's interceptors: no more records come."""
        if self.interception is not None:
            self.interception.close()

    def close_own_interception(self) -> None:
        """Close the interceptors that were made of classes: the start has failed, and another one makes others."""
        if self.interception is not None:
            self.interception.close_own()
