"""A core in a process of its own: what crosses the border, and the text edge's half of it."""
