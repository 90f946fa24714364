"""Names of metrics elsewhere: of the table's rows, in the words of Prometheus and OpenTelemetry. Knows neither of their libraries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

from aioproducer.metrics.sensors import Distribution
from aioproducer.metrics.table import TABLE, TAGS, Group, Kind, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioproducer.metrics.registry import Snapshot

__all__ = ["ROWS", "Metered", "labels_of", "prometheus_name", "read_all"]

_PREFIXES: Final = {Group.NODE: "node-", Group.TOPIC: "topic-", Group.PARTITION: "partition-"}
ROWS: Final = tuple(TABLE.values())


class Metered(Protocol):
    """What has metrics: a `Producer`."""

    def metrics(self) -> Snapshot:
        """All of them, as they stand; from any thread."""


def prometheus_name(row: Row) -> str:
    """`record-send-total` of a topic is `kafka_producer_topic_record_send`, to which Prometheus adds `_total`."""
    name = "kafka-producer-" + _PREFIXES.get(row.group, "") + row.name
    return (name.removesuffix("-total") if row.kind is Kind.COUNTER else name).replace("-", "_")


def labels_of(row: Row) -> tuple[str, ...]:
    """Names of its tags."""
    return tuple(tag.replace("-", "_") for tag in ("client-id", *TAGS[row.group]))


def read_all(snapshots: Iterable[Snapshot]) -> Iterator[tuple[Row, list[tuple[tuple[str, ...], float | Distribution]]]]:
    """Each row with the values of all its tags; averages and maxima of nothing (NaN) are left out."""
    found: dict[tuple[Group, str], list[tuple[tuple[str, ...], float | Distribution]]] = {}
    for snapshot in snapshots:
        for metric, value in snapshot.items():
            if isinstance(value, Distribution) or not math.isnan(value):
                labels = tuple(value for _, value in metric.tags)
                found.setdefault((Group(metric.group), metric.name), []).append((labels, value))
    for place, values in found.items():
        yield TABLE[place], values
