"""Holds the path of a closed batch to its end: drain, encoding, request, answer, retry, expiry, flush."""
