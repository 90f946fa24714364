"""The chosen build of the fast path: compiled (`_fast_path`), or its twin in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.append import fast_path
from aioproducer.engine.delivery.chosen_build import CHOSEN, REASON

__all__ = ["BUILD", "REASON", "SLICE_BYTES", "SLICE_RECORDS", "EncodingFastPath", "FastPath", "here"]

BUILD: Final = CHOSEN.build

_fast_path: Any = fast_path if REASON else CHOSEN.module

if TYPE_CHECKING:
    from aioproducer.engine.append.fast_path import EncodingFastPath, FastPath, here
else:
    EncodingFastPath, FastPath, here = _fast_path.EncodingFastPath, _fast_path.FastPath, _fast_path.here

SLICE_BYTES: Final[int] = _fast_path.SLICE_BYTES
SLICE_RECORDS: Final[int] = _fast_path.SLICE_RECORDS
