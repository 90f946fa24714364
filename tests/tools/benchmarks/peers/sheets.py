"""Makes text sheets of the results, for the terminal and the page: bars, workloads, settings, curves.

A figure is the median of its rounds, with the least and the most of them behind it.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING, Final

from tests.tools.benchmarks.clients import OURS, PEER, PURE
from tests.tools.benchmarks.peers.clients import AIO, BULK, CALLBACK, FRANZ, JAVA, KAFKA_PYTHON, SILENT, WORDS
from tests.tools.benchmarks.peers.plan import PARTS, PROMISED
from tests.tools.benchmarks.report import FIGURES, Verdict, said, verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.tools.benchmarks.peers.plan import Case, Part
    from tests.tools.benchmarks.peers.rounds import Found
    from tests.tools.benchmarks.report import Bar
    from tests.tools.benchmarks.task import Measure

NAMES: Final = {"cpu_us": "CPU", "rate": "rate", "p50_ms": "p50", "p99_ms": "p99"}
NONE: Final = ""
THOUSAND: Final = 1e3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Holds a table, and the text above and below it; `is_text`: the table has no figures."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    above: str = ""
    below: str = ""
    is_text: bool = False


def number(value: float) -> str:
    """Return a number with three significant digits."""
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def spread(values: Sequence[float], unit: float = 1.0) -> str:
    """Return the median, with the least and the most."""
    if not values:
        return NONE
    least, middle, most = min(values) / unit, statistics.median(values) / unit, max(values) / unit
    return number(middle) if len(values) == 1 else f"{number(middle)} ({number(least)}-{number(most)})"


def found_verdicts(found: Found, part: str = "workloads") -> list[Verdict]:
    """Return the verdicts of the bars for which both clients ran."""
    return verdicts(found.rounds_of(part), PROMISED)


def promise(workload: str, bar: Bar) -> str:
    """Return a bar in words."""
    theirs = f"{WORDS[bar.other]}{f', `{bar.other_workload}`' if bar.other_workload else ''}"
    return f"{WORDS[bar.ours]}: `{workload}` {NAMES[bar.figure]} {'<=' if bar.at_most else '>='} {_wanted(bar.ratio)} of {theirs}"


def _wanted(ratio: float) -> str:
    return f"1/{1 / ratio:g}" if ratio <= 0.5 else f"{ratio:g} x"


def bars(found: Found, part: str = "workloads") -> Sheet:
    """Return the sheet of every bar on a workload of this part: met, not met, or not measured with the reason."""
    verdict_of = {(verdict.workload, verdict.bar): verdict for verdict in found_verdicts(found, part)}
    rows = []
    for workload in [case.name for case in PARTS[part].cases]:
        for bar in PROMISED.get(workload, ()):
            verdict = verdict_of.get((workload, bar))
            rows.append((promise(workload, bar), *(_judged(verdict) if verdict else _unjudged(found, part, workload, bar))))
    builds = found.builds()
    is_pure = OURS in builds and builds[OURS] == builds.get(PURE)
    below = "**No compiled build of ours was there: both are plain Python.**" if is_pure else ""
    return Sheet(title="What was promised", headings=("bar", "median", "worst (its round)", "rounds", ""), rows=rows, below=below)


def _judged(verdict: Verdict) -> tuple[str, ...]:
    worst = f"{said(verdict.worst)} ({verdict.worst_round})"
    return said(verdict.median), worst, str(len(verdict.ratios)), "met" if verdict.is_met else "**not met**"


def _unjudged(found: Found, part: str, workload: str, bar: Bar) -> tuple[str, ...]:
    sides = ((bar.ours, workload), (bar.other, bar.other_workload or workload))
    reasons = [found.left_out.get(client) or found.failure(part, where, client) for client, where in sides]
    return "", "", "0", f"not measured: {next(filter(None, reasons), 'not run')}"


def workload(found: Found, name: str, case: Case) -> Sheet:
    """Return the sheet of one workload, with a row for each client that ran it."""
    measures = found.rounds_of(name).get(case.name, {})
    rows = []
    for client in WORDS:
        if client in measures:
            failure = found.failure(name, case.name, client)
            rows.append((WORDS[client], *_figures(measures[client]), _soundness(measures[client], failure)))
    return Sheet(
        title=case.name,
        above=case.words,
        headings=("client", "records", "CPU us a record", "thousand records/s", "p50 ms", "p99 ms", "peak MiB", "+ MiB", "sound"),
        rows=rows,
    )


def _figures(measures: Sequence[Measure]) -> tuple[str, ...]:
    if not measures:
        return (NONE,) * 7
    columns = {name: [figure(one) for one in measures] for name, figure in FIGURES.items()}
    latencies = (spread(columns[name]) if statistics.median(columns[name]) else NONE for name in ("p50_ms", "p99_ms"))
    return (
        f"{measures[0].records:,}",
        spread(columns["cpu_us"]),
        spread(columns["rate"], THOUSAND),
        *latencies,
        spread(columns["peak_mib"]),
        spread(columns["growth_mib"]),
    )


def _soundness(measures: Sequence[Measure], failure: str) -> str:
    sound = f"{sum(one.is_sound for one in measures)} of {len(measures)}" if measures else NONE
    return "; ".join(filter(None, (sound, failure)))


def curve(found: Found, name: str, figure: Callable[[Measure], float], title: str, unit: float = 1.0) -> Sheet:
    """Return the sheet of one figure of a curve: a row for each client, a column for each point."""
    part, measures = PARTS[name], found.rounds_of(name)
    points = [case for case in part.cases if case.name in measures]
    rows = []
    for client in part.clients:
        cells = [_cell(found, name, case.name, client, measures, figure, unit) for case in points]
        if any(cells):
            rows.append((WORDS[client], *cells))
    return Sheet(title=title, headings=(f"client; {part.over}", *(case.name for case in points)), rows=rows)


def _cell(
    found: Found,
    part: str,
    case: str,
    client: str,
    measures: Mapping[str, Mapping[str, Sequence[Measure]]],
    figure: Callable[[Measure], float],
    unit: float,
) -> str:
    found_values = [figure(one) for one in measures[case].get(client, ())]
    shown = spread([value for value in found_values if value], unit)  # a figure of 0 is a latency that this function does not measure
    return shown or found.failure(part, case, client).partition("\n")[0][:60]


def curve_sheets(found: Found, name: str) -> list[Sheet]:
    """Return the sheets of one curve: rate, CPU and latency."""
    return [
        curve(found, name, FIGURES["rate"], "Thousand records/s", THOUSAND),
        curve(found, name, FIGURES["cpu_us"], "CPU us a record"),
        curve(found, name, FIGURES["p50_ms"], "p50 ms"),
        curve(found, name, FIGURES["p99_ms"], "p99 ms"),
    ]


WORDS_OF_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    # linger, batch size, and the client's other settings
    OURS: (
        "linger_ms",
        "batch_size",
        (
            "acks=all, enable_idempotence=True; default metrics, and batch_max_size=262,144 by default; "
            "`await send()` as it is public, a coroutine"
        ),
    ),
    PURE: ("linger_ms", "batch_size", "as above, with AIOPRODUCER_PURE=1; `send` is a coroutine"),
    PEER: ("linger_ms", "max_batch_size", "acks=all, enable_idempotence=True"),
    AIO: ("linger.ms", "batch.size", "acks=all, enable.idempotence, murmur2_random, queue.buffering.max.messages=1,000,000"),
    CALLBACK: ("linger.ms", "batch.size", "acks=all, enable.idempotence, murmur2_random; `poll(0)` every 500 records"),
    SILENT: ("linger.ms", "batch.size", "as above"),
    BULK: ("linger.ms", "batch.size", "as above"),
    KAFKA_PYTHON: ("linger_ms", "batch_size", "acks=all, enable_idempotence=True"),
    JAVA: ("linger.ms", "batch.size", "acks=all, enable.idempotence=true"),
    FRANZ: (
        "ProducerLinger",
        "ProducerBatchMaxBytes",
        "RequiredAcks(AllISRAcks), idempotent as it is by default; batches large enough for one record",
    ),
}


def settings(found: Found, name: str) -> Sheet:
    """Return the sheet of the settings of each client of a part, by its own names, and of each workload if workloads differ."""
    part, builds = PARTS[name], found.builds()
    rows = []
    for client in part.clients:
        if client in builds:
            linger, batch, rest = WORDS_OF_SETTINGS[client]
            own = _own(part, client)
            rows.append((WORDS[client], builds[client], f"{linger}={_lingers(part, client)}, {batch}={_batches(part, client)}", rest, own))
    return Sheet(title="Settings", headings=("client", "build", "linger and batch", "always", "and its own"), rows=rows, is_text=True)


def _lingers(part: Part, client: str) -> str:
    return " or ".join(str(one) for one in sorted({case.settings_of(client).linger_ms for case in part.cases if client in case.clients}))


def _batches(part: Part, client: str) -> str:
    return " or ".join(f"{one:,}" for one in sorted({case.settings_of(client).batch_size for case in part.cases if client in case.clients}))


def _own(part: Part, client: str) -> str:
    """Return the client's own settings, with their workloads."""
    by_words: dict[str, list[str]] = {}
    for case in part.cases:
        if client in case.clients and (own := case.settings_of(client).own):
            words = ", ".join(f"{name}={value:,}" for name, value in own.items())
            by_words.setdefault(words, []).append(case.name)
    everywhere = sum(client in case.clients for case in part.cases)
    return "; ".join(words if len(where) == everywhere else f"{words} ({', '.join(where)})" for words, where in by_words.items())
