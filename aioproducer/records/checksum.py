"""CRC-32C, the checksum of record batches, by the best function that this installation has.

It is the first of these: the compiled build's own, that of the package google-crc32c or crc32c, and a table in plain Python.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any, Final

from aioproducer.build import COLUMNS, extension

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.interfaces import Buffer

__all__ = ["SOURCE", "crc32c"]


_SLOW: Final = (
    "CRC-32C is computed in plain Python, which takes 2 ms for a batch of 16 KiB. Install the compiled build of aioproducer, or the package "
    "crc32c or google-crc32c"
)
# Of Castagnoli's polynomial, with the lowest bit first.
_POLYNOMIAL: Final = 0x82F63B78


def _table() -> list[int]:
    """Return what each byte does to a checksum."""
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0) for crc in table]
    return table


def by_table() -> Callable[[Buffer, int], int]:
    """Return the function in plain Python."""
    table = _table()

    def crc32c(data: Buffer, value: int = 0) -> int:
        crc = value ^ 0xFFFFFFFF
        for byte in memoryview(data).cast("B"):
            crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
        return crc ^ 0xFFFFFFFF

    return crc32c


def by_google() -> Callable[[Buffer, int], int] | None:
    """Return the function of google-crc32c; None: it is not installed, or is plain Python itself."""
    try:
        google: Any = importlib.import_module("google_crc32c")
    except ImportError:
        return None
    if google.implementation != "c":
        return None

    # It takes no memory that may be written to.
    def crc32c(data: Buffer, value: int = 0) -> int:
        return int(google.extend(value, data if isinstance(data, bytes) else bytes(data)))

    return crc32c


def by_crc32c() -> Callable[[Buffer, int], int] | None:
    """Return the function of the package crc32c, which takes tens of milliseconds to import; None: it is not installed."""
    try:
        # The line that the documents name: any module of this name may take its place.
        from crc32c import crc32c
    except ImportError:
        return None
    return crc32c


def choose() -> tuple[str, Any]:
    """Return the best function there is, and where it comes from. It warns of the slow one."""
    compiled = extension(COLUMNS).module
    if compiled is not None:
        return "aioproducer", compiled.crc32c
    for name, find in (("google-crc32c", by_google), ("crc32c", by_crc32c)):
        found = find()
        if found is not None:
            return name, found
    warnings.warn(_SLOW, RuntimeWarning, stacklevel=2)
    return "plain Python", by_table()


_chosen: Final = choose()
# The package that the function comes from.
SOURCE: Final = _chosen[0]
# `crc32c(data, value=0)` returns the checksum of `data` behind bytes whose checksum is `value`.
crc32c: Final[Any] = _chosen[1]
