"""The chosen build of the fast path: compiled (`_fast_path`), or its twin in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.compiled_modules import ENGINE, extension
from aioproducer.engine.append import fast_path

__all__ = ["BUILD", "REASON", "TURN", "TURN_RECORDS", "FastPath", "here"]

_found: Final = extension(ENGINE)
BUILD: Final = _found.build
# Reason for plain Python; empty where the compiled build runs.
REASON: Final[str] = _found.reason

_fast_path: Any = fast_path if REASON else _found.module

if TYPE_CHECKING:
    from aioproducer.engine.append.fast_path import FastPath, here
else:
    FastPath, here = _fast_path.FastPath, _fast_path.here

TURN: Final[int] = _fast_path.TURN
TURN_RECORDS: Final[int] = _fast_path.TURN_RECORDS
