"""Makes the named tuples of modules whose annotations are strings, as `typing.NamedTuple` does, in a fifth of its time.

`typing.NamedTuple` compiles each annotation that is a string, and a constructor for each class. An import of the producer makes some
fifty named tuples, so that this was a tenth of it. Here a class gets the constructor and the readers of a `collections.namedtuple` with as
many fields, with its own names in them. `typing.get_type_hints` reads the strings, in both cases, when it is called. For type checkers both
are the same.
"""

from __future__ import annotations

from collections import namedtuple
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple
else:

    @cache
    def _pattern(count: int) -> type:
        """Return a named tuple of so many fields."""
        return namedtuple("_Pattern", [f"field{at}" for at in range(count)])  # noqa: PYI024

    def _replace(self: Any, /, **changes: Any) -> Any:
        """Return a copy with these values in place of its own."""
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"Got unexpected field names: {list(changes)!r}")
        return made

    def _repr(self: Any) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({values})"

    def _constructor(pattern: Any, name: str, fields: tuple[str, ...], defaults: tuple[object, ...]) -> FunctionType:
        """Return the pattern's constructor, with the names of fields for its arguments."""
        code = pattern.__new__.__code__.replace(co_varnames=("_cls", *fields), co_name="__new__", co_qualname=f"{name}.__new__")
        return FunctionType(code, pattern.__new__.__globals__, "__new__", defaults)

    class _NamedTupleMaker(type):
        """Makes a subclass of `tuple` of each class statement."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            """Return the named tuple of a class's annotations, defaults and methods."""
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body.pop(field) for field in fields if field in body}
            pattern = _pattern(len(fields))
            of_pattern = vars(pattern)
            made = {
                "__slots__": (),
                "_fields": fields,
                "_field_defaults": defaults,
                "__match_args__": fields,
                "__new__": _constructor(pattern, body["__qualname__"], fields, tuple(defaults.values())),
                "__getnewargs__": of_pattern["__getnewargs__"],
                "__repr__": _repr,
                "__replace__": _replace,
                "_make": of_pattern["_make"],
                "_replace": _replace,
                "_asdict": of_pattern["_asdict"],
            }
            made.update(zip(fields, (of_pattern[field] for field in pattern._fields), strict=True))
            return type(name, (tuple,), {**made, **body})

    class NamedTuple(metaclass=_NamedTupleMaker):
        """The base of a class statement that makes a named tuple."""


__all__ = ["NamedTuple"]
