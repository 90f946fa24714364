"""Experiments: the producer with one of its special systems on and off, `python -m tests.tools.experiments`.

Each module has `async def run(quick: bool) -> Result`, and its docstring says what it measures.
"""
