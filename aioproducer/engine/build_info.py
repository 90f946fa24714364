"""Reports the builds that this process runs, of the send path and of `send_columns`, for users and bug reports."""

from __future__ import annotations

import pathlib
import platform
import sys
from typing import NamedTuple

from aioproducer.compiled_modules import ENGINE, NOT_INSTALLED
from aioproducer.engine.append.chosen_build import BUILD, REASON
from aioproducer.records import columns
from aioproducer.version import VERSION

__all__ = ["BuildInfo", "build_info"]


class BuildInfo(NamedTuple):
    """Holds the builds that run in this process; `print` shows them on one line.

    Attributes:
        version: of aioproducer.
        build: "compiled" or "plain Python": both do the same, at a different speed.
        reason: why the build is plain Python; empty if it is compiled.
        extension: the compiled build's file name, with its Python version and platform; empty if the build is plain Python.
        python: implementation and version of Python.
        columns_reason: why `send_columns`, which has an extension of its own, encodes rows in plain Python; empty if it is compiled.
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
    """Return the build that runs in this process: compiled, or plain Python with the reason.

    ```python
    print(aioproducer.build_info())  # aioproducer 0.1.0 on CPython 3.13.0: compiled (_fast_path.cpython-313-x86_64-linux-gnu.so)
    ```

    The build is chosen once, when the first producer's code is imported. The environment variable `AIOPRODUCER_PURE=1` chooses plain
    Python. Without it, `AIOPRODUCER_REQUIRE_EXT=1` makes the lack of a compiled build an ImportError, also for `send_columns`.

    Raises:
        ImportError: `AIOPRODUCER_REQUIRE_EXT` is set, and a compiled build cannot be used; or it was made of another source.
    """
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return BuildInfo(VERSION, BUILD, _in_full(REASON), "" if REASON else _extension(), python, _in_full(columns.REASON))


def _in_full(reason: str) -> str:
    """Return the reason; for a compiled build that is not installed, also what was installed instead."""
    return f"{reason}{_installed()}" if reason == NOT_INSTALLED else reason


def _installed() -> str:
    # imported here: it takes tens of milliseconds
    from importlib import metadata

    try:
        installed = metadata.distribution("aioproducer")
    except metadata.PackageNotFoundError:
        return ""
    # A vendored copy runs beside another installation, and an editable one is elsewhere: neither wheel says anything of this folder.
    if pathlib.Path(str(installed.locate_file("aioproducer"))) != pathlib.Path(__file__).parents[1]:
        return ""
    if "Tag: py3-none-any" in (installed.read_text("WHEEL") or "").splitlines():
        return ": the wheel py3-none-any is installed, which is for any Python and machine"
    return ": it was not compiled when it was installed from source, which needs a C compiler"


def _extension() -> str:
    return pathlib.Path(sys.modules[ENGINE].__file__ or "").name
