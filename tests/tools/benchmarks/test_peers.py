"""Tests of the report: verdicts, tables and page from recorded runs, and the consistency of the plan."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import TYPE_CHECKING

import pytest
from tests.tools.benchmarks.peers.java import Glance, told
from tests.tools.benchmarks.peers.outsiders import ways_of
from tests.tools.benchmarks.peers.page import BEGIN, END, PAGE, picture, sections, written
from tests.tools.benchmarks.peers.sheets import WORDS_OF_SETTINGS, Sheet, bars, curve_sheets, found_verdicts, number, settings, spread

from tests.tools.benchmarks.clients import OURS, PEER, PURE
from tests.tools.benchmarks.peers.__main__ import arguments, line, parts_of, sheets, status
from tests.tools.benchmarks.peers.clients import AIO, CALLBACK, FRANZ, JAVA, SILENT, WORDS
from tests.tools.benchmarks.peers.plan import BARS, BEST, MOST_BYTES, PARTS, Case, topics
from tests.tools.benchmarks.peers.rounds import Found, Ran, merged, turns
from tests.tools.benchmarks.processes import RunFailed
from tests.tools.benchmarks.task import Measure
from tests.tools.benchmarks.workloads import TEXTS, text_values

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = [(name, case) for name, part in PARTS.items() for case in part.cases]


def measure(client: str, case: str, cpu_us: float = 1.0, rate: float = 1_000.0, p50_ms: float = 0.0, *, is_gapless: bool = True) -> Measure:
    return Measure(
        client=client,
        workload=case,
        records=1_000,
        acknowledged=1_000,
        is_gapless=is_gapless,
        seconds=1.0,
        cpu_seconds=1.0,
        rate=rate,
        cpu_us=cpu_us,
        p50_ms=p50_ms,
        p99_ms=p50_ms * 2,
        peak_mib=40.0,
        growth_mib=1.0,
        build=f"{client} 1.0",
    )


def ran(part: str, number: int, one: Measure) -> Ran:
    return Ran(part=part, case=one.workload, client=one.client, round=number, measure=one)


def recorded() -> Found:
    """Return three rounds of two workloads, with a peer that fails in the second, and one round of a curve, without franz-go."""
    machine = {"kafka": "Kafka 4.3.1", "cpus": 2, "platform": "Linux x86_64", "python": "3.11.7"}
    found = Found(command="nox -s peers -- --rounds 3", machine=machine, date="2026-11-21", rounds=3, other_rounds=1, minutes=12.0)
    found.left_out[FRANZ] = "no Go here"
    for place, (ours, theirs) in enumerate([(0.5, 10.0), (0.9, 9.0), (0.4, 8.0)], start=1):
        found.runs += [
            ran("workloads", place, measure(OURS, "stream", cpu_us=ours, rate=2e6)),
            ran("workloads", place, measure(PEER, "stream", cpu_us=theirs, rate=8e4)),
            ran("workloads", place, measure(JAVA, "stream", cpu_us=1.2, rate=2.5e6)),
            ran("workloads", place, measure(OURS, "many", rate=3e6)),
        ]
    found.runs += [
        ran("workloads", 1, measure(OURS, "herd8000", rate=2e5, p50_ms=30.0)),
        Ran(part="workloads", case="herd8000", client=PEER, round=1, failure="not within 180 s"),
        ran("rtt", 1, measure(OURS, "0", cpu_us=0.5, rate=1e6, p50_ms=2.5)),
        ran("rtt", 1, measure(OURS, "100", cpu_us=1.5, rate=5e4, p50_ms=102.0)),
        ran("rtt", 1, measure(PEER, "0", cpu_us=9.0, rate=8e4)),
        Ran(part="rtt", case="100", client=PEER, round=1, failure="not within 60 s"),
    ]
    return found


def rows_of(sheet: Sheet) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in sheet.rows}


def test_what_was_found_comes_back_from_json() -> None:
    found = recorded()
    assert Found.from_json(found.to_json()) == found


def test_a_bar_is_judged_by_the_median_of_paired_rounds() -> None:
    """The report judges a bar by the median of ratios paired by round, and names the worst round."""
    verdicts = {(verdict.workload, verdict.bar.other, verdict.bar.figure): verdict for verdict in found_verdicts(recorded())}
    cpu = verdicts["stream", PEER, "cpu_us"]
    assert (cpu.median, cpu.worst, cpu.worst_round, cpu.is_met) == (0.05, 0.1, 2, True)
    rate = verdicts["many", JAVA, "rate"]  # its stream, the only one that it has
    assert (rate.median, rate.is_met) == (1.2, True)


def test_what_was_promised_is_judged_with_each_ones_best_settings_too() -> None:
    """The report also judges the bars with each client's best settings, by the runs of that part alone."""
    found = recorded()
    found.runs += [ran("best", 1, measure(OURS, "stream", cpu_us=1.0)), ran("best", 1, measure(PEER, "stream", cpu_us=10.0))]
    rows = rows_of(bars(found, "best"))
    assert rows["aioproducer: `stream` CPU <= 1/11 of aiokafka"] == ["1/10.00", "1/10.00 (1)", "1", "**not met**"]
    assert not any("single" in row for row in rows)
    assert rows_of(bars(found)) == rows_of(bars(recorded()))


