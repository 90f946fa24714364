"""Writes down what users of the package see: the public names with their parameters, types and defaults.

    python -m tests.tools.public_surface > tests/public_surface.txt

griffe reads them from the source as type checkers do, without an import: of a choice between two builds it sees the one in plain Python, and the
file is the same with every Python and every installation. A change of it is a change for users: it stands in docs/changelog.md, too.
docs/topics/versioning.md says what is public.
"""

from __future__ import annotations

import ast
import pathlib
import sys
from typing import TYPE_CHECKING, Final

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = pathlib.Path(__file__).parents[2]
MODULES: Final = (
    "aioproducer",
    "aioproducer.errors",
    "aioproducer.testing.jars",
    "aioproducer.spark",
    "aioproducer.telemetry.otlp",
    "aioproducer.telemetry.prometheus",
    "aioproducer.telemetry.tracing",
    "aioproducer.testing",
)
# What Python calls by a name of its own, and so does not look private.
PROTOCOLS: Final = {
    "__aenter__",
    "__aexit__",
    "__aiter__",
    "__await__",
    "__call__",
    "__enter__",
    "__exit__",
    "__init__",
    "__iter__",
    "__len__",
}
# Characters of a value that is written down; a longer one is a text for people.
LONGEST: Final = 40


def loaded(root: pathlib.Path = ROOT) -> griffe.Module:
    """Return the package as griffe reads it below `root`."""
    loader = griffe.GriffeLoader(search_paths=[root])
    package = loader.load("aioproducer", try_relative_path=False)
    loader.resolve_aliases(implicit=True, external=False)
    if not isinstance(package, griffe.Module):
        raise TypeError(f"aioproducer is no module in {root}")
    return package


def lines(package: griffe.Module, modules: Sequence[str] = MODULES) -> Iterator[str]:
    """Yield the whole text: each public module with what its `__all__` names."""
    for path in modules:
        yield f"{path}:"
        module = package[path.partition(".")[2]] if "." in path else package
        for name in sorted(str(export) for export in module.exports or ()):
            # By where it is imported from: a function may have the name of its module.
            home = module.imports.get(name, f"{path}.{name}")
            yield from _described(name, _target(package.modules_collection[home]), module)


def _target(thing: griffe.Object | griffe.Alias) -> griffe.Object:
    return thing.final_target if isinstance(thing, griffe.Alias) else thing


def _described(name: str, found: griffe.Object, module: griffe.Module) -> Iterator[str]:
    if isinstance(found, griffe.Class):
        bases = ", ".join(str(base) for base in found.bases)
        yield f" class {name}({bases})" if bases else f" class {name}"
        yield from _members(found)
    else:
        yield from (f" {line}" for line in _member(name, found, (module.overloads or {}).get(name, [])))


def _members(kind: griffe.Class) -> Iterator[str]:
    """Yield the public members of a class, also those that it inherits from classes of ours."""
    has_fields = "dataclass" in kind.labels or any(str(base) == "NamedTuple" for base in kind.bases)
    # The order of fields is that of the constructor's arguments. That of other members says nothing.
    for name, member in kind.all_members.items() if has_fields else sorted(kind.all_members.items()):
        if (name.startswith("_") and name not in PROTOCOLS) or (has_fields and name == "__init__"):
            continue
        yield from (f"  {line}" for line in _member(name, _target(member), kind.overloads.get(name, [])))


def _member(name: str, thing: griffe.Object, overloads: list[griffe.Function]) -> Iterator[str]:
    if isinstance(thing, griffe.Function):
        labels = "".join(f"{label} " for label in ("async", "classmethod", "staticmethod") if label in thing.labels)
        yield from (f"{labels}{form.signature(name=name)}" for form in overloads or [thing])
    elif isinstance(thing, griffe.Attribute):
        kind = "property " if "property" in thing.labels else ""
        yield f"{kind}{name}{_annotation(thing)}{_value(thing)}"
    else:
        yield f"{thing.kind.value} {name}"


def _annotation(thing: griffe.Attribute) -> str:
    return "" if thing.annotation is None else f": {thing.annotation}"


def _value(thing: griffe.Attribute) -> str:
    """Return the default of a field or the value of a member if it is a short literal; of another one, that a field has one."""
    if thing.value is None:
        return ""
    text = str(thing.value)
    try:
        ast.literal_eval(text)
    except (SyntaxError, ValueError):
        is_literal = False
    else:
        is_literal = len(text) <= LONGEST
    if is_literal or str(thing.annotation) == "TypeAlias":
        return f" = {text}"
    return " = ..." if thing.annotation is not None else ""


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines(loaded()))
