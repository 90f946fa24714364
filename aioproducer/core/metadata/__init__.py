"""What is known of the cluster, when it is asked for again, and which topics are forgotten."""
