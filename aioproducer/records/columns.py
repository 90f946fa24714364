"""Rows of Arrow columns as records, in whichever of two builds this installation has: compiled (`_columns.pyx`), or `plain_columns`."""

from __future__ import annotations

from typing import Any, Final

from aioproducer.compiled_modules import extension
from aioproducer.records import plain_columns
from aioproducer.records.plain_columns import BadRow, Encoded

__all__ = ["REASON", "BadRow", "Encoded", "Moments", "Strings", "compiled", "encode", "measure"]

_found: Final = extension("aioproducer.records._columns")
REASON: Final = _found.reason  # for plain Python; empty where the compiled build runs
compiled: Any = _found.module
_chosen: Any = plain_columns if compiled is None else compiled

Moments: Any = _chosen.Moments
Strings: Any = _chosen.Strings
encode: Any = _chosen.encode
measure: Any = _chosen.measure
