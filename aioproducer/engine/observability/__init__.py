"""What a producer tells of itself: metrics, events, what held the loop, what happened to a batch."""
