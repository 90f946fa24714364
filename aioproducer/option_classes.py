"""Makes the classes whose fields are options: frozen dataclasses, without the methods that `dataclasses` compiles for each frozen class.

Two methods that name the fields take three quarters of the time that such a class takes. `Frozen` has them for all. For type checkers,
`option_class` is `dataclasses.dataclass`. A constructor takes `**options`; `OptionsSignature` tells which.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any, Never, get_args, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as option_class
else:

    def option_class(*, frozen: bool, **arguments: bool) -> Callable[[type], type]:
        """Return a decorator that makes a dataclass of a subclass of `Frozen`, which is frozen by that."""
        assert frozen
        return dataclasses.dataclass(**arguments)


__all__ = ["Frozen", "OptionsSignature", "Underivable", "option_class"]


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

    def __getstate__(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return the attributes of a plain subclass, and the fields with the subclass's slots, for copies and pickles."""
        state: Any = super().__getstate__()
        return state if isinstance(state, tuple) else (state, None)

    def __setstate__(self, state: tuple[dict[str, Any] | None, dict[str, Any] | None]) -> None:
        """Set the attributes, and the fields."""
        for values in state:
            for name, value in (values or {}).items():
                object.__setattr__(self, name, value)


class OptionsSignature:
    """Computes `__signature__` when it is asked for, of a constructor that takes `**options: Unpack[SomeTypedDict]`.

    `inspect.signature` and `help` show each option with its default. The type is the one that the constructor takes, of which a field may
    hold a converted value.
    """

    def __init__(self, init: Callable[..., None]) -> None:
        self._init = init

    def __get__(self, _instance: object, owner: type) -> inspect.Signature:
        """Return the signature of `owner`, which has the constructor.

        Raises:
            AttributeError: `owner` derives from a class with this signature, and has a constructor of its own.
        """
        if owner.__init__ is not self._init:  # type: ignore[misc]
            raise AttributeError("__signature__")
        (options,) = get_args(get_type_hints(self._init)["options"])
        defaults = {field.name: field.default for field in dataclasses.fields(owner)}
        return inspect.Signature(
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind)
                for name, kind in get_type_hints(options).items()
            ],
            return_annotation=None,
        )


class Underivable:
    """Holds the parameters of a dataclass, and refuses to derive another dataclass from it.

    `dataclasses` asks each base whether it is frozen. The constructor that it would compile for a derived class holds every option as a
    local variable, secrets among them, and the methods that return a changed config would lose the fields that it adds.
    """

    def __init__(self, config: type) -> None:
        self._name = config.__name__
        self._parameters = config.__dataclass_params__  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        """Return any other parameter."""
        return getattr(self._parameters, name)

    @property
    def frozen(self) -> bool:
        """Raise TypeError."""
        raise TypeError(
            f"a dataclass cannot be derived from {self._name}: derive a plain class with a `__post_init__`, make a changed config by "
            "`replace`, or have a class with a config as one of its fields"
        )
