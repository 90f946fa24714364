"""The short version of `python -m tests.tools.chaos`: real nodes die while our producer sends, and every record is looked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.tools.chaos.faults import FAULTS
from tests.tools.chaos.run import Chosen, chaos
from tests.tools.chaos.stage import Settings

if TYPE_CHECKING:
    import pathlib

    from tests.tools.chaos.report import Report

pytestmark = pytest.mark.integration

_LONGEST = 400.0  # seconds; it is a minute on a machine that does nothing else


def played(names: set[str], folder: pathlib.Path, settings: Settings) -> Report:
    """Each of these faults once."""
    faults = [fault for fault in FAULTS if fault.name in names]
    assert {fault.name for fault in faults} == names

    async def bounded() -> Report:
        async with asyncio.timeout(_LONGEST):
            return await chaos(Chosen(faults=faults, once=True, settings=settings), folder)

    return asyncio.run(bounded())


def test_what_is_sent_while_a_leader_dies(tmp_path: pathlib.Path) -> None:
    """Killed with -9, cut off at any byte, its answers lost: all is acknowledged, there once, in order, and sequences have no gap."""
    names = {"leader-killed", "connections-cut", "answers-lost"}
    report = played(names, tmp_path, Settings(throughput=1_000, is_copying=False))
    assert list(report.complaints())[:5] == []
    assert report.is_clean
    [sent] = report.judged
    assert sent.figures["acknowledged"] == sent.figures["records sent"] == sent.figures["read"] > 5_000
    assert {mark.fault for mark in report.marks} == names


def test_what_is_copied_while_the_coordinator_dies(tmp_path: pathlib.Path) -> None:
    """Coordinator and copier killed with -9, the protocol changed in mid-life: the copy is the source, and nothing aborted is seen."""
    names = {"coordinator-killed", "copier-killed", "transactions-switched"}
    report = played(names, tmp_path, Settings(throughput=500))
    assert list(report.complaints())[:5] == []
    assert report.is_clean
    sent, copied = report.judged
    assert copied.figures["read"] == sent.figures["read"] == sent.figures["records sent"] > 5_000
    assert copied.figures["transactions committed"] > copied.figures["transactions aborted"] > 0
