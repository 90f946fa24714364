"""One Spark session for all: its JVM takes seconds to start."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as users make it. Skipped without Java; in CI that is a failure."""
    from aioproducer.jars import JavaMissing
    from aioproducer.spark import session

    try:
        made = session("tests", shuffle_partitions=2, warehouse=tmp_path_factory.mktemp("warehouse"), extra_conf={"spark.log.level": "OFF"})
    except JavaMissing as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    yield made
    made.stop()
