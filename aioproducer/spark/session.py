"""The Spark session that the rest of this package is tested with: each setting, and why.

Does not know what runs in the session.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from aioproducer import jars

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["session"]

_SETTINGS: Final[Mapping[str, str]] = {
    # one machine talks to itself: nothing listens where others could reach it, and a wrong host name cannot break the start
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # months and timestamps mean the same wherever the job runs
    "spark.sql.session.timeZone": "UTC",
    # a Python worker answers a batch of 1,000 rows in 7 ms instead of 45 ms over loopback TCP
    "spark.python.unix.domain.socket.enabled": "true",
    # the batch that only evicts state would double the wait of a small ingest; the next one with rows evicts as well
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # `stop` in mid-batch comes back, or says that it did not
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.log.level": "ERROR",
}


def session(
    app_name: str = "aioproducer",
    *,
    master: str = "local[2]",
    shuffle_partitions: int = 4,
    warehouse: str | Path | None = None,
    extra_conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session that reads Kafka; the connector's jars are fetched on first use.

    Blocks for the seconds that a JVM needs to start. Where a session is already active, Spark hands out that one: its jars stay as they are.

    Args:
        app_name: what Spark calls the application.
        master: where it runs.
        shuffle_partitions: Spark's own default of 200 makes a small stateful query five times slower. A checkpoint keeps the number that it
            was first run with.
        warehouse: folder of managed tables; by default Spark's, below the working directory.
        extra_conf: settings that win over the ones chosen here.

    Raises:
        aioproducer.errors.KafkaError: no Java that Spark can use, or the jars could not be fetched; the text says what to do.
    """
    _prepare_environment()
    settings = {
        **_SETTINGS,
        "spark.jars": ",".join(str(path) for path in jars.spark_connector()),
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        **({} if warehouse is None else {"spark.sql.warehouse.dir": str(Path(warehouse).resolve())}),
        **(extra_conf or {}),
    }
    builder = SparkSession.Builder().appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # pandas is not used here; PySpark warns of a new one whenever it is installed
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return builder.getOrCreate()


def _prepare_environment() -> None:
    """What Spark reads from the environment only, unless the user has set it."""
    jars.java()  # Spark's launcher looks in the same places; what it says when it finds none, or an old one, helps nobody
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers else run the `python3` of PATH
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
