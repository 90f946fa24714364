"""Tasks, timers, and how one task waits for another."""
