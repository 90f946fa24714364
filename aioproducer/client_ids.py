"""Assigns client ids to producers without a given one: `aioproducer-1`, `aioproducer-2`, ... in each process.

A producer with a `transactional_id` is `aioproducer-<transactional_id>`, as in Java (`ProducerConfig`, KAFKA-1228). Any other producer has
the lowest number that no producer of the process has. It holds the number from its construction until it has stopped or was
garbage-collected. A forked child counts from 1, because the parent's producers do not run in it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from aioproducer.option_kinds import AssignedClientId

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig

__all__ = ["ClientIdNumber", "with_client_id"]

_PREFIX: Final = "aioproducer-"
# Bytes of a client id that a request's header can hold.
_MAX_BYTES: Final = 2**15 - 1
# setdefault and pop are atomic, so producers may be made in several threads without a lock. A lock could be held while the process forks.
_holders: Final[dict[int, object]] = {}


class ClientIdNumber:
    """Holds the number of one producer's client id, until `release`, or until this object is garbage-collected."""

    def __init__(self) -> None:
        # While the interpreter ends, the module's global may be gone before the last producer is.
        self._holders = _holders
        self._token = object()
        self.value: int = 1
        while _holders.setdefault(self.value, self._token) is not self._token:
            self.value += 1

    def release(self) -> None:
        """Free the number for another producer. May be called again."""
        if self._holders.get(self.value) is self._token:
            del self._holders[self.value]

    __del__ = release


def with_client_id(config: ProducerConfig) -> tuple[ProducerConfig, ClientIdNumber | None]:
    """Return a config with a client id, and the number in it, if any.

    The config is `config` itself if its user chose a client id, else a copy.
    """
    if config.client_id and not isinstance(config.client_id, AssignedClientId):
        return config, None
    if config.transactional_id is not None:
        cut = (_PREFIX + config.transactional_id).encode()[:_MAX_BYTES].decode(errors="ignore")
        return config.with_client_id(AssignedClientId(cut)), None
    number = ClientIdNumber()
    return config.with_client_id(AssignedClientId(f"{_PREFIX}{number.value}")), number


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_holders.clear)
