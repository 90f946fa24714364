"""Tests of `aioproducer.engine.wiring`: its parts are connected by their constructors alone, and no class of the engine is too large."""

from __future__ import annotations

import ast
import pathlib
from typing import TYPE_CHECKING, Final

import pytest

import aioproducer

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = pathlib.Path(aioproducer.__file__).parent
MOST_ARGUMENTS: Final = 8
MOST_METHODS: Final = 25
# What the results of one producer share: it belongs to them, and they set it.
DATA: Final = frozenset({"DeliveryContext"})


def trees(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield each module of the packages: its path and its tree."""
    for package in packages:
        for path in sorted((PACKAGE / package).rglob("*.py")):
            yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def made(wiring: ast.Module) -> frozenset[str]:
    """Return the classes of the package that a module makes."""
    imported = {
        name.asname or name.name
        for node in ast.walk(wiring)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("aioproducer.")
        for name in node.names
    }
    called = {ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(wiring) if isinstance(node, ast.Call)}
    return frozenset(name for name in called & imported if name[0].isupper()) - DATA


def names(parts: frozenset[str], modules: list[ast.Module]) -> dict[str, str]:
    """Return the names by which code knows the parts, with their classes: variables that they are assigned to, annotated arguments."""
    found: dict[str, str] = {}
    for node in (node for module in modules for node in ast.walk(module)):
        if isinstance(node, ast.arg) and node.annotation is not None:
            kinds = {word.strip() for word in ast.unparse(node.annotation).split("|")} & parts
            found |= dict.fromkeys({node.arg} if kinds else (), next(iter(kinds), ""))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            kind = ast.unparse(node.value.func).rpartition(".")[2]
            if kind in parts:
                found |= {ast.unparse(target).rpartition(".")[2].lstrip("_"): kind for target in node.targets}
    return found


def stores(module: ast.Module) -> Iterator[ast.Attribute]:
    """Yield each attribute that a module sets or deletes, but those of `self`."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and ast.unparse(node.value) != "self":
            yield node


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield each class of `engine`, `core` and `net` that is not a value, with its name."""
    for _, module in trees("engine", "core", "net"):
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                told = [ast.unparse(one) for one in (*node.bases, *node.decorator_list)]
                if not any(one == "NamedTuple" or "frozen=True" in one for one in told):
                    yield node.name, node


def methods(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]


def found_outside(wiring: ast.Module, modules: dict[str, ast.Module]) -> set[str]:
    """Return each assignment to an attribute of a part from outside it, as "file: target"."""
    known = names(made(wiring), list(modules.values()))
    return {
        f"{path}: {ast.unparse(node)}"
        for path, module in modules.items()
        for node in stores(module)
        if ast.unparse(node.value).rpartition(".")[2].lstrip("_") in known
    }


def test_parts_are_connected_by_their_constructors() -> None:
    """No code sets an attribute of a part from outside it."""
    modules = dict(trees("engine", "core", "net"))
    wiring = modules["engine/wiring.py"]
    assert {"Sender", "PartitionQueues", "BufferPool", "MetadataUpdater"} <= made(wiring)
    assert found_outside(wiring, modules) == frozenset()


@pytest.mark.parametrize(
    "line",
    ["self._sender.x = 1", "sender.x += 1", "parts.sender.x, y = 1, 2", "del self.sender.x", "part.queues.x = 1", "self.outbox.x = 1"],
)
def test_an_assignment_from_outside_is_seen(line: str) -> None:
    """By each form of an assignment, under each name of the part."""
    wiring = ast.parse("from aioproducer.a import Sender, Queues\ndef wire():\n    self.outbox = Sender(Queues())")
    other = ast.parse(
        f"class Other:\n    def f(self, sender: Sender, queues: Queues | None, batch: Batch):\n        {line}\n        batch.x = 1"
    )
    target = line.split()[-3].rstrip(",") if line[0] != "d" else "self.sender.x"
    target = "parts.sender.x" if "," in line else target
    assert found_outside(wiring, {"wiring": wiring, "other": other}) == {f"other: {target}"}


def test_constructors_have_few_arguments() -> None:
    """At most eight: more of them are several classes, or a value of their own."""
    counts = {
        name: len((*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs)) - 1
        for name, node in classes()
        for one in methods(node)
        if one.name == "__init__"
    }
    assert {name: count for name, count in counts.items() if count > MOST_ARGUMENTS} == {}


def test_classes_have_few_methods() -> None:
    """At most 25, private ones and properties among them."""
    counts = {name: len(methods(node)) for name, node in classes()}
    assert {name: count for name, count in counts.items() if count > MOST_METHODS} == {}
