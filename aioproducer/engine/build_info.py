"""Which builds this process runs, of the way of a record and of what `send_columns` does, for people and for bug reports."""

from __future__ import annotations

import pathlib
import platform
import sys
from typing import NamedTuple

from aioproducer.compiled_modules import ENGINE
from aioproducer.engine.append.chosen_build import BUILD, REASON
from aioproducer.records import columns
from aioproducer.version import VERSION

__all__ = ["BuildInfo", "build_info"]


class BuildInfo(NamedTuple):
    """What runs here; `print` shows it in one line.

    Attributes:
        version: of aioproducer.
        build: "compiled" or "plain Python": both do the same, at another price.
        reason: why it is plain Python; empty if it is compiled.
        extension: the compiled build's file name, with the Python and the platform that it is for; empty if it is plain Python.
        python: implementation and version.
        columns_reason: why `send_columns` encodes rows in plain Python, which is an extension of its own; empty if it is compiled.
    """

    version: str
    build: str
    reason: str
    extension: str
    python: str
    columns_reason: str = ""

    def __str__(self) -> str:
        because = self.extension or self.reason
        columns = f"plain Python ({self.columns_reason})" if self.columns_reason else "compiled"
        also = "" if self.columns_reason == self.reason else f"; send_columns: {columns}"
        return f"aioproducer {self.version} on {self.python}: {self.build} ({because}){also}"


def build_info() -> BuildInfo:
    """Which build runs here: compiled, or plain Python and why.

    ```python
    print(aioproducer.build_info())  # aioproducer 0.1.0 on CPython 3.13.0: compiled (_fast_path.cpython-313-x86_64-linux-gnu.so)
    ```

    It is chosen once, when the first producer's code is imported. The variable `AIOPRODUCER_PURE=1` chooses plain Python; else
    `AIOPRODUCER_REQUIRE_EXT=1` makes the lack of the compiled build an ImportError, also of the one that `send_columns` uses.

    Raises:
        ImportError: `AIOPRODUCER_REQUIRE_EXT` is set, and a compiled build cannot be used; or it was made of another source.
    """
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return BuildInfo(VERSION, BUILD, REASON, "" if REASON else _extension(), python, columns.REASON)


def _extension() -> str:
    return pathlib.Path(sys.modules[ENGINE].__file__ or "").name
