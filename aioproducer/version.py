"""Holds the version of the package.

pyproject.toml reads it here, so that the package has it without an installed distribution.
"""

from __future__ import annotations

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.1.0"