def test_each_bar_is_met_or_not_or_why_it_was_not_measured() -> None:
    rows = rows_of(bars(recorded()))
    assert len(rows) == sum(len(promised) for promised in BARS.values())
    assert rows["aioproducer: `stream` CPU <= 1/11 of aiokafka"] == ["1/20.00", "1/10.00 (2)", "3", "met"]
    assert rows["aioproducer: `many` rate >= 1 x of Java, ProducerPerformance, `stream`"] == ["1.20 x", "1.20 x (1)", "3", "met"]
    assert rows["aioproducer: `herd8000` rate >= 100 x of aiokafka"][-1] == "not measured: not within 180 s"
    assert rows["aioproducer: `gather` CPU <= 1/6 of aiokafka"][-1] == "not measured: not run"


def test_a_missing_compiled_build_is_told() -> None:
    """The report says that the compiled build is missing if both of our clients report the same build."""
    found = recorded()
    assert bars(found).below == ""
    one = dataclasses.replace(measure(PURE, "stream"), build=found.builds()[OURS])
    found.runs.append(ran("workloads", 1, one))
    assert "No compiled build" in bars(found).below


def test_the_issues_bars_are_there() -> None:
    """The plan has each bar of the issue with its figure, direction and number, so that no change lowers a bar unnoticed."""
    promised = {
        (name, bar.figure, bar.other, bar.at_most): round(1 / bar.ratio if bar.ratio < 0.5 else bar.ratio, 6)
        for name, some in BARS.items()
        for bar in some
        if bar.ours == OURS
    }
    assert promised == {
        ("stream", "cpu_us", PEER, True): 11,
        ("gather", "cpu_us", PEER, True): 6,
        ("herd", "rate", PEER, False): 9,
        ("single", "p50_ms", PEER, True): 0.92,
        ("stream", "cpu_us", AIO, True): 11,
        ("stream", "cpu_us", CALLBACK, True): 2.2,
        ("many", "cpu_us", SILENT, True): 2.5,
        ("many", "cpu_us", PURE, True): 1.0,
        ("rtt20", "rate", CALLBACK, False): 1.0,
        ("herd8000", "rate", PEER, False): 100,
        ("many", "rate", JAVA, False): 1.0,
    }


def test_the_page_keeps_what_is_written_by_hand() -> None:
    """Repeated writes of the page keep the text by hand. The page has spread, command, picture, failed clients and left-out clients."""
    page = f"# Performance\n\nby hand\n\n{BEGIN}\nold\n{END}\n\nmore by hand\n"
    once = written(page, recorded())
    assert written(once, recorded()) == once
    lines = once.splitlines()
    assert (lines[2], lines[-1]) == ("by hand", "more by hand")
    assert "old" not in lines
    assert "    nox -s peers -- --rounds 3" in lines
    assert lines.count("    nox -s peers -- --rounds 3") == 2
    assert f"![Round trip]({picture('rtt')})" in lines
    assert "| aioproducer | 1,000 | 0.5 (0.4-0.9) | 2,000 (2,000-2,000) |  |  | 40 (40-40) | 1 (1-1) | 3 of 3 |" in lines
    assert "| aiokafka | 80 | not within 60 s |" in lines
    assert "franz-go was left out: no Go here." in once
    assert "CPython 3.11.7 on uvloop; 1 to 3 rounds. All 13 runs are sound. franz-go was left out" in once


def test_what_a_report_has_not_stays_on_the_page() -> None:
    """The page keeps parts that a report lacks, with their day and command, in the plan's order. It drops parts that left the plan."""
    first = written(f"{BEGIN}\n\n### Gone\n\nold\n\n{END}\n", recorded())
    later = dataclasses.replace(recorded(), command="later", date="2026-11-25")
    later.runs = [ran("rtt", 1, measure(OURS, point, cpu_us=0.25)) for point in ("0", "100")]
    second = written(first, later)
    was, now = sections(first), sections(second)
    assert [*was] == [*now] == [PARTS[name].title for name in ("workloads", "rtt")]
    assert was[PARTS["workloads"].title] == now[PARTS["workloads"].title]
    assert "| aioproducer | 0.25 | 0.25 |" in now[PARTS["rtt"].title]
    assert "2026-11-25: Kafka 4.3.1" in now[PARTS["rtt"].title]
    assert "2026-11-21" not in now[PARTS["rtt"].title]
    assert written(second, recorded()) == first


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no lines"):
        written("# Performance\n", recorded())


