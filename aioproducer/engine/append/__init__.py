"""The append of a record: its fast path, its slow path, the order of sends that wait, and its batch."""
