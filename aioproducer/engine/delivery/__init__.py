"""Records in their batch, and what became of them: the writer of a batch, its result, the handles of its records."""
