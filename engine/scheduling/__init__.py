"""Which sequences run, on which blocks, and how many of their tokens."""
