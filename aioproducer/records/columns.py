"""The encoder of Arrow columns that this installation has: compiled (`_columns.pyx`), or `plain_columns`."""

from __future__ import annotations

from typing import Any, Final

from aioproducer.compiled_modules import extension
from aioproducer.records import plain_columns
from aioproducer.records.plain_columns import BadRow, Encoded

__all__ = ["REASON", "BadRow", "Encoded", "Moments", "Strings", "compiled", "encode", "measure"]

_found: Final = extension("aioproducer.records._columns")
# The reason for plain Python; empty if the compiled build is used.
REASON: Final = _found.reason
compiled: Any = _found.module
_chosen: Any = plain_columns if compiled is None else compiled

Moments: Any = _chosen.Moments
Strings: Any = _chosen.Strings
encode: Any = _chosen.encode
measure: Any = _chosen.measure
