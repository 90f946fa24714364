"""The report: ours beside every other client on one real Kafka, as tables, curves and a page."""
