"""Kafka's wire protocol: messages and their codecs, headers, frames."""
