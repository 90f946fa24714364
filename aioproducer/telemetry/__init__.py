"""Holds exporters of metrics for Prometheus and OpenTelemetry, and of traces.

Each module needs its extra, so none is imported here.
"""
