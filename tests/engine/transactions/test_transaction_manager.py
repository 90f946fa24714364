"""Tests of `aioproducer.engine.transactions.transaction_manager`: what it tells the other parts, and how its calls wait.

The requests and their answers: tests/scenarios/test_transactions.py and test_transaction_faults.py.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from jumping import run, settle
from nodes import now

from aioproducer.config import ProducerConfig
from aioproducer.core.sequence_numbers import ProducerIdAndEpoch
from aioproducer.core.transactions.transaction import State
from aioproducer.engine.chosen_build import FastPath
from aioproducer.engine.transactions.transaction_gate import TransactionGate
from aioproducer.engine.transactions.transaction_manager import TransactionManager
from aioproducer.errors import (
    DeliveryError,
    Persisted,
    ProducerClosed,
    TransactionAborted,
    UsageError,
)
from tests.engine.append.parts import Parts as AppendParts
from tests.engine.append.parts import engine_context


class Stage:
    """The manager with no broker, and what it tells the parts that it controls."""

    def __init__(self, *, level: int = 2, **options: Any) -> None:
        self.gates: list[bool] = []
        self.dropped: list[Exception] = []
        self.unsent: list[Exception] = []
        self.flushed = asyncio.Event()
        self.spawned: list[asyncio.Task[None]] = []
        config = ProducerConfig(bootstrap_servers="here:1", transactional_id="mine", **options)
        self.path = FastPath(lambda: 0, None)  # type: ignore[arg-type]
        loop: Any = asyncio.get_running_loop()
        cluster: Any = SimpleNamespace(
            candidates=lambda: iter(()), node=lambda _node_id: None, feature=lambda _name: level
        )
        self.gate = TransactionGate(config, loop, self.path, cluster)
        self.append = AppendParts(1, on_open=self.gate.on_open)
        admission: Any = SimpleNamespace(
            gate=lambda: self.gates.append(self.gate.is_open),
            drop=lambda error: self.dropped.append(error()),
        )
        sender: Any = SimpleNamespace(
            identify=lambda identity, _transactional_id: setattr(
                self.append.queues, "granted", identity
            ),
            turn=lambda: None,
            drop_unsent=self.unsent.append,
        )
        parts: Any = SimpleNamespace(
            cluster=cluster,
            partition_queues=self.append.queues,
            admission=admission,
            sender=sender,
            updater=SimpleNamespace(add_coordinator=lambda _broker: True),
            flushes=SimpleNamespace(flush=self._flush),
        )
        context = engine_context(config, loop, spawn=self._spawn, chance=0.5)
        self.manager = TransactionManager(context, self.gate, parts)

    async def _flush(self, _timeout: float | None) -> None:
        await self.flushed.wait()

    def _spawn(self, coroutine: Any, _name: str) -> None:
        self.spawned.append(asyncio.ensure_future(coroutine))

    def grant(self) -> None:
        """Let the producer have an id, as an answer to InitProducerId does."""
        self.manager.transaction.granted(ProducerIdAndEpoch(7, 0), 6)
        self.manager._move()
        self.manager._on_change()


def staged(test: Any) -> Any:
    """Run a test in a loop that jumps, with a stage."""

    def runs() -> None:
        async def main() -> None:
            stage = Stage(max_block_ms=2000)
            await test(stage)
            for flush in stage.spawned:
                flush.cancel()

        run(main())

    runs.__doc__ = test.__doc__
    return runs


@staged
async def test_the_fast_path_is_open_within_transactions_alone(stage: Stage) -> None:
    assert not stage.gate.is_open
    stage.grant()
    with pytest.raises(UsageError, match="begin_transaction"):
        stage.gate.check_send()
    await stage.manager.begin()
    stage.gate.check_send()
    assert stage.gates[-1] is True
    commit = asyncio.ensure_future(stage.manager.commit())
    await settle()
    assert stage.gates[-1] is False
    commit.cancel()


@staged
async def test_a_call_that_is_cancelled_leaves_its_operation_going_on(stage: Stage) -> None:
    """The same call waits for it again; another one is refused."""
    stage.grant()
    await stage.manager.begin()
    for _ in range(2):
        commit = asyncio.ensure_future(stage.manager.commit())
        await settle()
        commit.cancel()
        await asyncio.wait([commit])
        assert stage.manager.transaction.state is State.COMMITTING
    with pytest.raises(UsageError):
        await stage.manager.begin()


@staged
async def test_the_end_of_the_producer_ends_every_wait(stage: Stage) -> None:
    begin = asyncio.ensure_future(stage.manager.begin())
    await settle()
    stage.manager.check_running()
    stage.manager.close(lambda: ProducerClosed("it stopped"))
    with pytest.raises(ProducerClosed, match="it stopped"):
        await begin
    with pytest.raises(ProducerClosed, match="it stopped"):
        stage.manager.check_running()


@staged
async def test_a_failed_batch_fails_its_transaction_and_an_abort_drops_what_is_unsent(
    stage: Stage,
) -> None:
    stage.grant()
    await stage.manager.begin()
    stage.append.place()
    (batch,) = stage.append.sent()
    stage.gate.on_failure(
        batch,
        DeliveryError("it broke", topic="orders", partition=0, persisted=Persisted.NO, attempts=1),
    )
    with pytest.raises(Exception, match="it broke"):
        await stage.manager.commit()
    stage.manager._move()
    assert ["it broke" in str(error) for error in (*stage.dropped, *stage.unsent)] == [True, True]


@staged
async def test_giving_up_aborts_what_is_open_in_bounded_time(stage: Stage) -> None:
    """Its records are dropped; a transaction that has ended is left alone."""
    stage.grant()
    await stage.manager.give_up(5)
    assert stage.manager.transaction.state is State.READY
    await stage.manager.begin()
    began = now()
    await stage.manager.give_up(5)
    assert now() - began == pytest.approx(5)
    assert stage.manager.transaction.state is State.ABORTING
    stage.manager._move()
    assert [type(error) for error in (*stage.dropped, *stage.unsent)] == [TransactionAborted] * 2
