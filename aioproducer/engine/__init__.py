"""The tasks and the waiting: memory, deliveries, draining, refreshing. The rules are in `core`, the sockets in `net`."""
