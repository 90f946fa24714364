"""Says which SASL extensions OAUTHBEARER can send (RFC 7628, KIP-342)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["extension_fault"]

# As Kafka's OAuthBearerClientInitialResponse, which wants a value of one character at least.
_NAME: Final = r"[A-Za-z]+"
_VALUE: Final = r"[\x21-\x7e \t\r\n]+"
# The name of the token itself in the message.
_RESERVED: Final = "auth"


def extension_fault(extensions: Iterable[tuple[Any, Any]]) -> str:
    """Return why extensions, as (name, value), cannot be sent; empty: they can. The text has no value of an extension."""
    seen: set[str] = set()
    for name, value in extensions:
        if not isinstance(name, str) or re.fullmatch(_NAME, name) is None:
            return "the name of a SASL extension has letters of ASCII alone"
        if name == _RESERVED:
            return f"a SASL extension cannot have the name {_RESERVED!r}, which is the token's"
        if name in seen:
            return f"the SASL extension {name!r} is given twice"
        if not isinstance(value, str) or re.fullmatch(_VALUE, value) is None:
            return f"the value of the SASL extension {name!r} is no string of printable ASCII, with one character at least"
        seen.add(name)
    return ""
