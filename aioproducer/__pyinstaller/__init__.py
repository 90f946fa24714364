"""The hook that PyInstaller finds by the entry point `pyinstaller40`, so that a program that imports aioproducer is frozen without options."""

from __future__ import annotations

import pathlib

__all__ = ["hook_dirs"]


def hook_dirs() -> list[str]:
    """Return the folder of the hook."""
    return [str(pathlib.Path(__file__).parent)]
