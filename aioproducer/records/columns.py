"""Rows of Arrow columns as records, by the compiled `_columns` where that is built, else by its twin; `AIOPRODUCER_PURE=1`: by the twin."""

from __future__ import annotations

import importlib
import os
from typing import Any, Final

from aioproducer.records import plain_columns
from aioproducer.records.plain_columns import BadRow, Encoded

__all__ = ["BadRow", "Encoded", "Moments", "Strings", "compiled", "encode", "is_compiled", "measure"]

try:
    compiled: Any = importlib.import_module("aioproducer.records._columns")
except ImportError:
    compiled = None

is_compiled: Final = compiled is not None and os.environ.get("AIOPRODUCER_PURE", "") in {"", "0"}
_chosen: Any = compiled if is_compiled else plain_columns

Moments: Any = _chosen.Moments
Strings: Any = _chosen.Strings
encode: Any = _chosen.encode
measure: Any = _chosen.measure
