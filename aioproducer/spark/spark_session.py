"""Makes the Spark session with which this package is tested; each setting has its reason beside it."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import SparkSession

from aioproducer.testing import jars

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["session"]

_SETTINGS: Final[Mapping[str, str]] = {
    # Spark uses loopback only: no port is open to other machines, and a wrong host name cannot break the start.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Months and timestamps mean the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    # A Python worker answers a batch of 1,000 rows in 7 ms instead of 45 ms over loopback TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # The batch that only evicts state would double the wait of a small ingest. The next batch with rows evicts state as well.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # `stop` during a batch returns, or raises after this time.
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
    """Return a Spark session that reads Kafka. The connector's jars are fetched on first use.

    The call blocks for the seconds that a JVM needs to start. If a session is already active, Spark returns that one with its jars
    unchanged.

    Args:
        app_name: Spark's name of the application.
        master: Spark's master, which runs the application.
        shuffle_partitions: the number of shuffle partitions. Spark's own default of 200 makes a small stateful query five times slower. A
            checkpoint keeps the number of its first run.
        warehouse: the folder of managed tables; by default Spark's, below the working directory.
        extra_conf: settings that take precedence over the ones chosen here.

    Raises:
        aioproducer.errors.KafkaError: there is no Java that Spark can use, the jars could not be fetched, or they are none of this pyspark.
            The text has a remedy.
    """
    jars.check_spark(pyspark.__version__)
    _prepare_environment()
    settings = {
        **_SETTINGS,
        "spark.jars": ",".join(str(path) for path in jars.spark_connector()),
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        **(
            {} if warehouse is None else {"spark.sql.warehouse.dir": str(Path(warehouse).resolve())}
        ),
        **(extra_conf or {}),
    }
    builder = SparkSession.Builder().appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # This package does not use pandas. PySpark warns of a new pandas whenever it is installed.
        warnings.filterwarnings(
            "ignore", "PySpark does not yet fully support pandas", FutureWarning
        )
        return builder.getOrCreate()


def _prepare_environment() -> None:
    """Set the variables that Spark reads from the environment only, unless the user has set them."""
    # Spark's launcher looks in the same places, but its errors about a missing or old Java do not help.
    jars.java()
    # Without it, workers run the `python3` of PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
