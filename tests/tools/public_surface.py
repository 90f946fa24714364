"""Writes down what users of the package see: the public names, the parameters of what can be called, the fields of what is given back.

    AIOPRODUCER_PURE=1 python -m tests.tools.public_surface > tests/public_surface.txt

A change of that file is a change for users: it stands in docs/changelog.md, too. Annotations are left out, as they name internal classes.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULES: Final = (
    "aioproducer",
    "aioproducer.errors",
    "aioproducer.jars",
    "aioproducer.spark",
    "aioproducer.telemetry.otlp",
    "aioproducer.telemetry.prometheus",
    "aioproducer.telemetry.tracing",
    "aioproducer.testing",
)


def parameters(thing: Any) -> str:
    """Return the parameters of a callable, with their defaults; empty if it has no signature."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    bare = [
        parameter.replace(annotation=parameter.empty, default=_default(parameter.default)) for parameter in signature.parameters.values()
    ]
    return str(inspect.Signature(bare))


class _Written:
    """Shows a default as text without a memory address."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _default(value: Any) -> Any:
    if value is inspect.Parameter.empty or isinstance(value, (bool, int, float, str, bytes, tuple, type(None))):
        return value
    return _Written(f"<{getattr(value, '__qualname__', type(value).__qualname__)}>")


def members(kind: type) -> Iterator[str]:
    """Yield the public members of a class of ours, also those that it inherits from classes of ours."""
    for name in sorted(dir(kind)):
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if (
            (name.startswith("_") and name not in {"__init__", "__call__"})
            or owner is None
            or not owner.__module__.startswith("aioproducer")
        ):
            continue
        member = inspect.getattr_static(kind, name)
        called = getattr(kind, name) if isinstance(member, (classmethod, staticmethod)) else member
        yield f"  {name}{parameters(called) if callable(called) else ''}"


def lines() -> Iterator[str]:
    """Return the whole text."""
    for module in MODULES:
        yield f"{module}:"
        names = importlib.import_module(module).__all__
        for name in sorted(names):
            thing = getattr(importlib.import_module(module), name)
            if inspect.isclass(thing):
                yield f" class {name}"
                yield from members(thing)
            else:
                yield f" {name}{parameters(thing) if callable(thing) else ''}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines())