def test_the_real_page_has_its_marks() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert (text.count(BEGIN), text.count(END)) == (1, 1)


def test_a_run_that_is_not_sound_is_named() -> None:
    found = recorded()
    found.runs.append(ran("workloads", 1, measure(PEER, "gather", is_gapless=False)))
    page = written(f"{BEGIN}\n{END}", found)
    assert "**1 of 14 runs are not sound**: aiokafka in `gather`." in page
    assert line(found.runs[-1]).endswith("NOT SOUND")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(None, 0, id="all is well"),
        pytest.param(ran("workloads", 1, measure(PEER, "gather", is_gapless=False)), 1, id="not sound"),
        pytest.param(Ran(part="rtt", case="0", client=PEER, round=1, failure="status 1"), 1, id="failed"),
        pytest.param(ran("workloads", 1, measure(JAVA, "stream", rate=1e7)), 1, id="a bar is not met"),
    ],
)
def test_the_status_says_whether_all_is_well(change: Ran | None, expected: int) -> None:
    found = dataclasses.replace(recorded(), runs=[ran("workloads", 1, measure(OURS, "many", rate=2e6))])
    if change is not None:
        found.runs.append(change)
    assert status(found) == expected


@pytest.mark.parametrize(("part", "rounds"), [("best", 3), ("strict", 3), ("workloads", 1)])
def test_bars_decide_after_several_rounds_with_the_same_settings_alone(part: str, rounds: int) -> None:
    """Only several rounds with the same settings decide the exit status. Other parts show bars for comparison; `--quick` has one round."""
    runs = [ran(part, 1, measure(OURS, "many", rate=2e6)), ran(part, 1, measure(JAVA, "stream", rate=1e7))]
    assert status(dataclasses.replace(recorded(), rounds=rounds, runs=runs)) == 0


def test_curves_have_a_column_for_each_point_that_was_run() -> None:
    rate, cpu, p50, p99 = curve_sheets(recorded(), "rtt")
    assert list(rate.headings) == ["client; milliseconds of a round trip", "0", "100"]
    assert rows_of(cpu) == {"aioproducer": ["0.5", "1.5"], "aiokafka": ["9", "not within 60 s"]}
    assert rows_of(p50) == {"aioproducer": ["2.5", "102"], "aiokafka": ["", "not within 60 s"]}
    assert rows_of(p99) == {"aioproducer": ["5", "204"], "aiokafka": ["", "not within 60 s"]}


def test_the_settings_of_each_client_are_listed() -> None:
    """The report lists the settings of each client by the client's names, with the version that it reported."""
    rows = rows_of(settings(recorded(), "workloads"))
    assert rows["aiokafka"][:2] == ["aiokafka 1.0", "linger_ms=0 or 5, max_batch_size=16,384"]
    assert "franz-go" not in rows
    assert set(WORDS_OF_SETTINGS) == set(WORDS)


def test_every_sheet_is_shown() -> None:
    titles = [sheet.title for sheet in sheets(recorded())]
    assert titles == [
        *("What was promised", "The same settings for everyone"),
        *("stream", "many", "herd8000"),
        *("Round trip: Thousand records/s", "Round trip: CPU us a record", "Round trip: p50 ms", "Round trip: p99 ms"),
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], ""), ([2.0], "2"), ([3.0, 1.0, 2.0], "2 (1-3)"), ([1234.5, 999.6, 0.01234], "1,000 (0.0123-1,234)")],
)
def test_a_figure_has_its_spread(values: list[float], expected: str) -> None:
    assert spread(values).replace("999.6", "1,000") == expected.replace("1,000 (", f"{number(999.6)} (")


def test_of_several_runs_each_case_is_the_last_ones() -> None:
    """In a merge of several runs each case is the last run's, so that a long or disturbed case may be repeated alone."""
    first, second = recorded(), dataclasses.replace(recorded(), command="another", rounds=4, other_rounds=2, minutes=3.0)
    second.runs = [ran("rtt", 1, measure(OURS, "0", cpu_us=7.0))]
    both = merged([first, second])
    assert both.rounds_of("workloads") == first.rounds_of("workloads")
    assert both.rounds_of("rtt") == first.rounds_of("rtt") | second.rounds_of("rtt")
    assert first.rounds_of("rtt").keys() > second.rounds_of("rtt").keys()
    assert (both.minutes, both.command) == (15.0, "nox -s peers -- --rounds 3\n    another")
    assert (both.rounds_run("workloads"), both.rounds_run("rtt")) == ("1 to 3", "1")


