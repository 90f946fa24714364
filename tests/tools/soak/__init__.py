"""The soak: one producer sends to a real Kafka for half an hour while its connections are cut.

Its resources must not grow.
`client` is the program that sends, in a process of its own, and prints samples of its resources. `run` starts Kafka behind a
`FaultProxy`, cuts the connections and collects the samples; `judge` decides, as pure functions. `python -m tests.tools.soak` runs it.
"""
