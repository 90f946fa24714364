"""Python source that is written by a program, line by line, and compiled. Knows nothing of Kafka."""

from __future__ import annotations

import linecache
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Source"]


class Source:
    """The text of one function, and the names that it may use.

    Args:
        title: stands for a file name in tracebacks.
        names: what the function finds as its globals.
    """

    def __init__(self, title: str, names: dict[str, Any]) -> None:
        self.names = names
        self._title = f"<aioproducer {title}>"
        self._lines: list[str] = []
        self._depth = 0
        self._variables = 0

    def line(self, text: str) -> None:
        """One statement."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A statement with others indented below it."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self) -> str:
        """A name that is not taken yet."""
        self._variables += 1
        return f"v{self._variables}"

    def layout(self, codes: str, method: str) -> str:
        """The name of a bound method of `struct.Struct`, big-endian."""
        name = f"{method}_{codes.replace('?', 'bool')}"
        self.names.setdefault(name, getattr(struct.Struct(f">{codes}"), method))
        return name

    def compile(self, function: str) -> Any:
        """The function. Its lines show in tracebacks."""
        text = "\n".join(self._lines) + "\n"
        linecache.cache[self._title] = (len(text), None, text.splitlines(keepends=True), self._title)
        exec(compile(text, self._title, "exec"), self.names)  # noqa: S102  the text is made here, of the package's own tables alone
        return self.names[function]
