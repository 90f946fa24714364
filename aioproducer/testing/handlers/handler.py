"""Holds the parts of the answer to one kind of request."""

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
    """Describes how a broker answers one kind of request.

    Attributes:
        key: the request's number.
        versions: lowest and highest version that it answers.
        targets: returns the topics and partitions of a request, for the scope of faults.
        answer: answers a call with `Call.reply`, at once or later.
        mend: corrects a client's well-known encoding mistake that Kafka's brokers tolerate.
    """

    key: ApiKey
    versions: tuple[int, int]
    targets: Callable[[FakeCluster, Any], Iterable[Target]]
    answer: Callable[[Call], None]
    mend: Callable[[bytes, RequestHeader], bytes] = lambda frame, _header: frame

    @property
    def name(self) -> str:
        """Return Kafka's name of the request."""
        return NAMES[self.key]
