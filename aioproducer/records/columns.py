"""The encoder of Arrow columns that this installation has: compiled (`_columns.pyx`), or `plain_columns`."""

from __future__ import annotations

from typing import Any, Final

from aioproducer.compiled_modules import extension
from aioproducer.records import plain_columns
from aioproducer.records.plain_columns import BadRow, Encoded

__all__ = [
    "REASON",
    "BadRow",
    "Encoded",
    "Headers",
    "Moments",
    "Partitions",
    "Strings",
    "compiled",
    "encode",
    "hash_rows",
    "known",
    "measure",
]

_found: Final = extension("aioproducer.records._columns")
# The reason for plain Python; empty if the compiled build is used.
REASON: Final = _found.reason
compiled: Any = _found.module
_chosen: Any = plain_columns if compiled is None else compiled

Headers: Any = _chosen.Headers
Moments: Any = _chosen.Moments
Partitions: Any = _chosen.Partitions
Strings: Any = _chosen.Strings
encode: Any = _chosen.encode
hash_rows: Any = _chosen.hash_rows
known: Any = _chosen.known
measure: Any = _chosen.measure
