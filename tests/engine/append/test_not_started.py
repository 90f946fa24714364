"""Tests of `aioproducer.engine.append.not_started`: before `start`, every way of sending says so."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.engine.append.not_started import NOT_STARTED, closed_path
from aioproducer.errors import ProducerClosed

RECORD = ("orders", b"v", None, None, None, ())


@pytest.mark.parametrize("options", [{}, {"value_serializer": bytes}, {"key_serializer": bytes}])
@pytest.mark.asyncio
async def test_every_way_of_sending_raises(options: dict[str, Any]) -> None:
    """The fast path takes no record; the slow one raises when it is awaited, `send_nowait` at once."""
    path = closed_path(ProducerConfig(**options))
    assert path.append(*RECORD) is None
    with pytest.raises(ProducerClosed, match="was not started") as raised:
        await path.slowly(*RECORD)
    assert str(raised.value) == NOT_STARTED
    with pytest.raises(ProducerClosed, match="was not started"):
        path.now(*RECORD)
