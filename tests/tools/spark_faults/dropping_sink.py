"""A Python sink that drops its rows: what Spark itself takes for a sink in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DroppingSink"]


class DroppingSink(DataSource):
    """The data source `dropping`."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def writer(self, schema: Any, overwrite: bool) -> DroppingWriter:
        return DroppingWriter()

    def streamWriter(self, schema: Any, overwrite: bool) -> DroppingStreamWriter:
        return DroppingStreamWriter()


class DroppingWriter(DataSourceArrowWriter):
    """Reads each Arrow batch, and nothing else."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return read(iterator)


class DroppingStreamWriter(DataSourceStreamArrowWriter):
    """Does the same in a query."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return read(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing."""


def read(batches: Iterator[Any]) -> WriterCommitMessage:
    for _ in batches:
        pass
    return WriterCommitMessage()
