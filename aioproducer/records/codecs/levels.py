"""Names the levels of LZ4 as Java counts them."""

from __future__ import annotations

from typing import Final

__all__ = ["LZ4_FAST"]

# Java's level 9 is the fast compressor. Every other level is one of the high compressor.
LZ4_FAST: Final = 9
