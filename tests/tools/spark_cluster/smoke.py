"""A user's program: a batch and a stream into Kafka by the sink. It imports pyspark and the package, and nothing of this tree.

    python smoke.py CONFIG.json

CONFIG.json has `bootstrap_servers`, `topics` (a batch, a named batch, a stream), `rows`, `folder`, and perhaps `master` and `py_files`. The
program prints a line of JSON: the versions, and which build of the package each Python worker has, from where.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PARTITIONS = 3


def builds_of(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield which build of the package this worker has, for each Arrow batch."""
    import pyarrow as pa

    import aioproducer

    told = f"{aioproducer.build_info().build} in {Path(aioproducer.__file__).parent}"
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"build": [told] * batch.num_rows})


def write_all(spark: SparkSession, told: dict[str, Any]) -> None:
    numbers = spark.range(0, told["rows"], 1, _PARTITIONS).select(f.concat(f.col("id").cast("string"), f.lit(" row")).alias("value"))
    kafka = {"kafka.bootstrap.servers": told["bootstrap_servers"]}
    batch, named, stream = told["topics"]
    numbers.write.format("aioproducer").mode("append").options(**kafka, topic=batch).save()
    once = {**kafka, "delivery": "exactly_once"}
    for _ in range(2):
        # the second one finds that the first one has written it
        numbers.write.format("aioproducer").mode("append").options(**once, topic=named, transactionalId=f"smoke-{named}").save()
    folder = Path(told["folder"])
    numbers.write.text(str(folder / "lines"))
    lines = spark.readStream.schema("value string").text(str(folder / "lines"))
    writer = lines.writeStream.format("aioproducer").options(**once, topic=stream, checkpointLocation=str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    told = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.appName("smoke").master(told.get("master", "local[2]"))
    for name, value in (settings | told.get("conf", {})).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for path in told.get("py_files", ()):
        spark.sparkContext.addPyFile(path)
    from aioproducer.spark import register

    register(spark)
    write_all(spark, told)
    builds = spark.range(0, _PARTITIONS, 1, _PARTITIONS).mapInArrow(builds_of, "build string").distinct().collect()
    print(json.dumps({"pyspark": spark.version, "python": sys.version.split()[0], "workers": sorted(row.build for row in builds)}))
    spark.stop()


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
