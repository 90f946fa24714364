"""Sockets: dialling, connections, one task per broker. Knows nothing of producing."""
