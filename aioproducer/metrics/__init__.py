"""What is counted of a producer: sensors, the table of metrics, and snapshots of them. Knows no loop, clock or thread."""
