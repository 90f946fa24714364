"""Holds the asyncio part of the producer: appends, memory, deliveries, the Sender, metadata and tasks.

The rules are in `core`, and the sockets are in `net`.
"""
