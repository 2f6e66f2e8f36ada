"""Plans steps: which sequences run, on which blocks, and how many of their tokens. Holds no tensors."""
