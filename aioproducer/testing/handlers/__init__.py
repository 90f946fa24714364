"""What a fake broker answers, one module per request. Each says which versions it answers and where it differs from Kafka."""

from __future__ import annotations

from typing import Final

from aioproducer.testing.handlers import api_versions, fetch, find_coordinator, list_offsets, metadata, produce

__all__ = ["HANDLERS"]

HANDLERS: Final = {
    module.HANDLER.key: module.HANDLER for module in (api_versions, fetch, find_coordinator, list_offsets, metadata, produce)
}
