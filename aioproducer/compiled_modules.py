"""Chooses the build of a compiled module: compiled, or plain Python with the reason.

The environment variable `AIOPRODUCER_PURE=1` chooses plain Python. Without it, `AIOPRODUCER_REQUIRE_EXT=1` makes the lack of a compiled
module an error. Both are read when the module that has the choice is imported.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pathlib

__all__ = ["ENGINE", "NOT_INSTALLED", "PYTHONS", "Extension", "compiled_from", "crc_of_sources", "extension", "why_plain"]

# The engine's compiled module that needs all its others: either all of them are used, or none.
ENGINE: Final = "aioproducer.engine.append._fast_path"
# The versions of CPython on which the compiled build was tested. setup.py compiles for these alone, and each has its wheels.
PYTHONS: Final = ((3, 11), (3, 12), (3, 13), (3, 14), (3, 15))
NOT_INSTALLED: Final = "the compiled build is not installed"


class Extension(NamedTuple):
    """Holds a compiled module, or the reason why it is not used.

    Attributes:
        module: the module; None if it is not used.
        reason: the reason in words; empty if the module is used.
    """

    module: Any
    reason: str

    @property
    def build(self) -> str:
        """Return the name of the build that runs, in words."""
        return "plain Python" if self.reason else "compiled"


def extension(name: str) -> Extension:
    """Return the compiled module of this name, or the reason why it is not used.

    Raises:
        ImportError: the module was made of another source than the one beside it; or it is required and cannot be used.
    """
    if _is_set("AIOPRODUCER_PURE"):
        # Also if AIOPRODUCER_REQUIRE_EXT is set: the user chose plain Python, so no module is lacking.
        return Extension(None, "AIOPRODUCER_PURE is set")
    found = _found(name)
    if found.reason and _is_set("AIOPRODUCER_REQUIRE_EXT"):
        raise ImportError(f"AIOPRODUCER_REQUIRE_EXT is set, and {name} cannot be used: {found.reason}")
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
    """Return whether this Python has no global interpreter lock. Before 3.13, each has one."""
    if sys.version_info < (3, 13):
        return False
    # It reads a large table.
    import sysconfig

    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def _found(name: str) -> Extension:
    if reason := why_plain():
        return Extension(None, reason)
    try:
        module = importlib.import_module(name)
    # AttributeError and SystemError: the internals of this Python differ from those of the Python that the module was made for.
    except (ImportError, AttributeError, SystemError) as error:
        # If it is not missing, the module exists but was made for another platform, for example.
        is_missing = isinstance(error, ImportError) and error.name == name
        return Extension(None, NOT_INSTALLED if is_missing else f"the compiled build cannot be loaded ({error})")
    source = os.path.join(os.path.dirname(module.__file__ or ""), f"{name.rpartition('.')[2]}.pyx")
    # A wheel has no .pyx, and does not import pathlib for one.
    if os.path.exists(source):
        _check_source(name, source, getattr(module, "SOURCE", None))
    return Extension(module, "")


def _check_source(name: str, source: str, made_of: int | None) -> None:
    """Raise ImportError if a compiled module is not made of the sources beside it. `made_of` is 0 if setup.py did not make it."""
    import pathlib

    path = pathlib.Path(source)
    if made_of not in {0, crc_of_sources(path.parents[name.count(".") - 1])}:
        raise ImportError(f"{name} is not made of the {path.name} beside it: `pip install -e .` again, or set AIOPRODUCER_PURE=1")


def compiled_from(package: pathlib.Path) -> list[pathlib.Path]:
    """Return the sources of the package's compiled modules: each `_x.pyx`; and `x.py` as the source of `_x` if only `_x.pxd` exists."""
    typed = (types for types in package.rglob("*.pxd") if not types.with_suffix(".pyx").exists())
    return sorted([*package.rglob("*.pyx"), *(types.with_name(f"{types.stem.removeprefix('_')}.py") for types in typed)])


def crc_of_sources(package: pathlib.Path) -> int:
    """Return the CRC-32 of all sources of the package's compiled modules. They use each other's internals, so they share one."""
    # Imported where the sources are: a wheel has none.
    import zlib

    crc = 0
    for source in (*compiled_from(package), *sorted(package.rglob("*.pxd"))):
        crc = zlib.crc32(source.read_bytes(), crc)
    return crc


def _is_set(name: str) -> bool:
    return os.environ.get(name, "") not in {"", "0"}
