"""Imports kafka-python and aiokafka as oracles.

kafka-python calls a deprecated function while it is imported, so it is imported before warnings are errors.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from aiokafka.partitioner import murmur2 as aiokafkas
    from kafka.partitioner.default import murmur2 as kafka_pythons

__all__ = ["MURMURS"]

MURMURS = {"kafka-python": kafka_pythons, "aiokafka": aiokafkas}
