"""Copies records that are not compressed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer.interfaces import Buffer

__all__ = ["compress", "decompress"]


def compress(data: Buffer, _level: int) -> bytes:
    """Return `data` as bytes."""
    return bytes(data)


def decompress(data: Buffer, limit: int) -> bytes:
    """Return at most one byte more than `limit`."""
    return bytes(data[: limit + 1])
