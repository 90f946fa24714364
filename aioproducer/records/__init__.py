"""Record batches and older message sets: their writing, their reading, their codecs. Knows no clock, loop or socket, and nothing of `wire`."""
