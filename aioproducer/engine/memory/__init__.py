"""`buffer_memory`: what is free of it, which sends wait for it, and what one partition may hold."""
