"""Holds `Outcome`, which both builds of the results and deliveries share."""

from __future__ import annotations

import enum


class Outcome(enum.Enum):
    """Lists the outcomes of a batch, for the callbacks and tasks that wait for its records."""

    PENDING = "pending"
    ACKNOWLEDGED = "acknowledged"
    # Acknowledged, and the metadata can be made at once.
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    # The records are in smaller batches, each with a result of its own.
    SPLIT = "split"
