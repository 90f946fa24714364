"""ApiVersions 0-4: what a broker speaks. An unsupported version is answered in version 0 with the range of ApiVersions alone (KIP-511).

Deviation: no features.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aioproducer.errors import broker_error
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers.handler import Handler
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.interfaces import Buffer
    from aioproducer.testing.broker import Call

__all__ = ["HANDLER", "unsupported"]

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")  # ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN
_FIRST_WITH_SOFTWARE: Final = 3
_TARGET: Final = Target()


def unsupported(lowest: int, highest: int) -> Sequence[Buffer]:
    """The body, in version 0, for a request in a version that is not spoken."""
    answer = message(
        "ApiVersions.response",
        error_code=broker_error("UNSUPPORTED_VERSION").code,
        api_keys=[message("ApiVersions.response.api_keys", api_key=ApiKey.API_VERSIONS, min_version=lowest, max_version=highest)],
    )
    return codec("ApiVersions.response", 0).encode(answer)


def _answer(call: Call) -> None:
    code = call.code(_TARGET)
    if call.version >= _FIRST_WITH_SOFTWARE:
        software = (call.request.client_software_name, call.request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, software)):
            code = code or broker_error("INVALID_REQUEST").code
    ranges = [
        message("ApiVersions.response.api_keys", api_key=key, min_version=lowest, max_version=highest)
        for key, (lowest, highest) in sorted(call.broker.versions.items())
    ]
    call.reply(message("ApiVersions.response", error_code=code, api_keys=[] if code else ranges))


HANDLER: Final = Handler(ApiKey.API_VERSIONS, (0, 4), lambda _cluster, _request: (_TARGET,), _answer)
