"""The simulation: a thousand seeds, each the same every time, in every process; what it says of a seed that fails."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.core import retries, topic_routing
from aioproducer.core.produce_errors import Action, Verdict
from aioproducer.core.topic_routing import pick
from aioproducer.errors import KafkaError, TransportError
from tests.simulation import PROFILES, draw, simulate
from tests.simulation.__main__ import main
from tests.simulation.campaign import run_seeds
from tests.simulation.plan import kinds_of
from tests.simulation.systems import SYSTEMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation import Client

SEEDS = range(1, 1001)
CPU_SECONDS = 60  # 30 on a machine with nothing else to do
SLOWER = ("PYTHONASYNCIODEBUG", "ASAN_OPTIONS")
"""Where one of these is set, everything takes several times as long."""
TESTS = pathlib.Path(__file__).parents[1]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(TESTS / "support"), str(TESTS.parent)])
}
SIMULATE = "import loops; loops.use()\nfrom tests.simulation import simulate\n"
DIGESTS = f"{SIMULATE}for seed in range(1, 16): print(simulate(seed).digest)"


def test_nothing_is_wrong_with_a_thousand_seeds() -> None:
    """Every timed fault came in some of the seeds, and each of the producer's own systems was at work."""
    tally = run_seeds(SEEDS, jobs=2)
    assert tally.failing == []
    assert tally.seeds == len(SEEDS)
    assert tally.cpu < CPU_SECONDS or any(os.environ.get(name) for name in SLOWER)
    assert tally.acknowledged > tally.records / 2
    for profile in PROFILES:
        missing = kinds_of(profile) - {kind for of, kind in tally.runs_with if of == profile}
        assert missing == set()
    idle = set(SYSTEMS) - {system for _, system in tally.runs_at_work}
    assert idle <= {"refused_available"}  # only where no other partition is usable either
    assert min(tally.fates[fate] for fate in ("committed", "aborted", "unknown")) > 0


def test_queues_of_different_lengths_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event tells of it: in one run of twenty at least, adaptive choice finds queues that are not alike, and goes by them."""
    picked = 0

    def counted(table: Sequence[int], chance: float) -> int:
        nonlocal picked
        picked += 1
        return pick(table, chance)

    monkeypatch.setattr(topic_routing, "pick", counted)
    seeds = range(1, 101)
    before = [picked for seed in seeds if simulate(seed).violations == []]
    assert len(before) == len(seeds)
    assert len(set(before)) - 1 >= len(seeds) / 20


def test_processes_agree() -> None:
    """A seed is one run, in any order of the process's sets."""
    outputs = []
    for hash_seed in ("0", "1"):
        environment = ENVIRONMENT | {"PYTHONHASHSEED": hash_seed}
        outputs.append(
            subprocess.run(
                [sys.executable, "-c", DIGESTS],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
    assert outputs[0] == outputs[1]
    assert outputs[0].splitlines() == [simulate(seed).digest for seed in range(1, 16)]


def test_seeds_with_tls_repeat_in_every_process() -> None:
    """Each process has certificates of its own, of the same lengths: faults of the network come at the same bytes."""
    seeds = [seed for seed in range(1, 400) if "SSL" in draw(seed).security.protocol]
    assert len(seeds) > 10
    program = f"{SIMULATE}print([simulate(seed).digest for seed in {seeds}])"
    other = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=True
    ).stdout
    assert other.strip() == repr([simulate(seed).digest for seed in seeds])


def test_a_run_that_does_not_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def waits_for_ever(client: Client) -> None:
        await client._loop.create_future()

    monkeypatch.setattr("tests.simulation.run._AT_MOST", 30)
    assert any(
        violation.startswith("never ended: TimeoutError")
        for violation in simulate(1, faults=(), workload=waits_for_ever).violations
    )


def test_a_loop_that_turns_for_ever_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    async def turns_for_ever(client: Client) -> None:
        while True:
            await asyncio.sleep(0)

    monkeypatch.setattr("tests.simulation.run._TURNS", 2_000)
    assert any(
        violation.startswith("livelock")
        for violation in simulate(1, faults=(), workload=turns_for_ever).violations
    )


def test_the_example_of_the_page_runs() -> None:
    """It asserts for itself that nothing is wrong."""
    page = pathlib.Path(__file__).parents[2] / "docs/topics/simulation.md"
    example = re.search(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert example is not None
    names: dict[str, Any] = {}
    exec(example[1].replace("range(100)", "range(10)"), names)  # our own page
    assert names["report"].acknowledged > 0


# --- what it finds and says


@pytest.fixture
def a_lost_reply_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: a batch without an answer counts as acknowledged."""
    judge = retries.judge

    def wrong(error: KafkaError | None, **facts: Any) -> Verdict:
        return (
            Verdict(Action.COMPLETE) if isinstance(error, TransportError) else judge(error, **facts)
        )

    monkeypatch.setattr(retries, "judge", wrong)


@pytest.mark.usefixtures("a_lost_reply_completes")
def test_a_seed_that_fails_is_told_with_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1, the seed, what is wrong, and the command, which shows the same again with its history."""
    assert main(["--seeds", "1-100", "--profile", "plain", "--most", "1"]) == 1
    told = capsys.readouterr().out.splitlines()
    first = next(number for number, line in enumerate(told) if line.startswith("seed "))
    assert "lost: record " in told[first + 1]
    command = told[first].partition(": ")[2].split()
    assert command[:3] == ["python", "-m", "tests.simulation"]
    assert main(command[3:]) == 1
    history = capsys.readouterr().out
    assert f"WRONG: {told[first + 1].strip()}" in history
    assert "fault at" in history
    assert "queued" in history


def test_seeds_with_tokens_run_and_repeat() -> None:
    """Tokens that end, sources that fail, users that are revoked: no violation."""
    seeds = [seed for seed in range(1, 400) if draw(seed).security.token_seconds][:12]
    reports = [simulate(seed) for seed in seeds]
    assert [report.violations for report in reports] == [[]] * len(seeds)
    assert [report.fired["tokens"] for report in reports] == [1] * len(seeds)
    assert any(report.fired.get("renewed") for report in reports)
    assert any(report.fired.get("no_token") for report in reports)
    assert simulate(seeds[0]).digest == reports[0].digest
