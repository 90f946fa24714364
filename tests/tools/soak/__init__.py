"""The soak: one producer sends to a real Kafka for half an hour while its connections are cut, and nothing of it may grow.

`client` is the program that sends, in a process of its own, and tells what it holds. `run` starts Kafka behind a `FaultProxy`, cuts the
connections and collects what the client tells; `judge` decides, as pure functions. `python -m tests.tools.soak` runs it.
"""
