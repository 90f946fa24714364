"""kafka-python, an oracle here, calls a deprecated function while it is imported: imported once, before warnings are errors."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    import kafka.record.default_records
    import kafka.record.memory_records  # noqa: F401
