"""Benchmarks of the whole service: `thothy bench service` and `thothy bench factory`."""
