"""The network layer: name look-ups, dialling, connections, and the nodes of a cluster."""
