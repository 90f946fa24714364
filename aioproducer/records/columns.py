"""The encoder of Arrow columns that this installation has: compiled (`_columns.pyx`), or `plain_columns`."""

from __future__ import annotations

import importlib
from typing import Any, Final

from aioproducer.build import COLUMNS, extension
from aioproducer.records.encoded_rows import BadRow, Encoded

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

_found: Final = extension(COLUMNS)
# The reason for plain Python; empty if the compiled build is used.
REASON: Final = _found.reason
compiled: Any = _found.module
_chosen: Any = compiled
_hashes: Any = compiled
if compiled is None:
    # Only the plain build has the plain encoder's tables.
    _chosen = importlib.import_module("aioproducer.records.plain_columns")
    _hashes = importlib.import_module("aioproducer.records.row_hash")

Headers: Any = _chosen.Headers
Moments: Any = _chosen.Moments
Partitions: Any = _chosen.Partitions
Strings: Any = _chosen.Strings
encode: Any = _chosen.encode
hash_rows: Any = _hashes.hash_rows
known: Any = _chosen.known
measure: Any = _chosen.measure
