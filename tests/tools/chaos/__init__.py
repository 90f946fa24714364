"""Real chaos: three Kafka nodes are killed, stopped and cut off; then a judge checks every record.

`faults` is the table of faults, `stage` runs them, `verifiable` is the program that sends, in a process of its own. Another client (`logs`)
and Kafka's own tool (`segments`) read the result back, and pure functions (`judge`, `sequences`, `gaps`) judge it.
`python -m tests.tools.chaos` runs it.
"""
