"""Writes each Python block of the pages into a file that type checkers read: `python -m tests.tools.doc_blocks FOLDER`.

A block keeps the line numbers of its page. One with `await` outside a function becomes the body of one. A page shows fragments: what a
block names and does not make comes from aioproducer, or from tests/stubs/surroundings.pyi, which says what it is.
"""

from __future__ import annotations

import ast
import builtins
import pathlib
import re
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, NamedTuple

import aioproducer

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Block", "blocks", "module"]

ROOT = pathlib.Path(__file__).parents[2]
SURROUNDINGS = ROOT / "tests/stubs/surroundings.pyi"
_FENCED = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_WAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith)


class Block(NamedTuple):
    """Holds one block: its page's path below the tree, the line of its opening fence, and its code."""

    page: str
    line: int
    code: str

    @property
    def name(self) -> str:
        """Return the name of its module, which says where it stands."""
        return f"{re.sub(r'[^a-z]+', '_', self.page.removesuffix('.md').lower())}_{self.line}"


def blocks(root: pathlib.Path = ROOT) -> list[Block]:
    """Return the Python blocks of the README and of every page."""
    found = []
    for path in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        page = path.relative_to(root).as_posix()
        found += [
            Block(page, text.count("\n", 0, match.start()) + 1, match[1])
            for match in _FENCED.finditer(text)
        ]
    return found


def module(block: Block, given: frozenset[str]) -> str:
    """Return the text of a module that holds the block.

    Args:
        block: the block.
        given: the names that the surroundings make.

    Raises:
        NameError: the block uses a name that nothing makes.
    """
    tree = compile(
        block.code, block.page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    )
    assert isinstance(tree, ast.Module)
    missing = _free(tree)
    ours = sorted(missing & set(aioproducer.__all__))
    others = sorted(missing - set(ours))
    if unknown := [name for name in others if name not in given]:
        raise NameError(
            f"{block.page}:{block.line}: {', '.join(unknown)}: declare it in {SURROUNDINGS.relative_to(ROOT)}"
        )
    imports = [
        f"from {source} import {', '.join(names)}"
        for source, names in (("aioproducer", ours), ("surroundings", others))
        if names
    ]
    code, opening = block.code, ""
    if any(isinstance(node, _WAITS) for node in _outside(tree)):
        opening = "async def shown() -> None:"
        code = textwrap.indent(code, "    ")
        if left := _left(tree.body):
            code += f"    _ = ({', '.join(left)},)  # what the reader's program goes on with\n"
    return "; ".join(imports) + "\n" * (block.line - 1) + opening + "\n" + code


def write(folder: pathlib.Path) -> int:
    """Write all blocks into `folder`, which is emptied first. Returns their number."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    given = frozenset(_bound(ast.parse(SURROUNDINGS.read_text(encoding="utf-8"))))
    found = blocks()
    for block in found:
        (folder / f"{block.name}.py").write_text(module(block, given), encoding="utf-8")
    return len(found)


def _free(tree: ast.AST) -> set[str]:
    loaded = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return loaded - set(_bound(tree)) - set(dir(builtins))


def _bound(tree: ast.AST) -> Iterator[str]:
    """Yield the names that the code makes, in whichever scope."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            yield node.name


def _outside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that are in no function and in no class."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _SCOPES):
            yield child
            yield from _outside(child)


def _left(body: list[ast.stmt]) -> list[str]:
    """Return the names that are assigned for certain when the body ends."""
    names: list[str] = []
    for node in body:
        if isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.With | ast.AsyncWith):
            names += _left(node.body)
    return list(dict.fromkeys(names))


if __name__ == "__main__":
    print(f"{write(pathlib.Path(sys.argv[1]))} blocks")
