"""Translation: a text as units, what of them is copied, a call per segment, and what is wrong with a translation."""
