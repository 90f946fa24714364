"""Benchmarks of our producer beside others on one real broker: `python -m tests.tools.benchmarks`.

Each module's docstring says what it measures.
"""
