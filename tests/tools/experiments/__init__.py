"""What the producer's special systems are good for, each with itself on and off: `python -m tests.tools.experiments`.

Each module has `async def run(quick: bool) -> Result`, and its docstring says what it measures.
"""
