"""From a call to a batch: the fast path, the slow path, which calls wait and in which order, and the batch that a record goes into."""
