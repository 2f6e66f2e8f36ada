"""Runs steps on the device. Knows no sequences and no requests."""
