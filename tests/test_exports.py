"""Tests that `__all__` names the public objects, and that each of them has a docstring."""

from __future__ import annotations

import ast
import importlib
import inspect
import pathlib
import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import aioproducer

if TYPE_CHECKING:
    from collections.abc import Iterable

PUBLIC = (
    "aioproducer",
    "aioproducer.errors",
    "aioproducer.spark",
    "aioproducer.telemetry.otlp",
    "aioproducer.telemetry.prometheus",
    "aioproducer.telemetry.tracing",
    "aioproducer.testing",
)
# these names are types, and are aliases
ALIASES = {"Header", "Headers", "HeadersLike"}


def here(modules: Iterable[str]) -> list[str]:
    """Return the modules that can be imported: without pyspark (`nox -s pythons`) not its side."""
    return [
        module
        for module in modules
        if not module.startswith("aioproducer.spark") or find_spec("pyspark")
    ]


def undocumented(name: str, thing: object) -> list[str]:
    """Return the names of a public class or function, and its public members, that have no docstring."""
    found = [] if (inspect.getdoc(thing) or "").strip() else [name]
    if inspect.isclass(thing):
        members = (
            (key, value) for key, value in inspect.getmembers(thing) if not key.startswith("_")
        )
        found += [
            f"{name}.{key}"
            for key, value in members
            if is_ours(value) and not (inspect.getdoc(value) or "").strip()
        ]
    return found


def is_ours(member: object) -> bool:
    """Return whether a method or property is not one of a base class of another package, such as PySpark's listener."""
    function = member.fget if isinstance(member, property) else member
    package = (getattr(function, "__module__", None) or "").partition(".")[0]
    return (inspect.isroutine(member) or isinstance(member, property)) and package != "pyspark"


def test_the_front_door_shows_what_it_names() -> None:
    """Nothing can be taken from `aioproducer` by accident: what it shows is sorted in `__all__`, or is one of its modules."""
    assert [name for name in aioproducer.__all__ if not hasattr(aioproducer, name)] == []
    shown = {
        name
        for name, thing in vars(aioproducer).items()
        if not name.startswith("_") and not isinstance(thing, ModuleType)
    }
    assert shown == set(aioproducer.__all__)
    assert aioproducer.__all__ == sorted(aioproducer.__all__)
    assert set(aioproducer.__all__) <= set(dir(aioproducer))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        aioproducer.Nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    "module", here(["aioproducer", "aioproducer.spark", "aioproducer.testing"])
)
def test_type_checkers_see_what_is_there(module: str) -> None:
    """A lazy package shows type checkers the names that it gives when it runs, from the same modules."""
    package = importlib.import_module(module)
    assert package.__file__ is not None
    tree = ast.parse(pathlib.Path(package.__file__).read_text())
    imports = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aioproducer.")
    ]
    declared = {alias.name: node.module for node in imports for alias in node.names}
    assert declared.keys() == set(package.__all__)
    for name, home in declared.items():
        assert home is not None
        assert getattr(package, name) is getattr(importlib.import_module(home), name)


def test_the_front_door_imports_nothing_before_it_is_asked() -> None:
    """`import aioproducer` imports nothing before it is asked, as each run of pytest imports it where the package is installed."""
    code = "import sys, aioproducer; print([name for name in sys.modules if name.startswith(('aioproducer.', 'anyio', 'asyncio', 'crc32c'))])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


@pytest.mark.parametrize("module", here(PUBLIC))
def test_public_names_are_documented(module: str) -> None:
    """Each public class and function, and each public method and property of a class, has a docstring of its own or its parent's."""
    package = importlib.import_module(module)
    names = {name: getattr(package, name) for name in package.__all__ if name not in ALIASES}
    assert [
        missing
        for name, thing in names.items()
        if callable(thing)
        for missing in undocumented(name, thing)
    ] == []


def test_every_error_is_a_kafka_error() -> None:
    """`except KafkaError` catches every error that the package raises on purpose."""
    errors = [
        thing
        for thing in vars(aioproducer.errors).values()
        if inspect.isclass(thing) and issubclass(thing, Exception)
    ]
    assert [error for error in errors if not issubclass(error, aioproducer.KafkaError)] == []
    assert {error.__name__ for error in errors} <= set(aioproducer.errors.__all__)
