"""One Spark session for all, as its JVM takes seconds to start; for tests without Spark, a fake cluster and a worker process's loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from in_thread import ClusterInThread
from without_java import skipped_without_java

from aioproducer.spark import worker as worker_module
from aioproducer.spark.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as users make it. Skipped without Java; in CI that is a failure."""
    from aioproducer.spark import session

    with skipped_without_java():
        made = session(
            "tests",
            shuffle_partitions=2,
            warehouse=tmp_path_factory.mktemp("warehouse"),
            extra_conf={"spark.log.level": "OFF"},
        )
    yield made
    made.stop()


@pytest.fixture
def brokers() -> Iterator[ClusterInThread]:
    made = ClusterInThread()
    yield made
    made.close()


@pytest.fixture
def own_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """The worker of this process, for the time of a test."""
    made = Worker()
    monkeypatch.setattr(worker_module, "_worker", made)
    yield made
    made.close()
