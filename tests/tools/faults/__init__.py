"""The fault catalogue: faults between a producer and Kafka, one scenario a row, and the clients that survive it.

`rows/*.toml` are scenarios as data; `row` describes their format, `security` what they say of TLS and SASL. Scenarios that data cannot
express are in `coded_*.py`, by the same numbers. `elsewhere` names those that real nodes, whole suites or other tests show. The test suite
plays the rows with our producer, in time that jumps. `python -m tests.tools.faults` plays them with other clients too, and writes
docs/topics/faults.md.
"""
