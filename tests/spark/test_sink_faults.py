"""One query under eight faults, on a real Kafka: a committed reader of another library gets each row once.

The other cases: `nox -s spark_faults`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.tools.spark_faults.cases import MERGED
from tests.tools.spark_faults.run import CaseRun
from tests.tools.spark_faults.stage import Stage

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.integration]


def test_each_row_is_there_once(tmp_path: Path) -> None:
    """Tasks that fail and are killed, commits that fail, two deaths of the driver: the faults all strike, and some rows are aborted."""

    async def run() -> None:
        async with Stage() as stage:
            await stage.set_for(MERGED)
            result = await CaseRun(MERGED, stage, tmp_path, print).run()
        assert result.is_right, (result, result.errors)
        assert result.faults == sum(len(run.faults) for run in MERGED.runs) == 8, result.struck
        assert result.counted.aborted, result
        assert result.runs > 2, result

    asyncio.run(run())
