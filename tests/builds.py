"""Both builds of the way of a record, for the tests that hold them to one contract; `aioproducer.engine.hot` has chosen one of them.

`on_both` runs a test on each of the two modules. Without the compiled one its cases are skipped, which CI does not let pass; where the
variable `AIOPRODUCER_REQUIRE_EXT` is set, they cannot even be collected.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import sysconfig
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import aioproducer
from aioproducer.engine import hot, plain

if TYPE_CHECKING:
    from types import ModuleType

    from aioproducer import Producer

__all__ = ["BUILDS", "compiled", "on_both", "producer_on"]

REASON = ""
compiled: Any = None
try:
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise ImportError("this Python has no global interpreter lock")
    from aioproducer.engine import _hot as compiled
except ImportError as error:
    if os.environ.get("AIOPRODUCER_REQUIRE_EXT", "") not in {"", "0"}:
        raise
    REASON = f"no compiled build: {error}. Make it: python setup.py build_ext --inplace"

_MARKS = [pytest.mark.skip(reason=REASON)] if REASON else []
BUILDS = [pytest.param(plain, id="plain"), pytest.param(compiled, id="compiled", marks=_MARKS)]
on_both = pytest.mark.parametrize("build", BUILDS)
on_compiled = pytest.mark.parametrize("build", BUILDS[1:])

_SHARED = frozenset(f"aioproducer.engine.{name}" for name in ("_hot", "plain", "result", "waiter", "watch"))  # what both stand on


def _stands_on_a_build(name: str) -> bool:
    return name not in _SHARED and (name == "aioproducer.producer" or name.startswith("aioproducer.engine"))


@functools.cache
def producer_on(build: ModuleType) -> type[Producer]:
    """`Producer` as it is where that build was chosen: if it was not here, the modules that stand on it are imported once more, aside."""
    if hot.OpenBatch is build.OpenBatch:
        return aioproducer.Producer
    here = {name: sys.modules.pop(name) for name in list(sys.modules) if _stands_on_a_build(name)}
    try:
        with mock.patch.dict(os.environ, {"AIOPRODUCER_PURE": str(int(build is plain)), "AIOPRODUCER_REQUIRE_EXT": ""}):
            face: type[Producer] = importlib.import_module("aioproducer.producer").Producer
    finally:
        for name in list(filter(_stands_on_a_build, sys.modules)):
            del sys.modules[name]
        sys.modules.update(here)
        for name in ("engine", "producer"):
            if f"aioproducer.{name}" in here:
                setattr(aioproducer, name, here[f"aioproducer.{name}"])
    assert issubclass(face, build.SendPath)
    return face
