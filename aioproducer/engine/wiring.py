"""Makes the parts of one producer and connects them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from aioproducer.core.availability import Availability
from aioproducer.core.backoff import Backoff
from aioproducer.core.metadata.metadata_schedule import MetadataSchedule
from aioproducer.core.metadata.topic_expiry import TopicExpiry, shrink
from aioproducer.core.partition_queues import PartitionQueues
from aioproducer.core.sequence_numbers import NO_IDENTITY
from aioproducer.engine.append.admission import Admission
from aioproducer.engine.append.appender import Appender
from aioproducer.engine.append.batch_sizing import BatchSizing
from aioproducer.engine.append.interceptors import ProducerInterceptors
from aioproducer.engine.append.loop_budget import LoopBudget
from aioproducer.engine.append.record_accumulator import RecordAccumulator
from aioproducer.engine.append.record_validation import RecordValidation
from aioproducer.engine.append.transactional_accumulator import TransactionalRecordAccumulator
from aioproducer.engine.circuit_breaker.manager import ProducerCircuitBreakManager
from aioproducer.engine.delivery import chosen_build
from aioproducer.engine.delivery.chosen_build import DeliveryContext
from aioproducer.engine.delivery.completion_queue import CompletionQueue
from aioproducer.engine.delivery.unhandled_failures import UnhandledFailures
from aioproducer.engine.gauges import Gauges
from aioproducer.engine.memory.buffer_pool import BufferPool
from aioproducer.engine.memory.partition_quota import PartitionQuota
from aioproducer.engine.metadata.metadata_updater import MetadataUpdater
from aioproducer.engine.metadata.topic_expiry import TopicExpiryTask
from aioproducer.engine.metadata.topic_waiters import TopicRequests
from aioproducer.engine.observability.instruments import Instruments
from aioproducer.engine.sender.batch_compressor import BatchCompressor
from aioproducer.engine.sender.record_formats import NEWEST, level_of
from aioproducer.engine.sender.sender import Sender
from aioproducer.engine.tasks.guarded_loop import GuardedLoop
from aioproducer.engine.tasks.supervisor import Supervisor
from aioproducer.engine.transactions.producer_id import ProducerIds
from aioproducer.engine.transactions.transaction_manager import Parts, TransactionManager
from aioproducer.net.cluster import Cluster
from aioproducer.net.settings import net_settings
from aioproducer.records.compression_ratio_estimator import CompressionRatios

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Awaitable, Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.engine.append.chosen_build import FastPath
    from aioproducer.interfaces import Dialer, Resolver
    from aioproducer.model import Compression, FlushSummary
    from aioproducer.net.broker_connection import NetSettings

__all__ = ["Wiring"]


class Wiring:
    """Holds the parts of one producer by name. The other arguments are those of `Runtime`.

    Args:
        on_crash: called with the exception that ended a task of the producer, which is a bug.
        on_bug: called with the exception that a callback of the producer raised.
        flush: sends all queued records now, for a commit.
        check: raises the error that forbids a send now.
    """

    def __init__(
        self,
        config: ProducerConfig,
        loop: AbstractEventLoop,
        way: FastPath,
        dialer: Dialer,
        resolver: Resolver,
        version: str,
        *,
        chance: Callable[[], float],
        wall_clock: Callable[[], float],
        on_crash: Callable[[BaseException], None],
        on_bug: Callable[[BaseException], None],
        flush: Callable[[float | None], Awaitable[FlushSummary]],
        check: Callable[[], None],
    ) -> None:
        self._check = check
        self._config = config
        self._loop = loop
        self._chance = chance
        self._backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        # With transactions, a commit raises the failures, so there is no warning.
        unseen = UnhandledFailures(loop, warns=config.transactional_id is None)
        self.delivery_context = DeliveryContext(loop, unseen.on_failure, wall_clock)
        if config.on_delivery_error is not None:
            unseen.hook = self.delivery_context.watch.over("on_delivery_error", config.on_delivery_error)
        self._guard = GuardedLoop(loop, on_bug)
        self.supervisor = Supervisor(on_crash)
        self.instruments = Instruments(config, version, loop.time, self.delivery_context.now_ms())
        self.turn = LoopBudget(loop, way)
        self._make_senders(way)
        self._make_doors(way)
        settings = net_settings(config, version, dialer, resolver, chance)._replace(observer=self.instruments.observer)
        self._make_askers(settings)
        self.circuit_break_manager = self._make_breaking()
        self.idle = self._make_idle()
        self.sender.connect(self.appender, self.admission, self.cluster, self.updater.urge, self.updater.hint)
        self.ids = self._make_ids(settings)
        self.transaction_manager = self._make_transactor(flush)
        self.gauges = Gauges(config, self.pool, self.partition_queues, self.admission, self.cluster, self.updater, loop.time)
        if self.circuit_break_manager is not None:
            self.gauges.open_breakers = self.circuit_break_manager.told
        self.sender.on_identity = self.instruments.identity
        self.partition_queues.availability.on_late = self.instruments.late

    def _make_senders(self, way: FastPath) -> None:
        """Make the parts that hold batches and send them."""
        config = self._config
        self.pool = BufferPool(config.buffer_memory)
        self.ratios = CompressionRatios()
        self.batch_compressor = BatchCompressor(
            self._guard,
            cast("Compression", config.compression_type),
            level_of(config),
            self.ratios,
            in_slices=config.linger_ms == 0,
        )
        self.partition_queues = PartitionQueues(
            chosen_build.FULL,
            linger=config.fixed_linger_ms / 1000,
            by_load=config.linger_ms == "auto",
            lifetime=config.delivery_timeout_ms / 1000,
            on_close=self._on_close,
            availability=Availability(
                config.partitioner_availability_timeout_ms / 1000,
                self._is_near if config.partitioner_rack_aware and config.client_rack else None,
            ),
        )
        self.partition_queues.is_transactional = config.transactional_id is not None
        self.partition_queues.granted = NO_IDENTITY if config.is_idempotent else None
        completions = CompletionQueue(self._guard)
        self.sender = Sender(
            config,
            self._guard,
            way,
            self.turn,
            self.partition_queues,
            self.pool,
            completions,
            self.batch_compressor,
            self._backoff,
            self._chance,
            self.instruments.meter,
        )

    def _make_doors(self, way: FastPath) -> None:
        """Make the parts that append records."""
        config = self._config
        checks = RecordValidation(config, self.delivery_context.watch)
        shares = PartitionQuota(self.pool, self.partition_queues, is_bounded=config.circuit_breaker_class is not None)
        self.room = BatchSizing(
            config,
            self._loop,
            self.turn,
            self.partition_queues,
            self.pool,
            self.delivery_context,
            ratios=self.ratios,
            shares=shares,
        )
        self.appender = Appender(
            config,
            self._loop,
            way,
            self.turn,
            self.partition_queues,
            self.pool,
            self.delivery_context,
            room=self.room,
            shares=shares,
            chance=self._chance,
        )
        requests = TopicRequests(
            want=self._want,
            trouble=lambda: self.updater.trouble,
            on_known=lambda topic: self.idling.watch(topic, self._loop.time()),
        )
        self.admission = Admission(config, self._guard, way, self.turn, self.appender, requests, self.sender.turn, self.instruments.meter)
        self.interception = ProducerInterceptors(config.interceptors, self._loop, self.delivery_context.watch, self.instruments.metrics)
        kind = RecordAccumulator if config.transactional_id is None else TransactionalRecordAccumulator
        self.accumulator = kind(
            checks,
            self.admission,
            self.appender,
            self.delivery_context,
            self._check,
            self.interception if config.interceptors else None,
        )
        way.make_room, way.goes_on = self.appender.make_room, self.turn.goes_on
        way.takes_headers = config.message_format_max == NEWEST

    def _make_askers(self, settings: NetSettings) -> None:
        """Make the cluster and the metadata updater."""
        config = self._config
        servers = config.bootstrap_servers
        assert isinstance(servers, tuple)
        self.cluster = Cluster(servers, settings, self.supervisor.spawn, self._guard.guarded(self.sender.on_node))
        topics = self.admission.topics
        self.updater = MetadataUpdater(
            self.cluster,
            self._backoff,
            MetadataSchedule(config.metadata_max_age_ms / 1000, self._is_needed),
            request_timeout=settings.request_timeout,
            recovery_time=config.metadata_recovery_rebootstrap_trigger_ms / 1000,
            auto_create=config.allow_auto_create_topics,
            chance=self._chance,
            spawn=self.supervisor.spawn,
            topics=lambda: (*self.partition_queues.routings, *topics.waited_for()),
            is_needed=self._is_needed,
            on_topic=topics.on_topic,
            on_leader=topics.on_leader,
        )

    def _make_breaking(self) -> ProducerCircuitBreakManager | None:
        if self._config.circuit_breaker_class is None:
            return None
        sender, events = self.sender, self.instruments.events
        sender.circuit_break_manager = circuit_break_manager = ProducerCircuitBreakManager(
            self._config, self._guard, self.partition_queues, self.cluster, self.admission, self.delivery_context.watch, events, sender.turn
        )
        sender.ends.on_freed = circuit_break_manager.freed
        return circuit_break_manager

    def _make_idle(self) -> TopicExpiryTask:
        self.idling = TopicExpiry(self.partition_queues.routings, self._config.metadata_max_idle_ms / 1000)
        return TopicExpiryTask(
            self.idling,
            self.partition_queues,
            slices=self.updater.slices,
            is_in_use=lambda topic: self.updater.is_asked(topic) or self.admission.topics.is_waited_for(topic),
            forget=[
                self.updater.forget,
                self.ratios.forget,
                self.appender.forget,
                self.instruments.forgotten,
                *([self.circuit_break_manager.forget] if self.circuit_break_manager is not None else ()),
            ],
            shrink=[partial(shrink, self.partition_queues.routings), self.updater.shrink, self.instruments.metrics.shrink],
        )

    def _make_ids(self, settings: NetSettings) -> ProducerIds | None:
        if not self._config.is_idempotent or self._config.transactional_id is not None:
            return None
        return ProducerIds(
            self.cluster,
            self.partition_queues,
            self._backoff,
            request_timeout=settings.request_timeout,
            chance=self._chance,
            identify=self.sender.identify,
            go_without=self.sender.go_without_numbers,
            fail=self.sender.drop_unsent,
        )

    def _make_transactor(self, flush: Callable[[float | None], Awaitable[FlushSummary]]) -> TransactionManager | None:
        if not isinstance(self.accumulator, TransactionalRecordAccumulator):
            return None
        meet, spawn, meter = self.updater.meet, self.supervisor.spawn, self.instruments.meter
        parts = Parts(self.cluster, self.partition_queues, self.sender, self.admission, meet, flush, spawn, meter)
        self.accumulator.transaction_manager = transaction_manager = TransactionManager(self._config, parts, self._backoff, self._chance)
        return transaction_manager

    def _on_close(self, batch: ProducerBatch) -> None:
        self.room.settle(batch)

    def _want(self, topic: str) -> None:
        self.updater.want(topic)

    def _is_near(self, node_id: int) -> bool:
        broker = self.updater.view.brokers.get(node_id)
        return broker is not None and broker.rack == self._config.client_rack

    def _is_needed(self, topic: str) -> bool:
        return topic in self.partition_queues.routings or self.admission.topics.is_waited_for(topic)
