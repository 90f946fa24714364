"""Writes `dashboard.json` beside it, a dashboard for Grafana, of the panels below: `python docs/topics/make_dashboard.py`."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Final, NamedTuple

PAGE = pathlib.Path(__file__).with_name("dashboard.json")


class Panel(NamedTuple):
    """A graph: Grafana's unit of its axis, and each line's query and legend."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]


_ME: Final = '{client_id=~"$client"}'
_P: Final = "kafka_producer_"


def _rate(name: str, by: str = "client_id") -> str:
    return f"sum by ({by}) (rate({_P}{name}{_ME}[$__rate_interval]))"


def _gauge(name: str) -> str:
    return f"{_P}{name}{_ME}"


def _days_left(name: str) -> str:
    """The days until a certificate ends; no value if there is none."""
    return f"(({_gauge(name)} > 0) / 1000 - time()) / 86400"


def _quantile(part: float, name: str) -> str:
    return f"histogram_quantile({part:g}, sum by (le) (rate({_P}{name}_bucket{_ME}[$__rate_interval])))"


ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Is it well?": (
        Panel(
            "Records",
            "rps",
            (
                (_rate("record_send_total"), "{{client_id}} sent"),
                (_rate("record_error_total"), "{{client_id}} failed"),
            ),
        ),
        Panel(
            "From send to acknowledgement",
            "s",
            tuple(
                (_quantile(part, "delivery_latency_seconds"), f"p{part * 100:g}")
                for part in (0.5, 0.99, 0.999)
            ),
        ),
        Panel(
            "Oldest record without acknowledgement",
            "s",
            ((_gauge("oldest_unacknowledged_seconds"), "{{client_id}}"),),
        ),
        Panel(
            "Failed records, by cause",
            "rps",
            ((_rate("failed_records_total", "error"), "{{error}}"),),
        ),
        Panel(
            "Errors of requests", "short", ((_rate("request_errors_total", "error"), "{{error}}"),)
        ),
        Panel("Records sent again", "rps", ((_rate("record_retry_total"), "{{client_id}}"),)),
    ),
    "Memory and waiting": (
        Panel(
            "Free bytes of buffer_memory",
            "bytes",
            ((_gauge("buffer_available_bytes"), "{{client_id}}"),),
        ),
        Panel(
            "Sends that wait",
            "short",
            (
                (_gauge("memory_waiters"), "for memory"),
                (_gauge("metadata_waiters"), "for metadata"),
            ),
        ),
        Panel(
            "Time in which sends waited for memory",
            "percentunit",
            ((_gauge("bufferpool_wait_ratio"), "{{client_id}}"),),
        ),
        Panel(
            "Turns of the event loop",
            "s",
            tuple(
                (_quantile(part, "loop_turn_seconds"), f"p{part * 100:g}") for part in (0.5, 0.99)
            ),
        ),
    ),
    "Batches and topics": (
        Panel(
            "Batch size",
            "bytes",
            (
                (_gauge("batch_size_avg"), "{{client_id}} average"),
                (_gauge("batch_size_max"), "{{client_id}} largest"),
            ),
        ),
        Panel(
            "Part of batch_size that is filled",
            "percentunit",
            ((_quantile(0.5, "batch_fill_ratio"), "median"),),
        ),
        Panel("Compression", "percentunit", ((_gauge("compression_rate_avg"), "{{client_id}}"),)),
        Panel(
            "Batches of a partition that have not ended",
            "short",
            ((_quantile(0.99, "partition_queue_depth"), "p99"),),
        ),
        Panel(
            "Records by topic", "rps", ((_rate("topic_record_send_total", "topic"), "{{topic}}"),)
        ),
        Panel("Bytes by topic", "Bps", ((_rate("topic_byte_total", "topic"), "{{topic}}"),)),
    ),
    "Brokers": (
        Panel(
            "Brokers, known and connected",
            "short",
            (
                (_gauge("brokers_known"), "known"),
                (_gauge("brokers_up"), "connected"),
                (_gauge("brokers_down"), "unreachable"),
                (_gauge("brokers_late"), "late"),
            ),
        ),
        Panel(
            "Latency of Produce, by broker",
            "ms",
            ((_gauge("node_request_latency_avg"), "{{node_id}}"),),
        ),
        Panel(
            "Bytes to brokers",
            "Bps",
            ((_rate("node_outgoing_byte_total", "node_id"), "{{node_id}}"),),
        ),
        Panel("Circuit breakers open", "short", ((_gauge("breakers_open"), "{{client_id}}"),)),
        Panel(
            "Connections",
            "short",
            (
                (_gauge("connection_count"), "{{client_id}} stand"),
                (_rate("connection_creation_total"), "{{client_id}} made"),
            ),
        ),
        Panel(
            "Days until certificates end",
            "short",
            (
                (_days_left("client_certificate_expiry_ms"), "{{client_id}}"),
                (_days_left("broker_certificate_expiry_ms"), "brokers of {{client_id}}"),
            ),
        ),
        Panel(
            "Seconds until the bearer token ends",
            "s",
            ((f"({_gauge('token_expiry_ms')} > 0) / 1000 - time()", "{{client_id}}"),),
        ),
        Panel(
            "Failed fetches of a bearer token, in a row",
            "short",
            ((_gauge("token_failures"), "{{client_id}}"),),
        ),
        Panel("Changes of state", "short", ((_rate("events_total", "event"), "{{event}}"),)),
    ),
}


def page() -> str:
    """The whole dashboard."""
    return json.dumps(dashboard(), indent=1) + "\n"


def dashboard() -> dict[str, Any]:
    """As Grafana imports it; it asks for a Prometheus data source."""
    panels: list[dict[str, Any]] = []
    at = 0
    for title, row in ROWS.items():
        panels.append(
            {"type": "row", "title": title, "gridPos": {"x": 0, "y": at, "w": 24, "h": 1}}
        )
        at += 1
        for number, panel in enumerate(row):
            place = {"x": 8 * (number % 3), "y": at + 7 * (number // 3), "w": 8, "h": 7}
            panels.append(_panel(panel, place))
        at += 7 * ((len(row) + 2) // 3)
    for number, panel_ in enumerate(panels, 1):
        panel_["id"] = number
    clients = {
        "name": "client",
        "type": "query",
        "label": "client.id",
        "multi": True,
        "includeAll": True,
        "refresh": 2,
    }
    source = {
        "name": "DS_PROMETHEUS",
        "label": "Prometheus",
        "type": "datasource",
        "pluginId": "prometheus",
        "pluginName": "Prometheus",
    }
    return {
        "__inputs": [source],
        "title": "aioproducer",
        "uid": "aioproducer",
        "tags": ["kafka", "producer"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    **clients,
                    "datasource": _SOURCE,
                    "query": f"label_values({_P}record_send_total, client_id)",
                }
            ]
        },
        "panels": panels,
    }


_SOURCE: Final = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + number),
            "expr": query,
            "legendFormat": legend,
            "datasource": _SOURCE,
        }
        for number, (query, legend) in enumerate(panel.lines)
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
