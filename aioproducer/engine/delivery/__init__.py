"""The records of a batch and their outcome: the builder of a batch, its result, the deliveries of its records."""
