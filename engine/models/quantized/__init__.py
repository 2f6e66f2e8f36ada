"""Quantized checkpoints as they are published: what config.json says of them, and how each format stores a weight."""
