"""Holds Spark's data source `aioproducer`: a sink for batch writes and streaming queries.

Spark asks Python three times in the driver for a micro-batch. A new process imports this module before it answers, so it imports nothing slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from aioproducer.errors import ConfigError
from aioproducer.spark.collecting import spare_modules
from aioproducer.spark.contract import column_problems
from aioproducer.spark.sink_options import SinkOptions, option_problems

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from aioproducer.spark.writing import BatchWriter, StreamWriter

__all__ = ["AioproducerSink", "register"]


class AioproducerSink(DataSource):
    """Writes DataFrames to Kafka. `register` makes it known to a session, as the format `aioproducer`."""

    # Spark pickles the data source for the process that commits a micro-batch: its options were checked before the batch's tasks ran.
    _is_checked = False

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "aioproducer"

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle."""
        return {**self.__dict__, "_is_checked": True}

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch.

        Raises:
            ConfigError: columns or options are wrong; the text has all problems.
        """
        from aioproducer.spark.writing import BatchWriter

        return BatchWriter(self._checked(schema, overwrite=overwrite, is_stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of a streaming query; see `writer`."""
        from aioproducer.spark.writing import StreamWriter

        return StreamWriter(self._checked(schema, overwrite=overwrite, is_stream=True))

    def _checked(self, schema: StructType, *, overwrite: bool, is_stream: bool) -> SinkOptions:
        made = SinkOptions.of(self.options, is_stream=is_stream)
        if not self._is_checked:
            problems = self._problems(schema, made, overwrite=overwrite)
            if problems:
                raise ConfigError("format('aioproducer'): " + "; ".join(problems))
        spare_modules()
        return made

    def _problems(self, schema: StructType, made: SinkOptions, *, overwrite: bool) -> list[str]:
        from aioproducer.spark.kafka_options import kafka_problems

        problems = []
        if overwrite:
            mode = (
                ".outputMode('append'), or write updates within foreachBatch"
                if made.is_stream
                else ".mode('append')"
            )
            problems.append(f"the sink only appends: use {mode}")
        columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        problems += column_problems(columns, has_topic=made.topic is not None, times=made.times)
        return [
            *problems,
            *option_problems(self.options, is_stream=made.is_stream),
            *kafka_problems(made),
        ]


def register(spark: SparkSession) -> None:
    """Make the format `aioproducer` known to a session, and the session the active one of this thread.

    Spark looks a format up in the active session, and a thread that did not make the session has none: call `register` in each thread that
    writes, else Spark says DATA_SOURCE_NOT_FOUND.

    Args:
        spark: the session.
    """
    spark.dataSource.register(AioproducerSink)
    # The public call that makes its session the active one.
    spark.createDataFrame([], "value binary")
