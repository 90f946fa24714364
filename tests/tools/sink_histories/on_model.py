"""Histories on the model."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

from aioproducer.spark.exactly_once import Ledger
from aioproducer.spark.ledger_client import IdleProducers
from aioproducer.testing.jumping import run_jumping
from tests.tools.sink_histories.history import (
    MAX_IDLE,
    NAME,
    TOPIC,
    AdoptedProducers,
    History,
    run_history,
)
from tests.tools.sink_histories.model import Config, Model, ModelProducer, ModelResolver
from tests.tools.sink_histories.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.tools.sink_histories.plan import Row
    from tests.tools.sink_histories.process import Process

__all__ = ["ModelClients", "run_on_model"]


class ModelClients:
    """Producers and resolvers of one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._idle = IdleProducers(MAX_IDLE)

    def make_ledger(self, process: Process, max_ends: int) -> Ledger:
        return Ledger(
            NAME,
            TOPIC,
            cast("Any", Config()),
            cast("Any", ModelResolver(self.model, process)),
            cast("Any", lambda config: ModelProducer(self.model, process, config)),
            max_ends,
            AdoptedProducers(self._idle, process),
        )

    async def write(self, producer: ModelProducer, rows: Iterable[Row]) -> None:
        await producer.write(rows)

    async def committed(self) -> list[Row]:
        self.model.now()
        return self.model.committed


def run_on_model(seed: int, log: list[str] | None = None) -> History:
    """The history of a seed."""
    history = History(Plan.of(seed), log)

    async def main() -> None:
        plan = history.plan
        model = Model(plan.version, random.Random(~plan.seed), plan.marker_delay, plan.rotates)
        await run_history(history, ModelClients(model))
        history.counts["histories with aborted rows"] += bool(model.aborted)

    run_jumping(main())
    return history
