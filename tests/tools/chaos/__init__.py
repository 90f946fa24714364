"""Real chaos: three Kafka nodes are killed, stopped, cut off and shifted about while producers send, and then every record is looked for.

`faults` is the table of what is done, `stage` does it, `verifiable` is the program that sends, in a process of its own. What came of
it is read back by another client (`logs`) and by Kafka's own tool (`segments`), and judged by pure functions (`judge`, `sequences`,
`gaps`). `python -m tests.tools.chaos` runs it and, when told to, writes docs/topics/chaos.md.
"""
