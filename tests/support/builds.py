"""Both builds of what a record passes, and of columns, for the tests that hold them to one contract; the package has chosen one of them.

`on_both` runs a test on each of the two: a namespace with what the engine chooses. Without the compiled one its cases are skipped, which CI does not let pass; where the
variable `AIOPRODUCER_REQUIRE_EXT` is set, they cannot even be collected. Nor can they of one that is stale.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import aioproducer
from aioproducer.build import COLUMNS, ENGINE, extension
from aioproducer.engine import chosen_build

if TYPE_CHECKING:
    from aioproducer import Producer

__all__ = [
    "BUILDS",
    "both_builds",
    "compiled",
    "compiled_columns",
    "needs_compiled",
    "needs_compiled_columns",
    "on_both",
    "on_columns",
    "on_compiled",
    "plain",
    "producer_on",
]

_TWINS = (
    "delivery.{}produce_request_result",
    "delivery.{}delivery",
    "delivery.{}records_builder",
    "append.{}fast_path",
)

with mock.patch.dict(
    os.environ, {"AIOPRODUCER_PURE": ""}
):  # which one is chosen does not matter here
    _, REASON = extension.__wrapped__(ENGINE)
    compiled_columns, NO_COLUMNS = extension.__wrapped__(COLUMNS)


class Build:
    """Holds the classes that the engine chooses, of one of the builds."""

    MemoryRecordsBuilder: Any
    Delivery: Any
    FastPath: Any
    ProduceRequestResult: Any
    DeliveryContext: Any

    def __init__(self, prefix: str) -> None:
        self.is_compiled = bool(prefix)
        for twin in _TWINS:
            vars(self).update(
                vars(importlib.import_module(f"aioproducer.engine.{twin.format(prefix)}"))
            )


plain = Build("")
compiled = Build("_") if not REASON else None

_HELP = ". Make it: python setup.py build_ext --inplace"
needs_compiled = pytest.mark.skipif(bool(REASON), reason=REASON + _HELP)
needs_compiled_columns = pytest.mark.skipif(bool(NO_COLUMNS), reason=NO_COLUMNS + _HELP)
# One run of such a test shows both builds, whichever the package has chosen: `nox -s plain` leaves it out.
both_builds = pytest.mark.both_builds
BUILDS = [
    pytest.param(plain, id="plain", marks=both_builds),
    pytest.param(compiled, id="compiled", marks=[both_builds, needs_compiled]),
]
# Only the compiled build reads buffers.
on_columns = pytest.mark.parametrize(
    "build", [pytest.param(compiled_columns, id="compiled", marks=needs_compiled_columns)]
)
on_both = pytest.mark.parametrize("build", BUILDS)
on_compiled = pytest.mark.parametrize("build", BUILDS[1:])

# Modules that depend on neither build.
_SHARED = frozenset(
    f"aioproducer.engine.{name}"
    for name in (
        *(twin.format(prefix) for twin in _TWINS for prefix in ("", "_")),
        "delivery.outcome",
        "tasks.supervisor",
        "observability.diagnostics",
    )
)


def _stands_on_a_build(name: str) -> bool:
    others = ("aioproducer.producer", "aioproducer.records.arrow")
    return name not in _SHARED and (name in others or name.startswith("aioproducer.engine"))


@functools.cache
def producer_on(build: Any) -> type[Producer]:
    """Return the `Producer` of that build. If it was not chosen here, the modules that depend on it are imported again, aside."""
    if chosen_build.Delivery is build.Delivery:
        return aioproducer.Producer
    extension.cache_clear()
    here = {name: sys.modules.pop(name) for name in list(sys.modules) if _stands_on_a_build(name)}
    try:
        with mock.patch.dict(
            os.environ,
            {"AIOPRODUCER_PURE": str(int(not build.is_compiled)), "AIOPRODUCER_REQUIRE_EXT": ""},
        ):
            face: type[Producer] = importlib.import_module("aioproducer.producer").Producer
    finally:
        extension.cache_clear()
        for name in list(filter(_stands_on_a_build, sys.modules)):
            del sys.modules[name]
        sys.modules.update(here)
        for name in ("engine", "producer"):
            if f"aioproducer.{name}" in here:
                setattr(aioproducer, name, here[f"aioproducer.{name}"])
    return face
