"""From closed batches to their ends: drain, encoding, request, answer, retry, expiry, flush."""
