"""Connects Spark and Kafka: a session, a sink, and an ingest to Parquet that loses, repeats and hides no record.

    spark = session("orders")
    report = ingest(
        spark, bootstrap_servers="localhost:9092", topic="orders", schema=schema, output="lake/orders", checkpoint="lake/.orders"
    )

    register(spark)
    df.write.format("aioproducer").mode("append").option("kafka.bootstrap.servers", "localhost:9092").option("topic", "orders").save()

The package needs the extra `spark` and Java 17 or newer; the command `python -m aioproducer.spark` needs neither. A name is imported when it
is first used (PEP 562): a Python process that Spark starts for a step of a micro-batch imports this package before the step begins.
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from aioproducer.spark.ingesting import IngestProgress, IngestReport, ingest
    from aioproducer.spark.listening import QueryMetrics
    from aioproducer.spark.sink import register
    from aioproducer.spark.spark_session import session
    from aioproducer.spark.transforms import dedupe, parse, route_bad, route_good, with_month

__all__ = [
    "IngestProgress",
    "IngestReport",
    "QueryMetrics",
    "dedupe",
    "ingest",
    "parse",
    "register",
    "route_bad",
    "route_good",
    "session",
    "with_month",
]

_HOMES = {
    "IngestProgress": "ingesting",
    "IngestReport": "ingesting",
    "QueryMetrics": "listening",
    "dedupe": "transforms",
    "ingest": "ingesting",
    "parse": "transforms",
    "register": "sink",
    "route_bad": "transforms",
    "route_good": "transforms",
    "session": "spark_session",
    "with_month": "transforms",
}

# a type checker that saw this function would accept every name
if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = _importlib.import_module(f"{__name__}.{_HOMES[name]}")
        except ModuleNotFoundError as missing:
            if missing.name != "pyspark":
                raise
            raise ModuleNotFoundError(
                "aioproducer.spark needs PySpark: pip install 'aioproducer[spark]'", name="pyspark"
            ) from missing
        return getattr(module, name)
