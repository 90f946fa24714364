"""Kills streaming queries while they write to a real Kafka, and counts the rows that a committed reader gets."""
