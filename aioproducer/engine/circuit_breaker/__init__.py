"""Partitions that fail are left alone and tried again (KIP-693)."""
