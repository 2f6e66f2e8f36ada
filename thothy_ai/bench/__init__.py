"""The benchmarks of `thothy bench`: a queue of jobs through the engine and its peers.

A workload file defines jobs by their lengths alone; it needs none of the service's libraries. Real jobs are requests
that the caller makes: this package knows no kinds, and imports nothing of the service but the engine.
"""
