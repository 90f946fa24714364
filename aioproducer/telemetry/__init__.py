"""What producers tell others' tools: metrics for Prometheus and OpenTelemetry, traces. Each module needs its extra; none is imported here."""
