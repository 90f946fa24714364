"""The source text of a generated Python function, built line by line and compiled."""

from __future__ import annotations

import linecache
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """Holds the source text of one function, and the names that it may use.

    Args:
        title: takes the place of a file name in tracebacks.
        names: the function's globals.
    """

    def __init__(self, title: str, names: dict[str, Any]) -> None:
        self.names = names
        self._title = f"<aioproducer {title}>"
        self._lines: list[str] = []
        self._depth = 0
        self._variables = 0

    def line(self, text: str) -> None:
        """Add one statement."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a statement, and indent the statements added inside the `with` block below it."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self) -> str:
        """Return a variable name that is not in use yet."""
        self._variables += 1
        return f"v{self._variables}"

    def layout(self, codes: str, method: str) -> str:
        """Return the name of a bound method of a big-endian `struct.Struct`, which is added to `names`."""
        name = f"{method}_{codes.replace('?', 'bool')}"
        self.names.setdefault(name, getattr(struct.Struct(f">{codes}"), method))
        return name

    def compile(self, function: str) -> Any:
        """Compile the text and return the function. Tracebacks show its lines."""
        text = "\n".join(self._lines) + "\n"
        linecache.cache[self._title] = (
            len(text),
            None,
            text.splitlines(keepends=True),
            self._title,
        )
        exec(compile(text, self._title, "exec"), self.names)
        return self.names[function]
