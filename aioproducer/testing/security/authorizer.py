"""Denied operations, judged as Kafka's StandardAuthorizer does where everything else is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Authorizer", "Operation", "ResourceType"]

Operation: TypeAlias = Literal["All", "Read", "Write", "Create", "Describe", "IdempotentWrite"]
ResourceType: TypeAlias = Literal["topic", "group", "transactional_id", "cluster"]
_ANY: Final = "*"


class _Denial(NamedTuple):
    principal: str
    operation: Operation
    kind: ResourceType
    name: str


class Authorizer:
    """Holds the denied operations of a cluster. Each denial takes effect with the next request."""

    def __init__(self) -> None:
        self._denials: set[_Denial] = set()

    def deny(self, principal: str, operation: Operation, kind: ResourceType, name: str) -> None:
        """Deny an operation; "*" stands for every principal, "All" for every operation, the name "*" for every resource of the kind."""
        self._denials.add(_checked(principal, operation, kind, name))

    def allow(self, principal: str, operation: Operation, kind: ResourceType, name: str) -> None:
        """Remove a denial.

        Raises:
            ValueError: there is no such denial.
        """
        removed = _checked(principal, operation, kind, name)
        if removed not in self._denials:
            raise ValueError(f"{operation} on {kind} {name} is not denied to {principal}")
        self._denials.remove(removed)

    def allows(self, principal: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether a principal may do this to a resource."""
        if not self._denials:
            return True
        denials: Iterator[_Denial] = (
            _Denial(who, what, kind, which) for who in (principal, _ANY) for what in (operation, "All") for which in (name, _ANY)
        )
        return self._denials.isdisjoint(denials)


def _checked(principal: str, operation: Operation, kind: ResourceType, name: str) -> _Denial:
    if operation not in get_args(Operation):
        raise ValueError(f"operation is {', '.join(get_args(Operation))}, not {operation!r}")
    return _Denial(principal.removeprefix("User:"), operation, kind, name)
