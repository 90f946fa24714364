"""Tests that run each experiment at a small size: the internals that it uses still exist, and no record is lost."""

from __future__ import annotations

import asyncio
import statistics
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer import Producer
from aioproducer.core.drain_policy import Linger
from aioproducer.engine import wiring
from aioproducer.testing import FakeCluster, run_jumping
from tests.tools.experiments import adaptive, breaker, drain, metadata
from tests.tools.experiments.__main__ import table
from tests.tools.experiments.served import Figures

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tools.experiments.result import Result

TOPICS = 20


def assert_shown(result: Result, rows: int, folder: Path) -> None:
    """Assert that a result renders as a table, as words and as a picture."""
    assert table("it", result.rows).row_count == len(result.rows) == rows
    assert result.text
    assert result.bars
    result.draw(folder / "it.png")
    assert (folder / "it.png").read_bytes().startswith(b"\x89PNG")


def test_the_breakers(tmp_path: Path) -> None:
    """The breaker experiment runs each fault with the breaker on and off; no record is lost, duplicated or out of order."""
    times = breaker.Times(before=1.5, failing=3.0, settling=1.0, after=1.5, load=0.1)
    result = asyncio.run(breaker.run_for(times))
    assert_shown(result, 12, tmp_path)
    assert result.bars["nothing is lost, doubled or out of order"]
    assert {row["interval [s]"] > 0 for row in result.rows if row["breaker"] == "off"} == {False}
    assert any(row["interval [s]"] > 0 for row in result.rows if row["breaker"] == "on"), "no circuit opened"


def test_the_adaptive_choices(tmp_path: Path) -> None:
    """The adaptive experiment runs each partitioning method; a run without the slow broker leaves it out.

    That one takes 5 s for a request of 1 MB.
    """
    result = asyncio.run(adaptive.run_for(12.0))
    assert_shown(result, 5, tmp_path)
    assert [row["to broker 3 [%]"] > 0 for row in result.rows] == [False, True, True, True, True]


# Metadata: its parts, and their result


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set small numbers of topics."""
    monkeypatch.setattr(metadata, "HOT", 5)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("client", [metadata.OURS, metadata.JAVAS])
def test_a_producer_that_is_made_has_the_rule_of_its_client(client: str) -> None:
    """Java's rule requests all topics once a description is old. Ours requests a few at a time, and no expired topic again."""
    told = metadata.steady(client, topics=100, minutes=7)
    asked = max(one.topics / max(one.requests, 1) for one in told[1:])
    assert (asked > 50) is (client == metadata.JAVAS), asked


def test_the_rule_goes_with_its_block() -> None:
    """A producer that is created after the block has our rule."""

    async def rule() -> str:
        async with FakeCluster(memory=True) as cluster, Producer(**cluster.client_options) as producer:
            parts: Any = producer._engine.parts  # type: ignore[union-attr]
            return type(parts.updater.schedule).__name__

    with metadata.javas():
        assert run_jumping(rule()) == "JavasRule"
    assert run_jumping(rule()) == "MetadataSchedule"


@pytest.mark.usefixtures("few")
def test_the_memory() -> None:
    """The memory part has a figure with all topics, and one after all but the hot topics expired."""

    async def remember() -> dict[str, float]:
        async with FakeCluster(memory=True) as cluster:
            for name in metadata.topic_names(TOPICS):
                cluster.create_topic(name)
            return await metadata.remember(cluster.client_options, TOPICS)

    told = run_jumping(remember())
    assert told["held"] == TOPICS
    assert told["left"] == 0


async def start_here(client: str) -> tuple[dict[str, Any], Figures]:
    """Run a client's start in this process."""
    async with FakeCluster(brokers=2) as cluster:
        for name in metadata.topic_names(TOPICS):
            cluster.create_topic(name)
        return await metadata.start(client, cluster.bootstrap_servers, TOPICS), Figures(requests=1, topics=TOPICS, size=1)


def test_what_is_found_of_metadata_is_shown(tmp_path: Path) -> None:
    """The result shows the starts of all three clients, ours with brokers and a client in processes of their own."""
    starts = {metadata.OURS: asyncio.run(metadata.started(metadata.OURS, TOPICS))}
    starts |= {client: asyncio.run(start_here(client)) for client in (metadata.JAVAS, metadata.PEER)}
    assert [len(told["waits"]) for told, _ in starts.values()] == [TOPICS] * 3
    assert starts[metadata.OURS][1].requests > 0
    assert statistics.fmean(starts[metadata.OURS][0]["waits"]) >= metadata.RTT_MS / 1000
    minutes = dict.fromkeys((metadata.OURS, metadata.KEPT, metadata.JAVAS), [Figures(requests=1, topics=1, size=100, largest=100)] * 6)
    memory = {"before": 1e6, "full": 2e6, "held": 20, "after": 1.01e6, "left": 0}
    alone = asyncio.run(metadata.description(TOPICS))
    assert alone > 0
    assert_shown(metadata.shown(metadata.Found(TOPICS, alone, starts, minutes, memory)), 4, tmp_path)


# Drain rules


def test_without_a_rule_a_producer_has_a_table_that_lacks_it() -> None:
    """The experiment's producers lack the rule; those before and after it have it."""
    assert wiring.DrainPolicy(Linger.LOAD).waits(1, memory_is_short=False)
    with drain.without("load"):
        assert not wiring.DrainPolicy(Linger.LOAD).waits(1, memory_is_short=False)
    assert wiring.DrainPolicy(Linger.LOAD).waits(1, memory_is_short=False)


def test_the_drain_rules_figures(tmp_path: Path) -> None:
    """Each rule has a row for each cell; a ratio is the median of the rounds' ratios, and a rule that wins nowhere is not shown."""

    def figures(cell: drain.Cell) -> drain.Figures:
        return drain.Figures(100.0, 1.0, 1.0, 2.0 if cell.rule == "linger" and cell.load == "loop" else 1.0)

    rounds = [{cell: figures(cell) for cell in drain.cells()} for _ in range(3)]
    result = drain.result_of(drain.Size(3, 10), rounds)
    rules = {"burst, requests", "linger"}
    assert {row["without"] for row in result.rows} >= rules
    assert [row["p99"] for row in result.rows if row["without"] == "linger" and row["load"] == "loop"] == [2.0, 2.0]
    assert [claim.split(":")[0] for claim, is_met in result.bars.items() if is_met] == ["linger"]
    result.draw(tmp_path / "it.png")
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")
