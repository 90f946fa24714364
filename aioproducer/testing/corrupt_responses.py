"""Answers as no sound broker sends them: cut, garbled, doubled, late, in crumbs. Each is a function of the answer that was to be sent.

Knows nothing of why an answer is spoilt, or which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aioproducer.wire.frame import encode_response

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer.interfaces import Buffer
    from aioproducer.testing.connection import Connection

__all__ = ["Outgoing", "Spoil", "garbage", "gathered", "late", "lost", "raw", "segmented", "truncated", "unsolicited", "wrong_id"]

_OTHER_ID: Final = 0x5A5A


class Outgoing(NamedTuple):
    """An answer that is ready to be sent, and where."""

    connection: Connection
    key: int
    version: int
    correlation_id: int
    body: Sequence[Buffer]

    def frame(self, *, body: Sequence[Buffer] | None = None, correlation_id: int | None = None) -> bytes:
        """The whole answer, with another body or correlation id if one is given."""
        number = self.correlation_id if correlation_id is None else correlation_id
        return b"".join(encode_response(self.key, self.version, number, self.body if body is None else body))


Spoil: TypeAlias = "Callable[[Outgoing], None]"


def truncated(keep: int | None) -> Spoil:
    """The first `keep` bytes, or half of them, and the connection is closed."""

    def send(answer: Outgoing) -> None:
        whole = answer.frame()
        answer.connection.write([whole[: len(whole) // 2 if keep is None else keep]])
        answer.connection.close()

    return send


def garbage(body: bytes | Callable[[bytes], bytes] | None) -> Spoil:
    """The right correlation id with another body: the given one, one made of the sound one, or as many bytes of 0xff."""

    def send(answer: Outgoing) -> None:
        sound = b"".join(answer.body)
        other = body(sound) if callable(body) else b"\xff" * len(sound) if body is None else body
        answer.connection.finish([answer.frame(body=[other])])

    return send


def raw(data: bytes) -> Spoil:
    """These bytes in place of the answer, size and all."""
    return lambda answer: answer.connection.finish([data])


def wrong_id(answer: Outgoing) -> None:
    """The answer to a request that was not made."""
    answer.connection.finish([answer.frame(correlation_id=answer.correlation_id ^ _OTHER_ID)])


def unsolicited(answer: Outgoing) -> None:
    """The answer, and behind it one that nobody asked for."""
    answer.connection.finish([answer.frame(), answer.frame(correlation_id=answer.correlation_id ^ _OTHER_ID)])


def lost(answer: Outgoing) -> None:
    """No answer; those behind it come."""
    answer.connection.finish()


def late(answer: Outgoing) -> None:
    """The answer goes behind the next one."""
    answer.connection.postpone(answer.frame())


def segmented(size: int) -> Spoil:
    """The answer in pieces of so many bytes, one in each turn of the loop."""

    def send(answer: Outgoing) -> None:
        whole = answer.frame()
        pieces = (whole[at : at + size] for at in range(0, len(whole), size))
        answer.connection.trickle(pieces)

    return send


def gathered(count: int) -> Spoil:
    """So many answers of one connection in one piece."""

    def send(answer: Outgoing) -> None:
        answer.connection.gather(answer.frame(), count)

    return send
