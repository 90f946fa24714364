"""Record batches: their encoding, their reading, their codecs. Knows no clock, loop or socket, and nothing of `wire`."""
