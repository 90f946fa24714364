"""The report: compares our producer with every other client on one real Kafka, as tables, curves and a page."""
