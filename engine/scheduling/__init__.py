"""Plans steps: which sequences run, on which blocks, and how many of their tokens are computed. Holds no tensors."""
