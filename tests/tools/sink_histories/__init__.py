"""Histories of exactly-once batches: drivers, attempts, deaths and time-outs in every order, and what a reader of committed records has then."""
