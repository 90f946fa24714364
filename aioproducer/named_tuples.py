"""Makes the named tuples of modules whose annotations are strings, as `typing.NamedTuple` does, in a third of its time.

`typing.NamedTuple` compiles each annotation that is a string. An import of the producer makes some forty named tuples, so that this was
a twentieth of it. `typing.get_type_hints` reads the strings, in both cases, when it is called. For type checkers both are the same.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class _NamedTupleMaker(type):
        """Makes a subclass of `tuple` of each class statement."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            """Return the named tuple of a class's annotations, defaults and methods."""
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body.get("__annotations__", {})
            given = [field in body for field in fields]
            if len(bases) != 1 or given != sorted(given) or "__classcell__" in body:
                raise TypeError(
                    f"{name}: a named tuple has one base, defaults for its last fields alone, and no method that uses `super()`"
                )
            made = namedtuple(name, fields, defaults=[body[field] for field in fields if field in body], module=body["__module__"])
            made.__new__.__annotations__ = {**fields, "return": name}
            for key, value in body.items():
                if key not in fields and key != "__module__":
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_NamedTupleMaker):
        """The base of a class statement that makes a named tuple."""


__all__ = ["NamedTuple"]
