"""The tasks and timers of a producer, and the wait of one task for another."""
