"""Micro-benchmarks of the kernels, one module beside each: `HEADER`, and `measure()` for the rows below it."""
