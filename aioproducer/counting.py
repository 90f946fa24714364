"""Writes counts with the noun that fits, for errors, logs and reprs."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 record`, `2 records`, `2 batches`."""
    plural = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{plural}"
