"""What the answer to one kind of request consists of. Knows no particular request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioproducer.wire.api import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproducer.testing.broker import Call
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.faults import Target
    from aioproducer.wire.api import ApiKey
    from aioproducer.wire.frame import RequestHeader

__all__ = ["Handler"]


@dataclass(frozen=True, slots=True)
class Handler:
    """One request's side of the broker.

    Attributes:
        versions: lowest and highest that it answers.
        targets: what a request is about, for the scope of faults.
        answer: answers a call with `Call.reply`, at once or later.
        mend: puts right a client's well-known mistake that brokers do not mind.
    """

    key: ApiKey
    versions: tuple[int, int]
    targets: Callable[[FakeCluster, Any], Iterable[Target]]
    answer: Callable[[Call], None]
    mend: Callable[[bytes, RequestHeader], bytes] = lambda frame, _header: frame

    @property
    def name(self) -> str:
        """Kafka's name of the request."""
        return NAMES[self.key]
