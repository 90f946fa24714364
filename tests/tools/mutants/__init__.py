"""Mutants: small wrong changes of records, core and the pool, each of which some test must notice."""
