"""The gate: compares the instructions for each record of this tree with those of its base tree."""
