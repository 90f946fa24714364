"""`buffer_memory`: its free bytes, the sends that wait for it, and the quota of one partition."""
