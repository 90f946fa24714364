"""Kafka's protocol as bytes: messages, headers, frames. Knows no clock, loop or socket, and nothing of `records`."""
