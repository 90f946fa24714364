"""Loads anyio's backend before an event loop needs it."""

from __future__ import annotations

import contextlib
from importlib import import_module

__all__ = ["load_backend"]


def load_backend() -> None:
    """Import anyio's backend. Its first use in an event loop would import it there, which takes tens of milliseconds."""
    with contextlib.suppress(ImportError):
        import_module("anyio._backends._asyncio")
