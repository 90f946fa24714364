"""The metadata task, the sends that wait for a topic, and topics that are forgotten."""
