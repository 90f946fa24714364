"""Holds the metrics, the events, the warnings about slow callbacks, and the diagnostics of batches."""
