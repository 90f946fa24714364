"""Draws the pictures of the report: rate and CPU of a curve over its variable, and those of workloads as bars."""

from __future__ import annotations

import io
import statistics
from typing import TYPE_CHECKING, Any, Final

from tests.tools.benchmarks.clients import OURS, PEER, PURE
from tests.tools.benchmarks.peers.clients import AIO, BULK, CALLBACK, FRANZ, JAVA, KAFKA_PYTHON, SILENT, WORDS
from tests.tools.benchmarks.peers.plan import PARTS
from tests.tools.benchmarks.report import FIGURES

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping, Sequence

    from tests.tools.benchmarks.peers.rounds import Found
    from tests.tools.benchmarks.task import Measure

COLOURS: Final = {
    OURS: "#d1242f",
    PURE: "#f0883e",
    PEER: "#2f6fde",
    AIO: "#8250df",
    CALLBACK: "#b45bcf",
    SILENT: "#cf8fdd",
    BULK: "#e3bdea",
    KAFKA_PYTHON: "#6e7781",
    JAVA: "#12a594",
    FRANZ: "#7a6a1f",
}
PANELS: Final = (("rate", "thousand records/s", 1e3), ("cpu_us", "CPU us a record", 1.0))
DPI: Final = 80
SHADES: Final = 64
"""Colours of a picture, which makes it a third as large."""


def draw(path: pathlib.Path, found: Found, name: str) -> None:
    """Write the picture of one part as PNG, with whiskers, or a band, from the least to the most of the rounds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    part = PARTS[name]
    measures = found.rounds_of(name)
    rows = 1 if part.over else len(measures)
    figure = Figure(figsize=(13, 4.2 if part.over else 0.6 + 1.9 * rows), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    for line, row in enumerate(figure.subplots(rows, len(PANELS), squeeze=False)):
        for axes, (figure_name, words, unit) in zip(row, PANELS, strict=True):
            if part.over:
                _curve(axes, name, measures, figure_name, unit)
                axes.set_title(words, loc="left", fontsize=10)
            else:
                case = list(measures)[line]
                _bars(axes, measures[case], figure_name, unit)
                axes.set_title(f"{case}: {words}", loc="left", fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=DPI)
    Image.open(drawn).convert("RGB").quantize(SHADES).save(path, optimize=True)


def _values(measures: Sequence[Measure], figure_name: str, unit: float) -> list[float]:
    return [FIGURES[figure_name](one) / unit for one in measures]


def _curve(axes: Any, name: str, measures: Mapping[str, Mapping[str, Sequence[Measure]]], figure_name: str, unit: float) -> None:
    part = PARTS[name]
    points = [case for case in part.cases if case.name in measures]
    places = {case.name: place for place, case in enumerate(points)}  # evenly spaced, as a curve has few points, of any size
    for client in part.clients:
        columns = [(places[case], _values(by_client.get(client, ()), figure_name, unit)) for case, by_client in measures.items()]
        columns = [(place, values) for place, values in columns if values]
        if columns:
            xs = [place for place, _ in columns]
            axes.plot(
                xs, [statistics.median(values) for _, values in columns], "o-", color=COLOURS[client], label=WORDS[client], markersize=3
            )
            axes.fill_between(
                xs, [min(v) for _, v in columns], [max(v) for _, v in columns], color=COLOURS[client], alpha=0.15, linewidth=0
            )
    axes.set_xticks(list(places.values()), list(places))
    axes.set_xlabel(part.over)
    axes.set_yscale("log")
    axes.grid(axis="y", alpha=0.3)
    if figure_name == PANELS[-1][0]:
        axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _bars(axes: Any, by_client: Mapping[str, Sequence[Measure]], figure_name: str, unit: float) -> None:
    clients = [client for client in reversed(list(WORDS)) if by_client.get(client)]
    columns = [_values(by_client[client], figure_name, unit) for client in clients]
    middles = [statistics.median(values) for values in columns]
    whiskers = [
        [middle - min(values) for middle, values in zip(middles, columns, strict=True)],
        [max(values) - middle for middle, values in zip(middles, columns, strict=True)],
    ]
    colours = [COLOURS[client] for client in clients]
    axes.barh([WORDS[client].replace("`", "") for client in clients], middles, xerr=whiskers, color=colours, ecolor="#444444", height=0.7)
    axes.tick_params(labelsize=7)
    axes.set_xlim(0)
    axes.grid(axis="x", alpha=0.3)
