"""Kills what writes a streaming query's rows to a real Kafka, and counts them as a committed reader sees them. `python -m tests.tools.spark_faults`."""
