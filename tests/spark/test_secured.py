"""Spark over TLS: its Kafka connector with our options as properties, and our sink with the connector's."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest
from certificates import pkcs12_truststore
from pyspark.errors import PySparkException
from secured import JAVA_WAYS, Way, java_properties, read_by_confluent

from aioproducer import Producer
from aioproducer.spark import register

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka_security import SecuredServerThread

pytestmark = [pytest.mark.spark, pytest.mark.integration]


@pytest.mark.parametrize("way", JAVA_WAYS, ids=str)
def test_the_connector_takes_our_options(
    spark: SparkSession, secure_server: SecuredServerThread, way: Way
) -> None:
    """Source and sink: what ours wrote goes through Spark to another topic."""
    source, sink = (f"spark-{name}-{uuid.uuid4().hex[:8]}" for name in ("source", "sink"))
    for topic in (source, sink):
        secure_server.create_topic(topic)
    options = way.ours(secure_server)

    async def write() -> None:
        async with Producer(**options) as producer:
            await asyncio.gather(
                *[await producer.send(source, b"%d" % number) for number in range(10)]
            )

    asyncio.run(write())
    kafka = {f"kafka.{name}": value for name, value in java_properties(options).items()}
    reader = spark.read.format("kafka").options(**kafka, subscribe=source)
    records = reader.load().selectExpr("value", "offset").orderBy("offset").coalesce(1)
    records.select("value").write.format("kafka").options(**kafka, topic=sink).save()
    assert read_by_confluent(secure_server, way, sink, 10) == [
        b"%d" % number for number in range(10)
    ]


STORE_PASSWORD = "canary-store"
PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"


@pytest.mark.parametrize(
    ("store", "package"), [("PEM", ""), ("PKCS12", ""), ("PEM", "kafkashaded.")]
)
def test_one_set_of_options_serves_source_and_sink(
    spark: SparkSession,
    secure_server: SecuredServerThread,
    tmp_path: Path,
    store: str,
    package: str,
) -> None:
    """In one query: Spark's source reads the topic that our sink wrote, over SASL_SSL; passwords are references to a file.

    Databricks' source wants Kafka's classes by its own names, which the sink takes; this Spark's source has no such classes.
    """
    first, second = (f"spark-both-{uuid.uuid4().hex[:8]}" for _ in range(2))
    for topic in (first, second):
        secure_server.create_topic(topic)
    way = Way("SASL_SSL", "SCRAM-SHA-512")
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"sasl={way.password}\nstore={STORE_PASSWORD}\n")
    properties = java_properties(
        {**way.ours(secure_server), "sasl_password": f"${{file:{secrets}:sasl}}"}
    )
    if store == "PKCS12":
        trusted = tmp_path / "ca.p12"
        trusted.write_bytes(pkcs12_truststore(STORE_PASSWORD, secure_server.certificates.authority))
        properties |= {
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(trusted),
            "ssl.truststore.password": f"${{file:{secrets}:store}}",
        }
    providers = {"config.providers": "file", "config.providers.file.class": PROVIDER}
    kafka = {f"kafka.{name}": value for name, value in {**properties, **providers}.items()}
    ours = {
        name: value.replace("org.apache.kafka.", f"{package}org.apache.kafka.")
        for name, value in kafka.items()
    }
    register(spark)
    rows = spark.range(10).selectExpr("string(id) AS value").coalesce(1)
    rows.write.format("aioproducer").mode("append").options(**ours, topic=first).save()
    stream = (
        spark.readStream.format("kafka")
        .options(**kafka, subscribe=first, startingOffsets="earliest")
        .load()
        .select("value")
    )
    query = stream.writeStream.format("aioproducer").options(
        **ours, topic=second, checkpointLocation=str(tmp_path / "checkpoint")
    )
    query.trigger(availableNow=True).start().awaitTermination()
    assert read_by_confluent(secure_server, way, second, 10) == [
        b"%d" % number for number in range(10)
    ]


def test_a_batch_that_may_not_read_its_group(
    spark: SparkSession, secure_server: SecuredServerThread, tmp_path: Path
) -> None:
    """Exactly once as a user without Read on the sink's groups: the error names the request, the group and the grant, which helps."""
    topic = f"spark-grants-{uuid.uuid4().hex[:8]}"
    secure_server.create_topic(topic)

    def allow(*operations: str, **resource: str) -> None:
        secure_server.administrate(lambda admin: admin.allow("bob", *operations, **resource))

    allow("Write", "Read", topic=topic)
    allow("Write", "Describe", transactional_id="*")
    way = Way("SASL_SSL", "SCRAM-SHA-512", user="bob")
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"sasl={way.password}\n")
    properties = java_properties(
        {**way.ours(secure_server), "sasl_password": f"${{file:{secrets}:sasl}}"}
    )
    kafka = {f"kafka.{name}": value for name, value in properties.items()}
    register(spark)
    rows = spark.range(10).selectExpr("string(id) AS value").coalesce(1)
    once = {"topic": topic, "delivery": "exactly_once", "transactionalId": topic}

    def write() -> None:
        rows.write.format("aioproducer").mode("append").options(**kafka, **once).save()

    with pytest.raises(PySparkException) as refused:
        write()
    text = str(refused.value)
    assert "GROUP_AUTHORIZATION_FAILED" in text
    assert f"group 'spark-{topic}" in text
    assert "The sink needs Read on groups that begin with spark-" in text
    allow("Read", group="*")
    write()
    assert sorted(read_by_confluent(secure_server, way, topic, 10)) == [
        b"%d" % number for number in range(10)
    ]
