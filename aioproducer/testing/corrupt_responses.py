"""Corrupt answers: truncated, garbled, doubled, late or in small pieces; each a function of the correct answer."""

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
    """Holds an answer that is ready to be sent, and its connection."""

    connection: Connection
    key: int
    version: int
    correlation_id: int
    body: Sequence[Buffer]

    def frame(self, *, body: Sequence[Buffer] | None = None, correlation_id: int | None = None) -> bytes:
        """Return the whole answer, with another body or correlation id if one is given."""
        number = self.correlation_id if correlation_id is None else correlation_id
        return b"".join(encode_response(self.key, self.version, number, self.body if body is None else body))


Spoil: TypeAlias = "Callable[[Outgoing], None]"


def truncated(keep: int | None) -> Spoil:
    """Return a function that sends the first `keep` bytes, or half of them, and closes the connection."""

    def send(answer: Outgoing) -> None:
        whole = answer.frame()
        answer.connection.write([whole[: len(whole) // 2 if keep is None else keep]])
        answer.connection.close()

    return send


def garbage(body: bytes | Callable[[bytes], bytes] | None) -> Spoil:
    """Return a function that keeps the correlation id and sends another body: `body`, `body(valid body)`, or as many bytes of 0xff."""

    def send(answer: Outgoing) -> None:
        sound = b"".join(answer.body)
        other = body(sound) if callable(body) else b"\xff" * len(sound) if body is None else body
        answer.connection.finish([answer.frame(body=[other])])

    return send


def raw(data: bytes) -> Spoil:
    """Return a function that sends these bytes in place of the answer, size and all."""
    return lambda answer: answer.connection.finish([data])


def wrong_id(answer: Outgoing) -> None:
    """Send the answer with the correlation id of a request that was never made."""
    answer.connection.finish([answer.frame(correlation_id=answer.correlation_id ^ _OTHER_ID)])


def unsolicited(answer: Outgoing) -> None:
    """Send the answer, and after it one without a request."""
    answer.connection.finish([answer.frame(), answer.frame(correlation_id=answer.correlation_id ^ _OTHER_ID)])


def lost(answer: Outgoing) -> None:
    """Send no answer; later requests are answered."""
    answer.connection.finish()


def late(answer: Outgoing) -> None:
    """Send the answer after the next one."""
    answer.connection.postpone(answer.frame())


def segmented(size: int) -> Spoil:
    """Return a function that sends the answer in pieces of `size` bytes, one per event-loop iteration."""

    def send(answer: Outgoing) -> None:
        whole = answer.frame()
        pieces = (whole[at : at + size] for at in range(0, len(whole), size))
        answer.connection.trickle(pieces)

    return send


def gathered(count: int) -> Spoil:
    """Return a function that sends `count` answers of one connection in one piece."""

    def send(answer: Outgoing) -> None:
        answer.connection.gather(answer.frame(), count)

    return send
