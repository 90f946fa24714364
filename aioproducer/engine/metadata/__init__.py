"""Holds the metadata task, the wait queues of topics, and the task that forgets idle topics."""
