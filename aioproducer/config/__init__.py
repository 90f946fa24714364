"""The producer's options: what they are, which names and texts they may be given by, and which of them fit each other."""

from __future__ import annotations

from aioproducer.config.producer_config import ProducerConfig

__all__ = ["ProducerConfig"]
