"""Benchmarks of our producer and aiokafka's on one real broker: `python -m tests.tools.benchmarks`.

Each module's docstring says what it measures.
"""
