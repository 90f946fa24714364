"""Changes the SCRAM messages of a fake broker: other counts and nonces, or whole other messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["scram_changes"]


def scram_changes(
    count: int | None,
    nonce: bytes | None,
    first: bytes | Callable[[bytes], bytes] | None,
    final: bytes | Callable[[bytes], bytes] | None,
) -> Callable[[Any], None]:
    """Return a function that changes a SaslAuthenticate answer if it holds a message of a SCRAM server; the others stay as they are."""

    def change(answer: Any) -> None:
        sound = bytes(answer.auth_bytes)
        if sound.startswith(b"r="):
            if count is not None:
                sound = re.sub(rb",i=\d+", b",i=%d" % count, sound)
            if nonce is not None:
                sound = re.sub(rb"^r=[^,]+", lambda _: b"r=" + nonce, sound)
            answer.auth_bytes = _made(first, sound)
        elif sound.startswith(b"v="):
            answer.auth_bytes = _made(final, sound)

    return change


def _made(by: bytes | Callable[[bytes], bytes] | None, sound: bytes) -> bytes:
    if by is None:
        return sound
    return by(sound) if callable(by) else by