def test_who_goes_first_goes_last_in_the_next_round() -> None:
    case = Case(name="a", way="stream", clients=(OURS, PEER, FRANZ), records=1)
    order = [(number, client) for number, _, client in turns(2, [case], [FRANZ])]
    assert order == [(1, OURS), (1, PEER), (2, PEER), (2, OURS)]


@pytest.mark.parametrize(("part", "case"), CASES, ids=[f"{part}-{case.name}" for part, case in CASES])
def test_each_client_can_do_what_its_case_wants(part: str, case: Case) -> None:
    """Each client has the function of its case. Each task and topic has a record, and no case takes gigabytes."""
    for client in case.clients:
        task = case.task(client, "localhost:1")
        assert task.way in ways_of(client)
        assert task.records >= (case.tasks if case.way == "herd" else 1)
        assert task.records * case.value_bytes <= 2 * MOST_BYTES
        assert len(task.topics) == case.topics
        assert task.warm_up >= (case.topics if case.topics > 1 else 0)


def test_shapes_have_topics_of_their_own() -> None:
    """Cases of one shape share a topic, and cases of two shapes do not."""
    names = {tuple(topics(case)): (case.partitions, case.topics) for _, case in CASES if case.topics == 1}
    assert len(set(names.values())) == len(names)


def test_bars_are_held_where_both_sides_run() -> None:
    cases = {case.name: case for case in PARTS["workloads"].cases}
    for name, promised in BARS.items():
        for bar in promised:
            assert bar.ours in cases[name].clients
            assert bar.other in cases[bar.other_workload or name].clients


def test_everyone_has_best_settings() -> None:
    assert set(PARTS["best"].clients) <= set(BEST)


def test_what_is_asked_for_is_what_is_run() -> None:
    """The report runs the chosen parts, clients and cases; a quick run has two points of each curve."""
    parts = parts_of(arguments(["--only", "workloads", "rtt", "--clients", OURS, PURE, "--quick"]))
    assert list(parts) == ["workloads", "rtt"]
    assert [case.name for case in parts["rtt"].cases] == ["0", "20"]
    assert {client for part in parts.values() for case in part.cases for client in case.clients} == {OURS, PURE}
    parts = parts_of(arguments(["--cases", "stream", "100"]))
    assert [case.name for case in itertools.chain(*(part.cases for part in parts.values()))] == [*["stream"] * 3, *["100"] * 5]


def test_text_values_have_their_size() -> None:
    """Text values have their exact size, and are the same in each process."""
    values = text_values(300)
    assert (len(values), {len(value) for value in values}) == (TEXTS, {300})
    assert len(set(values)) == TEXTS
    assert values == text_values(300)
    assert not any(b"\n" in value for value in values)  # Java's tool reads them from the lines of a file


def test_text_values_cost_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of text values is linear in their size: the function writes each part once."""
    written = 0

    def dumps(what: object, dumps: Callable[[object], str] = json.dumps) -> str:
        nonlocal written
        text = dumps(what)
        written += len(text)
        return text

    monkeypatch.setattr(json, "dumps", dumps)
    text_values(1_000)
    assert 800 * TEXTS < written < 1_200 * TEXTS


STEADY = (
    b"2000 steady state records sent, 400.000000 records/sec (0.04 MB/sec), 4.00 ms avg latency, 9.00 ms max latency, "
    b"3 ms 50th, 6 ms 95th, 7 ms 99th, 9 ms 99.9th.\n"
)


def test_javas_steady_state_is_what_is_measured() -> None:
    """The steady state has CPU from the glances after the warm-up, and rate and latencies as Java's tool prints them."""
    task = PARTS["workloads"].cases[0].task(JAVA, "localhost:1")
    task = dataclasses.replace(task, records=2_000, warm_up=1_000)
    glances = [Glance(900, 5.0, 2**20), Glance(1_500, 6.0, 2 * 2**20), Glance(2_500, 6.5, 4 * 2**20)]
    one = told(task, glances, [b"whatever\n", STEADY])
    assert (one.records, one.seconds, one.cpu_seconds, one.p50_ms, one.p99_ms) == (2_000, 5.0, 1.0, 3.0, 7.0)
    assert (one.peak_mib, one.growth_mib, one.counts, one.offsets) == (4.0, 2.0, [], None)


@pytest.mark.parametrize(("glances", "lines"), [(1, [STEADY]), (3, [b"3000 records sent\n"])], ids=["too short", "not said"])
def test_java_without_a_steady_state_has_failed(glances: int, lines: list[bytes]) -> None:
    task = dataclasses.replace(PARTS["workloads"].cases[0].task(JAVA, "localhost:1"), records=2_000, warm_up=1_000)
    with pytest.raises(RunFailed, match="no steady state"):
        told(task, [Glance(1_100 + number, 1.0, 1) for number in range(glances)], lines)
