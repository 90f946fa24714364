"""A transaction: its states, what is due of it, and what an error means for it."""
