"""Writes `metrics.md` beside it, of the table in `aioproducer/metrics/table.py` and the events: `python docs/reference/make_metrics.py`."""

from __future__ import annotations

import logging
import pathlib
from typing import TYPE_CHECKING

from aioproducer.engine.observability.diagnostics import EVENTS
from aioproducer.metrics.table import BOUNDS, TABLE, TAGS, Group, Kind
from aioproducer.telemetry import prometheus_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.metrics.table import Row

PAGE = pathlib.Path(__file__).with_name("metrics.md")

HEAD = """\
# Metrics and events

<!-- Made by docs/reference/make_metrics.py of aioproducer/metrics/table.py and aioproducer/engine/observability/diagnostics.py: change them there. -->

[Metrics](../topics/metrics.md) says what they are for, and which of Java's are missing. Every metric has the tag `client-id`. Rates, averages
and maxima look back over the last `metrics_num_samples` samples of `metrics_sample_window_ms`; counters and histograms begin at the start.
"""

EVENTS_HEAD = """\
## Events

Lines of the logger `aioproducer.events`, and counted in `events-total` by their name. A record's `event` is the name, its `facts` are a
dict of what stands in braces, and `client_id`.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(
        [HEAD, *map(_group, Group), EVENTS_HEAD, _table(("event", "level", "text"), _events())]
    )


def _group(group: Group) -> str:
    tags = "".join(f", `{tag}`" for tag in TAGS[group])
    rows = [
        (f"`{row.name}`", f"`{_exported(row)}`", row.kind.value, row.unit, _doc(row))
        for row in TABLE.values()
        if row.group is group
    ]
    return f"## {group.value}{f' ({tags[2:]})' if tags else ''}\n\n" + _table(
        ("name", "for Prometheus", "kind", "unit", "what it says"), rows
    )


def _exported(row: Row) -> str:
    return prometheus_name(row) + ("_total" if row.kind is Kind.COUNTER else "")


def _doc(row: Row) -> str:
    bounds = BOUNDS.get(row.name) if row.kind is Kind.HISTOGRAM else None
    return row.doc + ("" if bounds is None else f"; buckets from {bounds[0]:g} to {bounds[-1]:g}")


def _events() -> Iterable[tuple[str, ...]]:
    return (
        (f"`{name}`", logging.getLevelName(level).lower(), text)
        for name, (level, text) in EVENTS.items()
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
