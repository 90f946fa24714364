"""Writes `map.md` beside it, of the first line of each module: `python docs/topics/make_map.py`."""

from __future__ import annotations

import ast
import pathlib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = pathlib.Path(__file__).with_name("map.md")
PACKAGE: Final = pathlib.Path(__file__).parents[2] / "aioproducer"
HEAD: Final = """\
# Map of the files

<!-- Made by docs/topics/make_map.py of the first line of each module: change it there. -->

How they work together: [design](design.md). Which file a change touches: [CONTRIBUTING](../../CONTRIBUTING.md).
"""
_DOCSTRING: Final = re.compile(r'^"""(.*?)"""', re.DOTALL | re.MULTILINE)


def first_line(path: pathlib.Path) -> str:
    """What a module says of itself first; a `.pyx` is no Python that `ast` reads."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        said = ast.get_docstring(ast.parse(text)) or ""
    else:
        found = _DOCSTRING.search(text)
        said = found[1] if found else ""
    return said.strip().partition("\n")[0].replace("|", "\\|")


def lines() -> Iterator[str]:
    """The page, a table for each folder."""
    yield HEAD
    every = sorted(path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".pyx"})
    for folder in sorted({path.parent for path in every}):
        files = [path for path in every if path.parent == folder]
        name = folder.relative_to(PACKAGE.parent).as_posix()
        own = [path for path in files if path.name == "__init__.py"]
        yield f"## `{name}/`\n"
        if own:
            yield f"{first_line(own[0])}\n"
        others = [path for path in files if path not in own]
        if others:
            yield "| file | what it holds |\n|---|---|"
            yield from (f"| `{path.name}` | {first_line(path)} |" for path in others)
            yield ""


def page() -> str:
    """The whole page."""
    return "\n".join(lines()).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
