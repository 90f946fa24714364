"""Shows a producer's metrics and records to Prometheus and OpenTelemetry: the modules beside this one, each with an extra of its own.

Here are the names of the table's metrics there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

from aioproducer.errors import UsageError
from aioproducer.metrics.registry import Distribution
from aioproducer.metrics.table import TABLE, TAGS, Group, Kind, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioproducer.metrics.registry import Snapshot

__all__ = [
    "Metered",
    "check_client_ids",
    "client_id_of",
    "labels_of",
    "prometheus_name",
    "read_all",
]

_PREFIXES: Final = {Group.NODE: "node-", Group.TOPIC: "topic-", Group.PARTITION: "partition-"}


class Metered(Protocol):
    """Has metrics, as a `Producer`."""

    def metrics(self) -> Snapshot:
        """Return all metrics at this moment. Any thread may call it."""


def client_id_of(producer: Metered) -> str | None:
    """Return the client id of a `Producer`; None: the object has only metrics."""
    client_id: str | None = getattr(getattr(producer, "config", None), "client_id", None)
    return client_id


def check_client_ids(producers: Iterable[Metered]) -> None:
    """Raise UsageError if two producers have the same client id, because an exporter could not distinguish their metrics."""
    known: dict[str, Metered] = {}
    for producer in producers:
        client_id = client_id_of(producer)
        if (
            client_id is not None
            and (other := known.setdefault(client_id, producer)) is not producer
        ):
            raise UsageError(
                f"two producers have the client_id {client_id!r}, by which their metrics are told apart: {other!r} and "
                f"{producer!r}. Give each a client_id of its own, or none, and remove one that has stopped."
            )


def prometheus_name(row: Row) -> str:
    """Return the name of a metric in Prometheus.

    `record-send-total` of a topic is `kafka_producer_topic_record_send`, to which Prometheus adds `_total`.
    """
    name = "kafka-producer-" + _PREFIXES.get(row.group, "") + row.name
    return (name.removesuffix("-total") if row.kind is Kind.COUNTER else name).replace("-", "_")


def labels_of(row: Row) -> tuple[str, ...]:
    """Return the names of a metric's tags as labels."""
    return tuple(tag.replace("-", "_") for tag in ("client-id", *TAGS[row.group]))


def read_all(
    snapshots: Iterable[Snapshot],
) -> Iterator[tuple[Row, list[tuple[tuple[str, ...], float | Distribution]]]]:
    """Return each row with the values of all its tags. Averages and maxima without values (NaN) are left out."""
    found: dict[tuple[Group, str], list[tuple[tuple[str, ...], float | Distribution]]] = {}
    for snapshot in snapshots:
        for metric, value in snapshot.items():
            if isinstance(value, Distribution) or not math.isnan(value):
                labels = tuple(value for _, value in metric.tags)
                found.setdefault((Group(metric.group), metric.name), []).append((labels, value))
    for place, values in found.items():
        yield TABLE[place], values
