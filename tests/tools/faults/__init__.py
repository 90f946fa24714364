"""The fault catalogue: faults between a producer and Kafka, one scenario a row.

`rows/*.toml` are scenarios as data; `row` describes their format, `security` what they say of TLS and SASL. Scenarios that data cannot
express are in `coded_*.py`, by the same numbers. The test suite plays all of them, in time that jumps.
"""
