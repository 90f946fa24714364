"""Spark's Kafka connector with our options as properties, over TLS: it reads what ours wrote, and writes what peers read."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest
from secured import JAVA_WAYS, Way, java_properties, read_by_confluent

from aioproducer import Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aioproducer.testing.kafka_thread import ServerThread

pytestmark = [pytest.mark.spark, pytest.mark.integration]


@pytest.mark.parametrize("way", JAVA_WAYS, ids=str)
def test_the_connector_takes_our_options(spark: SparkSession, secure_server: ServerThread, way: Way) -> None:
    """Source and sink: what ours wrote goes through Spark to another topic."""
    source, sink = (f"spark-{name}-{uuid.uuid4().hex[:8]}" for name in ("source", "sink"))
    for topic in (source, sink):
        secure_server.create_topic(topic)
    options = way.ours(secure_server)

    async def write() -> None:
        async with Producer(**options) as producer:
            await asyncio.gather(*[await producer.send(source, b"%d" % number) for number in range(10)])

    asyncio.run(write())
    kafka = {f"kafka.{name}": value for name, value in java_properties(options).items()}
    reader = spark.read.format("kafka").options(**kafka, subscribe=source)
    records = reader.load().selectExpr("value", "offset").orderBy("offset").coalesce(1)
    records.select("value").write.format("kafka").options(**kafka, topic=sink).save()
    assert read_by_confluent(secure_server, way, sink, 10) == [b"%d" % number for number in range(10)]
