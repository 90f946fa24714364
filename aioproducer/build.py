"""The build that runs: the compiled modules, or their twins in plain Python and the reason why. And the version of the package.

Everything that a reader asks of the two builds is decided here, once in a process: `extension` finds a compiled module, `build_info` tells.
The environment variable `AIOPRODUCER_PURE=1` chooses plain Python. Without it, `AIOPRODUCER_REQUIRE_EXT=1` makes the lack of a compiled
module an error.

setup.py and noxfile.py run this file by itself, so it imports nothing of the package.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import platform
import sys
import sysconfig
import zlib
from functools import cache
from typing import Any, Final, NamedTuple

__all__ = [
    "COLUMNS",
    "ENGINE",
    "NOT_INSTALLED",
    "PYTHONS",
    "VERSION",
    "BuildInfo",
    "Extension",
    "build_info",
    "extension",
]

# pyproject.toml reads it here, so that the package has it without an installed distribution.
VERSION: Final = "0.1.0"
# The engine's compiled module that needs all its others: either all of them are used, or none.
ENGINE: Final = "aioproducer.engine.append._fast_path"
# What `send_columns` and `rows_checksum` read Arrow's buffers with.
COLUMNS: Final = "aioproducer.records._columns"
# The versions of CPython on which the compiled build was tested. setup.py compiles for these alone, and each has its wheels.
PYTHONS: Final = ((3, 11), (3, 12), (3, 13), (3, 14), (3, 15))
NOT_INSTALLED: Final = "the compiled build is not installed"


class Extension(NamedTuple):
    """Holds a compiled module, or the reason in words why it is not used; the reason is empty if it is."""

    module: Any
    reason: str


@cache
def extension(name: str) -> Extension:
    """Return the compiled module of this name, or the reason why it is not used. The first call decides for this process.

    Raises:
        ImportError: the module was made of another source than the one beside it; or it is required and cannot be used.
    """
    if _is_set("AIOPRODUCER_PURE"):
        # Also if AIOPRODUCER_REQUIRE_EXT is set: the user chose plain Python, so no module is lacking.
        return Extension(None, "AIOPRODUCER_PURE is set")
    found = _found(name)
    if found.reason and _is_set("AIOPRODUCER_REQUIRE_EXT"):
        raise ImportError(
            f"AIOPRODUCER_REQUIRE_EXT is set, and {name} cannot be used: {found.reason}"
        )
    return found


def why_plain() -> str:
    """Return why this Python runs no compiled build even if one is installed; empty if it may. setup.py builds none for the same reason."""
    if _is_free_threaded():
        return "this Python has no global interpreter lock, which the compiled build needs"
    if sys.implementation.name != "cpython":
        return "the compiled build is for CPython"
    if sys.version_info[:2] not in PYTHONS:
        tested = ", ".join(f"{major}.{minor}" for major, minor in PYTHONS)
        this = ".".join(map(str, sys.version_info[:2]))
        return f"the compiled build is for the Pythons that it was tested on ({tested}), and this is {this}"
    return ""


def _is_free_threaded() -> bool:
    # Before 3.13 each Python has the lock. There the answer, which reads a large table, is not worth its milliseconds.
    return sys.version_info >= (3, 13) and bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def _found(name: str) -> Extension:
    if reason := why_plain():
        return Extension(None, reason)
    try:
        module = importlib.import_module(name)
    # AttributeError and SystemError: the internals of this Python differ from those of the Python that the module was made for.
    except (ImportError, AttributeError, SystemError) as error:
        # If it is not missing, the module exists but was made for another platform, for example.
        is_missing = isinstance(error, ImportError) and error.name == name
        return Extension(
            None, NOT_INSTALLED if is_missing else f"the compiled build cannot be loaded ({error})"
        )
    source = pathlib.Path(module.__file__ or "").with_name(f"{name.rpartition('.')[2]}.pyx")
    # A wheel has no .pyx. SOURCE is 0 if setup.py did not make the module.
    if source.exists() and getattr(module, "SOURCE", None) not in {
        0,
        crc_of_sources(source.parents[name.count(".") - 1]),
    }:
        raise ImportError(
            f"{name} is not made of the {source.name} beside it: `pip install -e .` again, or set AIOPRODUCER_PURE=1"
        )
    return Extension(module, "")


def compiled_from(package: pathlib.Path) -> list[pathlib.Path]:
    """Return the sources of the package's compiled modules: each `_x.pyx`; and `x.py` as the source of `_x` if only `_x.pxd` exists."""
    typed = (types for types in package.rglob("*.pxd") if not types.with_suffix(".pyx").exists())
    return sorted(
        [
            *package.rglob("*.pyx"),
            *(types.with_name(f"{types.stem.removeprefix('_')}.py") for types in typed),
        ]
    )


def crc_of_sources(package: pathlib.Path) -> int:
    """Return the CRC-32 of all sources of the package's compiled modules. They use each other's internals, so they share one."""
    crc = 0
    for source in (*compiled_from(package), *sorted(package.rglob("*.pxd"))):
        crc = zlib.crc32(source.read_bytes(), crc)
    return crc


def _is_set(name: str) -> bool:
    return os.environ.get(name, "") not in {"", "0"}


class BuildInfo(NamedTuple):
    """Holds the builds that run in this process; `print` shows them on one line.

    Attributes:
        version: of aioproducer.
        build: "compiled" or "plain Python": both do the same, at a different speed.
        reason: why the build is plain Python; empty if it is compiled.
        extension: the compiled build's file name, with its Python version and platform; empty if the build is plain Python.
        python: implementation and version of Python.
        columns_reason: why `send_columns`, which has an extension of its own, sends its rows in plain Python; empty if it is compiled.
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
    engine, columns = extension(ENGINE), extension(COLUMNS)
    return BuildInfo(
        VERSION,
        "plain Python" if engine.reason else "compiled",
        _in_full(engine.reason),
        "" if engine.reason else pathlib.Path(engine.module.__file__ or "").name,
        f"{platform.python_implementation()} {platform.python_version()}",
        _in_full(columns.reason),
    )


def _in_full(reason: str) -> str:
    """Return the reason; for a compiled build that is not installed, also what was installed instead."""
    if reason != NOT_INSTALLED:
        return reason
    # Imported here: every program imports this module, and that one takes tens of milliseconds.
    from importlib import metadata

    try:
        installed = metadata.distribution("aioproducer")
    except metadata.PackageNotFoundError:
        return reason
    # A vendored copy runs beside another installation, and an editable one is elsewhere: neither wheel says anything of this folder.
    if pathlib.Path(str(installed.locate_file("aioproducer"))) != pathlib.Path(__file__).parent:
        return reason
    if "Tag: py3-none-any" in (installed.read_text("WHEEL") or "").splitlines():
        return f"{reason}: the wheel py3-none-any is installed, which is for any Python and machine"
    return (
        f"{reason}: it was not compiled when it was installed from source, which needs a C compiler"
    )
