"""Reads the wall clock at each call, so that a test that replaces `time.time` replaces it for producers, too."""

from __future__ import annotations

import time

__all__ = ["wall_time"]


def wall_time() -> float:
    """Return the seconds since 1970.

    As the default of an argument, `time.time` itself would be the function of the time of the import. freezegun and
    `monkeypatch.setattr(time, "time", ...)` replace the module's attribute.
    """
    return time.time()
