"""Holds the rules of transactions: the states, the next request, and the effect of errors."""
