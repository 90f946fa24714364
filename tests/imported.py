"""Which packages the modules of the tests import when they are collected, directly or through each other. Nothing is imported for it."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

__all__ = ["Imports"]

# At the start of a line: neither what a function imports, nor what is for checkers of types alone.
_IMPORT: Final = re.compile(r"^(?:from (\S+) )?import (\([^)]*\)|.+)", re.MULTILINE)


class Imports:
    """Holds the files of the tests by what they import: `Imports(root).files_that_need("pyspark")`."""

    def __init__(self, root: pathlib.Path) -> None:
        settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        self._places = [root / place for place in settings["tool"]["pytest"]["ini_options"]["pythonpath"]]
        self._tests = root / "tests"
        self._by_file = {path: frozenset(_names(path)) for path in self._tests.rglob("*.py")}
        self._files = cache(self._files_of)

    def files_that_need(self, *packages: str) -> set[str]:
        """Return the paths below tests/ of the test files that cannot be collected without these packages."""
        tests = (path for path in self._by_file if path.name.startswith("test_"))
        return {path.relative_to(self._tests).as_posix() for path in tests if self._needs(path, packages)}

    def _needs(self, path: pathlib.Path, packages: tuple[str, ...]) -> bool:
        seen, found = set(), [path]
        while found:
            file = found.pop()
            if file in seen:
                continue
            seen.add(file)
            if any(name.partition(".")[0] in packages for name in self._by_file[file]):
                return True
            found.extend(self._files(file))
        return False

    def _files_of(self, path: pathlib.Path) -> list[pathlib.Path]:
        files = []
        for name in self._by_file[path]:
            bare = name.lstrip(".")
            places = self._places if bare == name else [path.parents[len(name) - len(bare) - 1]]
            files += [place / f"{bare.replace('.', '/')}{end}" for place in places for end in (".py", "/__init__.py")]
        return [file for file in files if file in self._by_file]


def _names(path: pathlib.Path) -> Iterator[str]:
    for imported in _IMPORT.finditer(path.read_text(encoding="utf-8")):
        names = [part.split()[0] for part in re.sub(r"#.*|[()]", "", imported[2]).split(",") if part.strip()]
        source = imported[1]
        if source:
            yield source
            names = [f"{source.rstrip('.')}.{name}" if source.strip(".") else f"{source}{name}" for name in names]
        yield from names
