"""Hides the libraries of codecs, as if they were not installed."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING
from unittest import mock

from aioproducer.records import compression

if TYPE_CHECKING:
    from collections.abc import Iterator

# What has LZ4 and Zstandard where cramjam does not.
OWN_PACKAGES = ("lz4", "lz4.frame", "zstandard")


@contextlib.contextmanager
def hidden(*names: str) -> Iterator[None]:
    """Hide packages from the codecs, which are imported anew, until the end of the block."""
    with mock.patch.dict(sys.modules):
        for module in [name for name in sys.modules if name.startswith("aioproducer.records.codecs.")]:
            del sys.modules[module]
        sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]
        compression.functions_of.cache_clear()
        try:
            yield
        finally:
            compression.functions_of.cache_clear()
