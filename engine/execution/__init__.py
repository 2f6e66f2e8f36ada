"""Runs steps on the device. Does not know sequences or requests."""
