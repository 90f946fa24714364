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
from tests.simulation import ALL_FAULTS, PROFILES, Workload, draw, simulate
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


def test_clusters_with_security_are_drawn() -> None:
    """TLS in one seed of twenty, SASL in one of five; none of them if these are not among the chosen faults."""
    drawn = [draw(seed).security for seed in range(1, 2001)]
    assert 60 < sum(one.protocol.endswith("SSL") for one in drawn) < 140
    assert 300 < sum(one.has_sasl for one in drawn) < 500
    assert {draw(seed, faults=["cut"]).security.protocol for seed in range(1, 101)} == {"PLAINTEXT"}


def test_seeds_differ() -> None:
    assert len({simulate(seed).digest for seed in range(1, 11)}) == 10


def test_a_plan_is_drawn_from_its_seed_alone() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    assert draw(7, "plain").workload.options["enable_idempotence"] is False


@pytest.mark.parametrize("arguments", [{"profile": "odd"}, {"faults": ["rain"]}])
def test_unknown_names_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="idempotent"):
        simulate(1, **arguments)


def test_without_faults_all_is_acknowledged() -> None:
    """Nothing happens, so nothing may fail."""
    for profile in ("plain", "idempotent"):
        report = simulate(3, profile=profile, faults=())
        assert report.violations == []
        assert report.fired == {}
        assert report.failed == 0
        assert report.acknowledged > report.records / 2  # `send_nowait` may be refused


def test_only_the_faults_that_are_asked_for_happen() -> None:
    for seed in range(1, 8):
        report = simulate(seed, profile="idempotent", faults=["leader"])
        assert report.fired.keys() <= {"leader", "not_leader"}


def test_a_workload_of_ones_own() -> None:
    """A coroutine function of the client; or the numbers of the drawn one."""
    ended: list[int] = []

    async def two(client: Client) -> None:
        await client.send("t0", size=5)
        ended.append((await client.send_and_wait("t0", partition=0)).partition)

    report = simulate(1, profile="idempotent", faults=["latency"], workload=two)
    assert report.violations == []
    assert ended == [0]
    numbers = draw(1).workload
    chosen = Workload(
        topics={"mine": 1},
        tasks=1,
        records=3,
        sizes=(1,),
        pause=0,
        cancelled=0,
        stop_at=None,
        stop_cancelled=None,
        options=numbers.options,
    )
    assert any("mine-0" in line for line in simulate(1, workload=chosen).trace)


def test_what_a_workload_raises_is_its_verdict() -> None:
    async def broken(client: Client) -> None:
        raise LookupError("oops")

    [violation] = simulate(1, faults=(), workload=broken).violations
    assert violation.startswith("raised: LookupError('oops') at test_simulation.py:")


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


def test_sound_seeds_end_with_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1-20", "--faults", "leader,cut"]) == 0
    told = capsys.readouterr()
    assert "20 seeds, 0 with violations" in told.out
    assert "seeds/s" in told.out
    assert any(line.startswith("leader ") and "%" in line for line in told.out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seeds", "x-y"], "no range of seeds"),
        (["--profile", "odd"], "invalid choice"),
        (["--seed", "1", "--faults", "rain"], "rain"),
    ],
)
def test_mistakes_are_told(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_every_fault_has_a_name_that_can_be_asked_for() -> None:
    assert len(set(ALL_FAULTS)) == len(ALL_FAULTS)
    assert all(kinds_of(profile) <= set(ALL_FAULTS) for profile in PROFILES)


def test_tokens_are_drawn_for_some_clusters_with_sasl() -> None:
    """Three of ten, by a random source of their own: other seeds stay as they were. Their source may fail."""
    drawn = [draw(seed) for seed in range(1, 2001)]
    with_tokens = [plan for plan in drawn if plan.security.token_seconds]
    assert 80 < len(with_tokens) < 160
    assert {plan.security.mechanism for plan in with_tokens} == {"OAUTHBEARER"}
    failing = [
        plan for plan in with_tokens if any(fault.kind == "no_token" for fault in plan.faults)
    ]
    assert 30 < len(failing) < len(with_tokens)
    assert not [
        plan
        for plan in drawn
        if not plan.security.token_seconds
        and any(fault.kind == "no_token" for fault in plan.faults)
    ]


def test_seeds_with_tokens_run_and_repeat() -> None:
    """Tokens that end, sources that fail, users that are revoked: no violation."""
    seeds = [seed for seed in range(1, 400) if draw(seed).security.token_seconds][:12]
    reports = [simulate(seed) for seed in seeds]
    assert [report.violations for report in reports] == [[]] * len(seeds)
    assert [report.fired["tokens"] for report in reports] == [1] * len(seeds)
    assert any(report.fired.get("renewed") for report in reports)
    assert any(report.fired.get("no_token") for report in reports)
    assert simulate(seeds[0]).digest == reports[0].digest
