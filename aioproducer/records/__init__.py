"""Record batches and older message sets: writers, readers, compression codecs, Arrow columns."""
