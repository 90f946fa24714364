"""Writes Kafka records to Parquet with Spark: a session, and an ingest that loses, repeats and hides no record.

    spark = session("orders")
    report = ingest(
        spark, bootstrap_servers="localhost:9092", topic="orders", schema=schema, output="lake/orders", checkpoint="lake/.orders"
    )

The package needs the extra `spark` and Java 17 or newer.
"""

from __future__ import annotations

try:
    import pyspark  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError("aioproducer.spark needs PySpark: pip install 'aioproducer[spark]'", name="pyspark") from missing

from .ingest import IngestProgress, IngestReport, ingest
from .session import session
from .transforms import dedupe, parse, route_bad, route_good, with_month

__all__ = [
    "IngestProgress",
    "IngestReport",
    "dedupe",
    "ingest",
    "parse",
    "route_bad",
    "route_good",
    "session",
    "with_month",
]
