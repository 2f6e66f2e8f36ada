"""Simulated days on which the forecast is judged: `python -m benchmarks.forecast`."""
