"""The session has the settings that matter, and the user's win."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from aioproducer.spark import session
from aioproducer.testing import jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.driver.host", "127.0.0.1"),
        ("spark.driver.bindAddress", "127.0.0.1"),
        ("spark.ui.enabled", "false"),
        ("spark.python.unix.domain.socket.enabled", "true"),
        ("spark.sql.shuffle.partitions", "2"),
        ("spark.log.level", "OFF"),
    ],
)
def test_setting(spark: SparkSession, name: str, value: str) -> None:
    """A default of ours, or what the fixture asked for in its place, is in force in the live session."""
    assert spark.conf.get(name) == value


def test_the_connector_is_there(spark: SparkSession) -> None:
    """The four jars are on the session, and its Kafka source can be named."""
    assert spark.conf.get("spark.jars") == ",".join(str(path) for path in jars.spark_connector())
    assert (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", "x:1")
        .option("subscribe", "t")
        .load()
        .isStreaming
    )


def test_python_workers_run_this_python(spark: SparkSession) -> None:
    """A worker would else be the `python3` of PATH, which need not know a single package of ours."""
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert spark.sparkContext.pythonExec == sys.executable


def test_a_pyspark_without_a_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text says which pyspark has one, and that the sink needs none."""
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    with pytest.raises(
        jars.JarsUnavailable,
        match=r"pyspark 4\.1\.4 is installed.*pip install 'pyspark==4\.2\.0'.*format\('aioproducer'\) writes",
    ):
        session()
