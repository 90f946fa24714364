"""Which build of a compiled module's work runs here: compiled, or plain Python and why. Knows nothing of what they do.

1. An extension of its own source (`.pyx`) has a twin in plain Python: `extension`.
2. A batch's way (`BATCHES`) is compiled from its very modules, by mypyc: all of them or none, as compiled classes know each other's insides.
   The library is named for what it was made of, so that edited modules run as they stand, interpreted.

The environment variable `AIOPRODUCER_PURE=1` chooses plain Python; else `AIOPRODUCER_REQUIRE_EXT=1` makes the lack of a compiled module an
error. Both are read when the module that has the choice is imported.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import sys
import sysconfig
import zlib
from functools import cache
from importlib.util import spec_from_file_location
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = ["BATCHES", "Extension", "batches", "choose", "extension", "library", "sources"]

BATCHES: Final = tuple(
    f"aioproducer.{package}.{name}"
    for package, names in {
        "core": "accumulator attempt availability batch incomplete outcome pauses queueing ready routes sequence",
        "engine": "alarm appender completions encoder ends formats guard lots meter parking pool produce resting result room sender shares turn",
        "metrics": "notes",
        "net": "cluster connection node",
        "records": "record_batch",
        "wire": "api frame lone primitives",
    }.items()
    for name in names.split()
)
"""The modules that a batch goes through."""

_HERE: Final = pathlib.Path(__file__).parent
_WISHED: Final = "AIOPRODUCER_PURE is set"


class Extension(NamedTuple):
    """A compiled module, and why it is not used.

    Attributes:
        module: None if it is not used.
        reason: in words; empty if it is used.
    """

    module: Any
    reason: str

    @property
    def build(self) -> str:
        """Which one runs, in words."""
        return "plain Python" if self.reason else "compiled"


def extension(name: str) -> Extension:
    """The compiled module of this name, if it is to be used.

    Raises:
        ImportError: it was made of another source than lies beside it; or it is required and cannot be used.
    """
    if _is_set("AIOPRODUCER_PURE"):
        return Extension(None, _WISHED)  # also where it is required: a wish is no lack
    return _lacking(name, _found(name))


def _lacking(name: str, found: Extension) -> Extension:
    """What was found, if that will do."""
    if found.reason and _is_set("AIOPRODUCER_REQUIRE_EXT"):
        raise ImportError(f"AIOPRODUCER_REQUIRE_EXT is set, and {name} cannot be used: {found.reason}")
    return found


def library(root: pathlib.Path) -> str:
    """The module that has all of `BATCHES`, compiled of what lies in that folder (`aioproducer`'s)."""
    made_of = 0
    for source in sources(root):
        made_of = zlib.crc32(source.read_bytes(), made_of)
    return f"aioproducer._batches_{made_of:08x}__mypyc"


def sources(root: pathlib.Path) -> list[pathlib.Path]:
    """What `BATCHES` are compiled of: all of their packages and what these stand on, as constants of others are compiled in."""
    packages = sorted({name.split(".")[1] for name in BATCHES})
    return [source for folder in (root, *(root / package for package in packages)) for source in sorted(folder.glob("*.py"))]


@cache
def batches() -> Extension:
    """The compiled way of a batch, if it is used in this process; what it was made of is looked at once.

    Raises:
        ImportError: it is required, and cannot be used.
    """
    if _is_set("AIOPRODUCER_PURE"):
        return Extension(None, _WISHED)
    return _lacking("a batch's way", _batches())


def _batches() -> Extension:
    if not _is_main_interpreter():
        return Extension(None, "this is a subinterpreter, and mypyc's modules keep what all of a process would share")
    there = {f"aioproducer.{path.name.partition('.')[0]}" for path in _HERE.glob("_batches_*")}
    name = library(_HERE)
    if not sources(_HERE) and len(there) == 1:  # installed without sources
        (name,) = there
    is_stale = bool(there) and name not in there
    return Extension(None, "it was made of other sources than lie here") if is_stale else _found(name)


def _is_main_interpreter() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):  # from Python 3.13 on, and before
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() == interpreters.get_main())
    return True


class _Interpreted:
    """Finds the sources of what is there compiled, too, where that is not to run (an importer: `importlib.abc.MetaPathFinder`)."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name not in BATCHES or not (batches().reason or _is_set("AIOPRODUCER_PURE")):
            return None
        module = _HERE.joinpath(*name.split(".")[1:])
        found = (path for path in (module.with_suffix(".py"), module.with_suffix(".pyc")) if path.exists())
        return next((spec_from_file_location(name, path) for path in found), None)


def choose() -> None:
    """See to it that a batch's modules are imported in the build that is used, before the first of them is."""
    sys.meta_path.insert(0, _Interpreted)


def _found(name: str) -> Extension:
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return Extension(None, "this Python has no global interpreter lock, which the compiled build needs")
    try:
        module = importlib.import_module(name)
    except (ImportError, AttributeError, SystemError) as error:  # the latter two: a Python whose insides are others than it was made for
        is_missing = isinstance(error, ImportError) and error.name == name  # else it is there, and for another platform or the like
        return Extension(None, "the compiled build is not installed" if is_missing else f"the compiled build cannot be loaded ({error})")
    source = pathlib.Path(module.__file__ or "").with_name(f"{name.rpartition('.')[2]}.pyx")
    if _is_stale(getattr(module, "SOURCE", None), source):
        raise ImportError(f"{name} is not made of the {source.name} beside it: `pip install -e .` again, or set AIOPRODUCER_PURE=1")
    return Extension(module, "")


def _is_stale(made_of: int | None, source: pathlib.Path) -> bool:
    """Whether it was made of another source: somebody edits that one. A wheel has none. 0: not made by setup.py."""
    return source.exists() and made_of not in {0, zlib.crc32(source.read_bytes())}


def _is_set(name: str) -> bool:
    return os.environ.get(name, "") not in {"", "0"}
