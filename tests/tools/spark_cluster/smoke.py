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
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

_PARTITIONS = 3


def build(_number: int) -> str:
    """Return which build of the package this worker has, and from where."""
    import aioproducer

    return f"{aioproducer.build_info().build} in {Path(aioproducer.__file__).parent}"


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
    builds = spark.sparkContext.parallelize(range(_PARTITIONS), _PARTITIONS).map(build).distinct().collect()
    print(json.dumps({"pyspark": spark.version, "python": sys.version.split()[0], "workers": sorted(builds)}))
    spark.stop()


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
