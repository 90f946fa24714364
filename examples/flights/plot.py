"""Draws the picture: the rate of records, the time of each until its acknowledgement, and what came back in the topic of aggregates."""

from __future__ import annotations

from itertools import pairwise
from math import log10
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from .screen import Sample

_INK: Final = "#1f2933"
_FAINT: Final = "#9aa5b1"
_SENT: Final = "#2f6fde"
_ACKNOWLEDGED: Final = "#12a594"
_WRITTEN: Final = "#e5793a"
_BACK: Final = "#8a4fbf"
_WINDOW_SECONDS: Final = 0.5
_MARKS: Final = (50.0, 90.0, 99.0, 99.9)


def draw(
    path: Path,
    samples: Sequence[Sample],
    latencies: array[float],
    flights: Mapping[str, int],
    *,
    title: str,
) -> None:
    """Write the picture as PNG, without a display. Takes a second or two. `flights` are those of each carrier in the topic of aggregates."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(12, 7.2), dpi=150, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(h_pad=0.12, w_pad=0.12)
    figure.suptitle(title, x=0.012, ha="left", fontsize=15, fontweight="bold", color=_INK)
    places = figure.subplot_mosaic(
        [["rates", "rates"], ["latency", "carriers"]],
        height_ratios=(1.15, 1),
        width_ratios=(1.7, 1),
    )
    _throughput(places["rates"], samples)
    _latency(places["latency"], sorted(latency * 1000 for latency in latencies))
    _carriers(places["carriers"], flights)
    figure.savefig(path)


def _throughput(axes: Any, samples: Sequence[Sample]) -> None:
    """Draw records a second against time: the producer's in half seconds, Spark's as one step per micro-batch."""
    _plain(axes, "Throughput", "thousand records a second")
    lines: list[tuple[str, str, Callable[[Sample], int]]] = [
        ("sent", _SENT, lambda sample: sample.sent),
        ("acknowledged", _ACKNOWLEDGED, lambda sample: sample.acknowledged),
    ]
    for name, colour, count in lines:
        times, rates = _rates(samples, count)
        axes.fill_between(times, rates, step="post", color=colour, alpha=0.13, linewidth=0)
        axes.step(times, rates, where="post", color=colour, linewidth=1.8, label=name)
    times, rates = _steps(samples)
    axes.fill_between(times, rates, step="post", color=_WRITTEN, alpha=0.2, linewidth=0)
    axes.step(
        times,
        rates,
        where="post",
        color=_WRITTEN,
        linewidth=1.8,
        label="written to Parquet by Spark",
    )
    axes.set_xlim(0, samples[-1].at)
    axes.set_ylim(0)
    _written_back(axes, samples)
    axes.set_xlabel("seconds since the start", color=_INK)
    axes.legend(
        frameon=False,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=4,
        labelcolor=_INK,
        borderaxespad=0.2,
    )


def _written_back(axes: Any, samples: Sequence[Sample]) -> None:
    """Mark the time from the last row in Parquet until the aggregates were found in Kafka."""
    found_at = next((sample.at for sample in samples if sample.aggregates), None)
    if found_at is None:
        return
    since = next(sample.at for sample in samples if sample.written == samples[-1].written)
    axes.axvspan(
        since,
        found_at,
        color=_BACK,
        alpha=0.12,
        linewidth=0,
        label=f"{samples[-1].aggregates:,} aggregates written back to Kafka",
    )


def _carriers(axes: Any, flights: Mapping[str, int]) -> None:
    """Draw the flights of each carrier, as they are in the topic of aggregates."""
    _plain(axes, "What came back: flights of each carrier", "")
    ordered = sorted(flights.items(), key=lambda each: each[1])
    bars = axes.barh(
        [carrier for carrier, _ in ordered],
        [count for _, count in ordered],
        color=_BACK,
        alpha=0.75,
    )
    axes.bar_label(
        bars, [f"{count:,}" for _, count in ordered], padding=4, fontsize=8.5, color=_INK
    )
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.margins(x=0.18)


def _rates(
    samples: Sequence[Sample], count: Callable[[Sample], int]
) -> tuple[list[float], list[float]]:
    times, rates = [0.0], [0.0]
    last = samples[0]
    for sample in samples[1:]:
        if sample.at - last.at >= _WINDOW_SECONDS:
            times.append(last.at)
            rates.append((count(sample) - count(last)) / (sample.at - last.at) / 1000)
            last = sample
    return [*times, last.at], [*rates, 0.0]


def _steps(samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """Return the rate of each micro-batch of rows, over the time since the batch before it, or since the last acknowledgement."""
    times, rates = [0.0], [0.0]
    since = samples[0]
    for before, sample in pairwise(samples):
        if sample.written > before.written:
            times += [since.at, sample.at]
            rates += [(sample.written - before.written) / (sample.at - since.at) / 1000, 0.0]
            since = sample
        elif sample.acknowledged > before.acknowledged:
            since = sample
    return times, rates


def _latency(axes: Any, milliseconds: Sequence[float]) -> None:
    """Draw percentiles on an axis on which each nine has the same width, so that the tail is visible."""
    _plain(axes, "From send to acknowledgement", "milliseconds")
    if not milliseconds:
        return
    nines = [step / 50 for step in range(int(_tail(100 - 100 / len(milliseconds)) * 50) + 1)]
    curve = [_at(milliseconds, 100 - 100 / 10**nine) for nine in nines]
    axes.plot(nines, curve, color=_ACKNOWLEDGED, linewidth=2.2)
    axes.fill_between(nines, curve, color=_ACKNOWLEDGED, alpha=0.13, linewidth=0)
    for mark in (*_MARKS, 100 - 100 / len(milliseconds)):
        value, place = _at(milliseconds, mark), _tail(mark)
        name = f"p{mark:g}" if mark in _MARKS else "max"
        # The curve only rises, so above and left of a point is free; the median's name stands above that of p90.
        side, offset = ("right", (-7, 7)) if place > 0.5 else ("center", (8, 21))
        axes.plot(
            [place],
            [value],
            "o",
            color=_ACKNOWLEDGED,
            markersize=6,
            markeredgecolor="white",
            zorder=5,
        )
        axes.annotate(
            f"{name} {value:,.0f} ms" if value >= 100 else f"{name} {value:.1f} ms",
            (place, value),
            xytext=offset,
            textcoords="offset points",
            ha=side,
            fontsize=9.5,
            fontweight="bold",
            color=_INK,
        )
    whole = range(int(nines[-1]) + 1)
    axes.set_xticks(
        [0, _tail(50), *whole[1:]],
        ["0 %", "50 %", *(f"{100 - 100 / 10**nine:.6g} %" for nine in whole[1:])],
    )
    axes.set_xlim(0, nines[-1] * 1.01 or 1)
    axes.set_ylim(0, max(milliseconds) * 1.22)
    axes.set_xlabel(f"share of {len(milliseconds):,} records that were faster", color=_INK)


def _tail(percentile: float) -> float:
    """Return the number of nines of a percentile: 1 for 90, 2 for 99."""
    return -log10(1 - percentile / 100)


def _at(ordered: Sequence[float], percentile: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percentile / 100))]


def _plain(axes: Any, title: str, unit: str) -> None:
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=_INK)
    axes.set_ylabel(unit, color=_INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_FAINT)
    axes.tick_params(colors=_INK, length=3)
    axes.grid(axis="y", color=_FAINT, alpha=0.25, linewidth=0.8)
    axes.set_axisbelow(True)
