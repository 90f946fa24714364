"""One query under eight faults, on a real Kafka: a committed reader of another library gets each row once.

The other cases: `nox -s spark_faults`.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.tools.spark_faults.cases import MERGED
from tests.tools.spark_faults.run import CaseRun
from tests.tools.spark_faults.stage import Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioproducer.testing.kafka_server import ServerThread

pytestmark = [pytest.mark.spark, pytest.mark.integration]


class Lent:
    """The session's Kafka, as a stage uses one of its own."""

    def __init__(self, server: ServerThread) -> None:
        self._server = server
        self.bootstrap_servers = server.bootstrap_servers

    async def create_topic(self, name: str, partitions: int) -> None:
        await asyncio.to_thread(self._server.create_topic, name, partitions)

    async def end_offsets(self, topic: str) -> list[int]:
        return await asyncio.to_thread(self._server.end_offsets, topic)


def test_each_row_is_there_once(kafka_server: ServerThread, tmp_path: Path) -> None:
    """Tasks that fail and are killed, commits that fail, two deaths of the driver: the faults all strike, and some rows are aborted."""

    @asynccontextmanager
    async def lent(_kind: str) -> AsyncIterator[Lent]:
        yield Lent(kafka_server)

    async def run() -> None:
        async with Stage(tmp_path, lent) as stage:
            await stage.set_for(MERGED)
            result = await CaseRun(MERGED, stage, tmp_path, print).run()
        assert result.is_right, (result, result.errors)
        assert result.faults == sum(len(run.faults) for run in MERGED.runs) == 8, result.struck
        assert result.counted.aborted, result
        assert result.runs > 2, result

    asyncio.run(run())
