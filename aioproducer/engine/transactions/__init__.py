"""Transactions and producer ids: which broker is asked for what, and when."""
