"""A Python sink that drops its rows: what Spark itself takes for a sink in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DroppingSink"]


class DroppingSink(DataSource):
    """The data source `dropping`."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def streamWriter(self, schema: Any, overwrite: bool) -> DroppingWriter:  # noqa: N802  Spark's name
        return DroppingWriter()


class DroppingWriter(DataSourceStreamArrowWriter):
    """Reads each Arrow batch, and nothing else."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing."""
