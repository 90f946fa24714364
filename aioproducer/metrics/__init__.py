"""Holds the metrics of a producer: sensors, the table of metrics, and snapshots of them."""
