"""The short leak hunt, and that a leak would be noticed. `nox -s leaks` is the long one."""

from __future__ import annotations

import ctypes
import dataclasses
import pathlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from debug_mode import without_slow_steps

from aioproducer import RecordMetadata
from tests.tools import leaks

if TYPE_CHECKING:
    from aioproducer import Producer
    from aioproducer.testing import FakeCluster

ROOT = pathlib.Path(__file__).parents[1]


class Kept:
    """An object that a leak leaves, which the collector sees."""


KEPT: list[Any] = []


async def leaking_one(producer: Producer[Any, Any], _: FakeCluster, sends: int) -> None:
    """One object for each producer."""
    KEPT.append(Kept())
    await producer.send_and_wait(leaks.TOPIC, leaks.VALUE)


async def leaking_bytes(producer: Producer[Any, Any], _: FakeCluster, sends: int) -> None:
    """Leak one block of memory for each send. The collector does not see it, as it does not see a delivery of the compiled build."""
    KEPT.extend(b"%d" % number for number in range(1000, 1000 + sends))
    await producer.send_and_wait(leaks.TOPIC, leaks.VALUE)


async def leaking_references(producer: Producer[Any, Any], _: FakeCluster, sends: int) -> None:
    """One to a class for each record, as compiled code leaves that makes an object of it and does not count as `tp_dealloc` expects."""
    for _ in range(sends):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(RecordMetadata))
    await producer.send_and_wait(leaks.TOPIC, leaks.VALUE)


def test_twenty_thousand_sends_leave_nothing() -> None:
    """However they end; in a process of its own, where nothing else makes objects."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.tools.leaks", "--sends", "20000"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, without_slow_steps(done.stderr)) == (0, "")
    assert done.stdout.endswith("leaks: none\n")


@pytest.mark.parametrize(
    ("end", "what", "least"),
    [
        (leaking_one, "test_leaks.Kept", 6),
        (leaking_bytes, "blocks of memory", 600),
        (leaking_references, "references to aioproducer.model.RecordMetadata", 600),
    ],
)
def test_a_leak_is_noticed(end: Any, what: str, least: int) -> None:
    """One object of a round that keeps all others flat, blocks of memory that the collector does not know, or references alone."""
    try:
        found = leaks.hunt({end: {}}, 6, 100, tell=lambda _: None)
    finally:
        KEPT.clear()
    grown = [int(one.partition(f"{what}: +")[2].partition(",")[0].replace(",", "") or 0) for one in found]
    assert max(grown, default=0) >= least, found


FIRST = leaks.Sample({"a.Kept": 10, "a.Same": 5}, 10_000, None, 2**20, {"a.Class": 1_000})


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"types": {"a.Kept": 13, "a.Same": 4}}, []),
        ({"types": {"a.Kept": 14, "a.New": 6}}, ["a.New: +6", "a.Kept: +4"]),
        ({"blocks": 10_307}, []),
        ({"blocks": 10_308}, ["blocks of memory: +308, at most +307"]),
        ({"rss": 9 * 2**20}, []),
        ({"rss": 9 * 2**20 + 1}, ["memory of the process: +8,388,609 bytes, at most +8,388,608"]),
        ({"references": 10_000}, []),
        ({"shared": {"a.Class": 1_307, "a.New": 500}}, []),
        ({"shared": {"a.Class": 1_308}}, ["references to a.Class: +308, at most +307"]),
    ],
)
def test_what_may_grow(changes: dict[str, Any], found: list[str]) -> None:
    """Six rounds, 7,000 sends: less than an object of a type for each round, a block for each thousand sends, and what caches take."""
    assert leaks.grown(FIRST, dataclasses.replace(FIRST, **changes), 6, 7_000) == found


def test_references_are_compared_where_they_are_counted() -> None:
    """In a debug build of Python."""
    first, last = (dataclasses.replace(FIRST, references=references) for references in (50, 358))
    assert leaks.grown(first, last, 6, 7_000) == ["references: +308, at most +307"]


@pytest.mark.parametrize(
    ("sends", "ends", "rounds", "each"), [(1_000_000, 17, 59, 1000), (20_000, 17, 12, 100), (1, 17, 1, 100), (20_000, 1, 20, 1000)]
)
def test_rounds(sends: int, ends: int, rounds: int, each: int) -> None:
    """At least so many sends as were asked for."""
    assert leaks.rounds_for(sends, ends) == (rounds, each)
