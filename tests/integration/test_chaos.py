"""The short version of `python -m tests.tools.chaos`: real nodes die while our producer sends, and every record is looked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.tools.chaos.run import Report, chaos

if TYPE_CHECKING:
    import pathlib

pytestmark = pytest.mark.integration

_LONGEST = 400.0  # seconds; it is a minute on a machine that does nothing else


def played(names: set[str], folder: pathlib.Path, **options: Any) -> Report:
    """Play each of these faults once. Nothing is wrong."""

    async def bounded() -> Report:
        async with asyncio.timeout(_LONGEST):
            return await chaos(sorted(names), folder, **options)

    report = asyncio.run(bounded())
    assert report.complaints[:5] == []
    assert set(report.struck) == names
    return report


def test_what_is_sent_while_a_leader_dies(tmp_path: pathlib.Path) -> None:
    """Killed with -9, cut off at any byte, its answers lost: all is acknowledged, there once, in order, and sequences have no gap."""
    report = played(
        {"leader-killed", "connections-cut", "answers-lost"},
        tmp_path,
        throughput=1_000,
        is_copying=False,
    )
    sent = report.figures["sent"]
    assert sent["acknowledged"] == sent["records sent"] == sent["read"] > 5_000


def test_what_is_copied_while_the_coordinator_dies(tmp_path: pathlib.Path) -> None:
    """Coordinator and copier killed with -9, the protocol changed in mid-life: the copy is the source, and nothing aborted is seen."""
    report = played(
        {"coordinator-killed", "copier-killed", "transactions-switched"}, tmp_path, throughput=500
    )
    sent, copied = report.figures["sent"], report.figures["copied"]
    assert copied["read"] == sent["read"] == sent["records sent"] > 5_000
    assert copied["transactions committed"] > copied["transactions aborted"] > 0
