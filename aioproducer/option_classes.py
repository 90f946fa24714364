"""Makes the classes whose fields are options: frozen dataclasses, without the methods that `dataclasses` compiles for each frozen class.

Two methods that name the fields take three quarters of the time that such a class takes. `Frozen` has them for all. For type checkers,
`option_class` is `dataclasses.dataclass`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Never

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as option_class
else:

    def option_class(*, frozen: bool, **arguments: bool) -> Callable[[type], type]:
        """Return a decorator that makes a dataclass of a subclass of `Frozen`, which is frozen by that."""
        assert frozen
        return dataclasses.dataclass(**arguments)


__all__ = ["Frozen", "option_class"]


class Frozen:
    """Refuses to change its fields. `object.__setattr__` sets them, in a constructor."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, _value: object) -> Never:
            """Raise FrozenInstanceError."""
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

        def __delattr__(self, name: str) -> Never:
            """Raise FrozenInstanceError."""
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self) -> list[Any]:
        """Return the fields' values, for copies and pickles."""
        return [getattr(self, field.name) for field in dataclasses.fields(self)]  # type: ignore[arg-type]

    def __setstate__(self, state: list[Any]) -> None:
        """Set the fields' values."""
        for field, value in zip(dataclasses.fields(self), state, strict=True):  # type: ignore[arg-type]
            object.__setattr__(self, field.name, value)
