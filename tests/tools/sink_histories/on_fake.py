"""Histories on the fake cluster: real producers, a real resolver, and every byte between them."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer import (
    KafkaError,
    Producer,
    ProducerConfig,
    TransactionResolver,
    TransactionTimeout,
)
from aioproducer.spark.exactly_once import Ledger
from aioproducer.spark.ledger_client import IdleProducers
from aioproducer.testing import FakeCluster
from aioproducer.testing.jumping import run_jumping
from tests.tools.sink_histories.history import (
    MAX_IDLE,
    NAME,
    TOPIC,
    AdoptedProducers,
    History,
    run_history,
)
from tests.tools.sink_histories.plan import Plan, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.tools.sink_histories.process import Process

__all__ = ["FakeClients", "run_on_fake"]

_CALLS: Final = frozenset(
    {
        "init_transactions",
        "begin_transaction",
        "send_position_to_transaction",
        "prepare_transaction",
        "commit_transaction",
        "abort_transaction",
        "stop",
        "commit",
        "abort",
        "committed_offset",
    }
)


class Mortal:
    """A producer or a resolver as a process has it: once the process is dead, no call reaches it."""

    def __init__(self, whole: Any, process: Process) -> None:
        self.whole = whole
        self.process = process

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.whole, name)
        return self._mortal(found) if name in _CALLS else found

    def _mortal(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def called(*args: Any, **options: Any) -> Any:
            await self.process.step()
            try:
                answer = await call(*args, **options)
            finally:
                await self.process.step()
            if self.process.loses():
                raise TransactionTimeout("an answer was lost")
            return answer

        return called


class FakeClients:
    """Producers and the resolver of one fake cluster."""

    def __init__(
        self, cluster: FakeCluster, resolver: TransactionResolver, chance: Callable[[], float]
    ) -> None:
        self.cluster = cluster
        self.chance = chance
        self.resolver = resolver
        self.producers: list[Producer[Any, Any]] = []
        self._idle = IdleProducers(MAX_IDLE)

    def make_ledger(self, process: Process, max_ends: int) -> Ledger:
        config = ProducerConfig(
            bootstrap_servers=self.cluster.bootstrap_servers,
            transaction_timeout_ms=60_000,
            max_block_ms=60_000,
            delivery_timeout_ms=60_000,
        )
        return Ledger(
            NAME,
            TOPIC,
            config,
            cast("Any", Mortal(self.resolver, process)),
            lambda config: self._producer(config, process),
            max_ends,
            AdoptedProducers(self._idle, process),
        )

    def _producer(self, config: ProducerConfig, process: Process) -> Any:
        producer = Producer(config, dialer=self.cluster.network, chance=self.chance)
        self.producers.append(producer)
        return Mortal(producer, process)

    async def write(self, producer: Mortal, rows: Iterable[Row]) -> None:
        for row in rows:
            await producer.process.step()
            await producer.whole.send_and_wait(TOPIC, b"%d-%d" % row)
            await producer.process.step()

    def rows(self, isolation: Any) -> list[Row]:
        values = self.cluster.values(TOPIC, isolation=isolation)
        return [Row(*map(int, value.split(b"-"))) for value in values if value is not None]

    async def committed(self) -> list[Row]:
        return self.rows("read_committed")

    async def close(self) -> None:
        """Stop what processes left behind when they died."""
        for producer in self.producers:
            with contextlib.suppress(KafkaError):
                await producer.stop()


def run_on_fake(seed: int, log: list[str] | None = None) -> History:
    """The history of a seed."""
    history = History(Plan.of(seed), log)

    async def main() -> None:
        plan = history.plan
        async with FakeCluster(memory=True, transaction_version=plan.version) as cluster:
            cluster.create_topic(TOPIC, partitions=2)
            cluster.transactions.marker_delay = plan.marker_delay
            chance = random.Random(~plan.seed).random
            async with TransactionResolver(
                bootstrap_servers=cluster.bootstrap_servers, dialer=cluster.network, chance=chance
            ) as resolver:
                clients = FakeClients(cluster, resolver, chance)
                try:
                    await run_history(history, clients)
                finally:
                    await clients.close()
            history.counts["histories with aborted rows"] += len(
                clients.rows("read_uncommitted")
            ) > len(clients.rows("read_committed"))
            history.violations += [
                f"violation of Kafka's rules: {violation}" for violation in cluster.violations
            ]

    run_jumping(main())
    return history
