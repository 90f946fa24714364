"""Holds the circuit breaker's manager, which mutes failing partitions and probes them later (KIP-693)."""
