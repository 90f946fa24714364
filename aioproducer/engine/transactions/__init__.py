"""Holds the tasks of transactions and producer ids: they send each request to its broker when it is due."""
