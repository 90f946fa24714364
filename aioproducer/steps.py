"""What a module that mypyc compiles awaits of others (`extensions.BATCHES`). Itself it is interpreted. Knows nothing of what they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

T = TypeVar("T")

__all__ = ["Steps"]


class Steps(Generic[T]):
    """The steps of an awaitable, for `await Steps(one)`.

    What mypyc makes of an `await` throws with three arguments, a cancellation for one, and Python 3.12 and later warn of that: where
    warnings are errors, as in many tests, it would not be the cancellation that arrives.
    """

    __slots__ = ("_steps",)

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._steps: Generator[Any, Any, T] = awaitable.__await__()

    def __await__(self) -> Generator[Any, Any, T]:
        return self  # type: ignore[return-value]  # all of it that is asked for

    def __iter__(self) -> Steps[T]:
        return self

    def __next__(self) -> Any:
        return next(self._steps)

    def throw(self, kind: Any, value: BaseException | None = None, _traceback: object = None) -> Any:
        """As a generator's, with what is thrown alone."""
        return self._steps.throw(kind if value is None else value)

    def close(self) -> None:
        """As a generator's."""
        self._steps.close()
