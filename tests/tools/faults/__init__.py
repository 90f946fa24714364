"""The fault catalogue: what can go wrong between a producer and Kafka, one scenario a row, and who survives it.

`rows/*.toml` are scenarios as data (`row` says what they consist of); what data cannot say is in `coded_*.py`, by the same numbers, and
what only real nodes or whole suites show is named in `elsewhere`.
Ours runs them as tests, in time that jumps; `python -m tests.tools.faults` runs them against other clients too, and writes
docs/topics/faults.md.
"""
