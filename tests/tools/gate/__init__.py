"""The gate: instructions for each record, of this tree and of the one that it goes into."""
