"""Loads anyio's backend before an event loop needs it."""

from __future__ import annotations

from importlib import import_module

__all__ = ["load_backend"]


def load_backend() -> None:
    """Import anyio's backend. Its first use in an event loop would import it there, which takes tens of milliseconds.

    Raises:
        ModuleNotFoundError: a package that anyio needs is not installed.
    """
    try:
        import_module("anyio._backends._asyncio")
    except ModuleNotFoundError as error:
        # The module is private, so a version of anyio may have another one. Its own packages are needed with any version.
        if not (error.name or "").startswith("anyio."):
            raise
