"""The codecs of record batches, each by a library of its own: a module is imported when its codec is first used."""
